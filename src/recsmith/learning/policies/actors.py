"""The actors of a training as local processes, as the learner sees them: started, asked, and replaced when lost."""

import json
import subprocess
from contextlib import suppress
from types import TracebackType
from typing import Self

import numpy as np

from recsmith._types import Floats
from recsmith.errors import RecSmithError
from recsmith.files import encode
from recsmith.jobs.messages import Arrays, receive, send, words_of
from recsmith.jobs.piped import close_pipes, end_piped, pipe_of, start_piped
from recsmith.learning.policies.actor import ERROR, REQUEST, Played
from recsmith.learning.policies.settings import PolicySettings

MOST_LOST = 3  # actors over the same request: then it is no accident


class Actors:
    """Some actors, each with at most one request under way; a context that ends them, however it ends.

    lost: how many were replaced.
    """

    def __init__(self, settings: PolicySettings, count: int) -> None:
        self.count, self.lost = count, 0
        self._settings = json.dumps(encode(settings))
        self._running: list[subprocess.Popen[bytes]] = []
        self._asked: list[Arrays | None] = [None] * count

    def __enter__(self) -> Self:
        self._running = [self._start() for _ in range(self.count)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in self._running:
            close_pipes(actor)
        for actor in self._running:
            end_piped(actor, at_once=kind is not None)

    def ask(self, actor: int, number: int, task: int, seed: int, episodes: int, tensors: dict[str, Floats]) -> None:
        """Have an actor place a task by a network. number: of the request; everything random follows from it."""
        request = {name: value.astype(np.float32) for name, value in tensors.items()}
        request[REQUEST] = np.array([number, task, seed, episodes])
        self._asked[actor] = request
        with suppress(OSError):  # it was lost; whoever waits for the answer replaces it
            send(pipe_of(self._running[actor].stdin), request)

    def answer(self, actor: int) -> Played:
        """What an actor has played; where it was lost, what another one plays in its place.

        Raises:
            RecSmithError: the hardware failed, or MOST_LOST actors were lost over the same request.
        """
        for _ in range(MOST_LOST):
            arrays = receive(pipe_of(self._running[actor].stdout))
            if arrays is not None:
                break
            self._replace(actor)
        else:
            code = self._running[actor].poll()
            raise RecSmithError(
                f"{MOST_LOST} actors ended one after the other over the same placements"
                f"{'' if code is None else f' (the last with {code})'}; is there memory for --actors {self.count}?"
            )
        if ERROR in arrays:
            raise RecSmithError(words_of(arrays[ERROR]))
        return Played(**arrays)

    def _replace(self, actor: int) -> None:
        """Start another actor in the place of a lost one, and ask it the same."""
        close_pipes(self._running[actor])
        end_piped(self._running[actor], at_once=True)
        self._running[actor] = self._start()
        self.lost += 1
        request = self._asked[actor]
        assert request is not None, "an answer is awaited"
        with suppress(OSError):
            send(pipe_of(self._running[actor].stdin), request)

    def _start(self) -> subprocess.Popen[bytes]:
        return start_piped("recsmith.learning.policies.actor", self._settings)
