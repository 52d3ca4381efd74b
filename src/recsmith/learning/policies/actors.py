"""Actors of AutoShard's training: processes that place a task by the weights they are sent, and measure it.

    request   number, task, seed, episodes (int64), and the tensors of a network
    answer    the placements, the policy's inputs and the costs: `Played`, array by array; or the text of an error

The learner starts actors with the settings as JSON, sends requests to standard input, and reads answers from standard
output. An answer depends only on its request, so a lost actor can be replaced by another. Imports no torch.

Legend: E episodes, N items, D devices.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.errors import RecSmithError
from recsmith.files import decode, encode, parse_json
from recsmith.jobs.processes import (
    Arrays,
    close_pipes,
    decode_text,
    encode_text,
    end_piped,
    pipe_of,
    receive,
    send,
    start_piped,
)
from recsmith.learning.policies import PolicySettings
from recsmith.learning.policies.measured import PlacementMeter, TrainingTask, training_task
from recsmith.learning.policies.tasks import PlacementTask
from recsmith.planners.autoshard import AutoShardNetwork
from recsmith.planners.placing.policy_network import FIGURES

REQUEST, ERROR = "request", "error"


@dataclass(frozen=True)
class Played:
    """Episodes of one task. order (N,): the task's items as they were placed; share (N,): of the mean load, of each.

    target (E, N): devices, in that order. figures (N, E, D, FIGURES), room (N, E, D): the policy's view of devices;
    scores (N, E, D): its scores of them. costs (E, D, 3), step_s (E,): measured; those of dead ends (E,) are 0.
    """

    order: Ints
    share: Floats
    target: Ints
    figures: Floats
    room: Bools
    scores: Floats
    dead: Bools
    costs: Floats
    step_s: Floats


class Actor:
    """Plays requests, one after the other."""

    def __init__(self, settings: PolicySettings) -> None:
        self._tasks: Sequence[PlacementTask] = settings.draw(settings.tasks)
        self._meter = PlacementMeter(settings.hardware, self._tasks)
        self._made: dict[int, TrainingTask | None] = {}

    def play(self, request: Arrays) -> Played:
        """Place and measure the task of a request."""
        number, place, seed, episodes = request.pop(REQUEST).tolist()
        if place not in self._made:
            self._made[place] = training_task(self._tasks, place)
        task = self._made[place]
        assert task is not None, "the learner asks for tasks whose tables have room"
        network = AutoShardNetwork({name: value.astype(np.float64) for name, value in request.items()})
        return play(network, task, episodes, np.random.default_rng([seed, number]), self._meter, number * episodes)


def play(
    network: AutoShardNetwork, task: TrainingTask, episodes: int, random: np.random.Generator, meter: PlacementMeter,
    visit: int,
) -> Played:  # fmt: skip
    """Place a task in several episodes, and measure those that found room. visit: number of the first measurement."""
    ordered = network.order(task.items)
    order = np.searchsorted(task.items.row, ordered.row)  # rows of a task's items increase
    found = network.rollout(ordered, episodes, random, record=True)
    costs, step_s = np.zeros((episodes, ordered.devices, 3)), np.zeros(episodes)
    for i in np.flatnonzero(~found.dead).tolist():
        footprint = ordered.assignment(found.target[i]).footprint(task.evaluator.problem)
        measured = meter.measure(task.evaluator, footprint, visit + i)
        costs[i], step_s[i] = measured.costs, measured.step_s
    share = found.figures[:, 0, 0, FIGURES - 1] if len(ordered) else np.zeros(0)
    return Played(order, share, found.target, found.figures, found.room, found.scores, found.dead, costs, step_s)


def main() -> None:
    """Answer requests until there are no more."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with answers
    actor: Actor | None = None
    while (request := receive(sys.stdin.buffer)) is not None:
        answer: dict[str, Any]
        try:
            actor = actor or Actor(decode(PolicySettings, parse_json(sys.argv[1], "settings"), "settings"))
            answer = vars(actor.play(request))
        except RecSmithError as error:
            answer = {ERROR: encode_text(str(error))}
        try:
            send(out, answer)
        except BrokenPipeError:  # the learner has ended
            return


if __name__ == "__main__":
    main()


MOST_LOST = 3  # actors lost over the same request, after which it counts as no accident


class Actors:
    """Several actors, each with at most one open request; a context that ends the processes in any case.

    lost: number of actors that were replaced.
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
        """Have an actor place a task by a network. number: of the request; all random numbers depend on it."""
        request = {name: value.astype(np.float32) for name, value in tensors.items()}
        request[REQUEST] = np.array([number, task, seed, episodes])
        self._asked[actor] = request
        with suppress(OSError):  # the actor was lost; `answer` replaces it
            send(pipe_of(self._running[actor].stdin), request)

    def answer(self, actor: int) -> Played:
        """The episodes of an actor; if it was lost, another one plays the same request.

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
            raise RecSmithError(decode_text(arrays[ERROR]))
        return Played(**arrays)

    def _replace(self, actor: int) -> None:
        """Replace a lost actor by another one, and send it the same request."""
        close_pipes(self._running[actor])
        end_piped(self._running[actor], at_once=True)
        self._running[actor] = self._start()
        self.lost += 1
        request = self._asked[actor]
        assert request is not None, "an answer is awaited"
        with suppress(OSError):
            send(pipe_of(self._running[actor].stdin), request)

    def _start(self) -> subprocess.Popen[bytes]:
        return start_piped("recsmith.learning.policies.actors", self._settings)
