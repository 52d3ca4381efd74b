"""The engine of many machines: workers are actors of a Ray cluster, and parts come through its object store.

An actor runs the same code as a process of the local engine (worker.py). Actors are spread over the nodes of the
cluster; one that ends, with its node or alone, is lost, and the feed starts another. Ray itself would restart it as
well, but only the feed knows that five losses over one window are no accident. Imports ray only when an engine is made.
"""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from recsmith._version import __version__
from recsmith.errors import RecSmithError
from recsmith.feeding.ray_connection import Connection
from recsmith.feeding.settings import FeedSettings
from recsmith.feeding.worker import ERROR, worker_of
from recsmith.files import dump_json, encode
from recsmith.jobs.messages import Arrays, text_of

AHEAD = 8  # parts of a worker that lie in the object store at most; trade-off: more hide network, and take memory


class FeedActor:
    """What a Ray actor runs. folder: of the trainer, which relative paths of the data are meant from."""

    def __init__(self, words: str, folder: str, version: str) -> None:
        self.worker, self.version = worker_of(words), version
        if Path(folder).is_dir():
            os.chdir(folder)

    def place(self) -> str:
        """The machine and the process id."""
        return f"{socket.gethostname()}:{os.getpid()}"

    def answers(self, window: int) -> Iterator[Arrays]:
        """What a worker answers, one object of the store for each; an error where another RecSmith runs here."""
        if self.version != __version__:
            text = (
                f"the Ray node {socket.gethostname()} has RecSmith {__version__}, the trainer {self.version}, and they "
                "may order samples differently; install the same on both"
            )
            yield {ERROR: text_of(text)}
            return
        yield from self.worker.answers(window)


class RayEngine:
    """Starts Ray actors, as many as the cluster has cores at most.

    address: of a Ray cluster ('host:port'); None: that of RAY_ADDRESS, or a Ray of this machine's own, which listens
    on the loopback interface alone and ends with the feed.

    Raises:
        MissingExtra: ray is not installed.
        RecSmithError: no cluster answers at the address.
    """

    name = "ray"

    def __init__(self, settings: FeedSettings, address: str | None = None) -> None:
        self._connection = Connection(address)
        self._ray: Any = self._connection.ray
        self.most = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._words = dump_json(encode(settings))
        self._actors: Any = self._ray.remote(FeedActor).options(max_restarts=0, scheduling_strategy="SPREAD")

    def start(self) -> "RayWorker":
        """Have Ray start an actor on one of its nodes."""
        return RayWorker(self._ray, self._actors.remote(self._words, str(Path.cwd()), __version__))

    def close(self) -> None:
        """Leave the cluster; a Ray that was started for this feed ends."""
        self._connection.close()


class RayWorker:
    """An actor, as the feed sees it."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self.place = ""
        self._ray, self._actor = ray, actor

    def answers(self, window: int) -> Iterator[Arrays]:
        """Ask, and copy what comes out of the object store, until the window is complete or the actor has ended."""
        problems = self._ray.exceptions
        try:
            self.place = self.place or self._ray.get(self._actor.place.remote())
            asked = self._actor.answers.options(num_returns="streaming", _generator_backpressure_num_objects=AHEAD)
            for answer in asked.remote(window):
                yield {name: np.array(value) for name, value in self._ray.get(answer).items()}
        except problems.RayTaskError as error:
            raise RecSmithError(f"a worker of the feed failed on a Ray node: {error}") from None
        except problems.RayActorError as error:
            if getattr(error, "actor_init_failed", False):
                raise RecSmithError(f"Ray could not start a worker of the feed: {error}") from None
        except problems.RayError:
            return  # what it had made is lost with its node

    def end(self) -> None:
        """Have Ray end the actor, also one that has not begun."""
        if self._ray.is_initialized():
            self._ray.kill(self._actor, no_restart=True)
