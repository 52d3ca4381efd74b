"""Engines, which run the workers of a feed as processes of this machine or as actors of a Ray cluster (on_ray.py).

An engine only starts workers. For every engine, buffer.py decides which worker makes which window, which parts are
kept, and what is made again after a loss. A thread serves each worker: it asks for windows, stores the parts that the
worker makes, and replaces a lost worker.
"""

import os
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol

import numpy as np

from recsmith._components import load
from recsmith.data import DataSchema
from recsmith.errors import RecSmithError
from recsmith.feeding.buffer import Buffer
from recsmith.feeding.worker import ERROR, WINDOW, FeedSettings, StepPart, part_of
from recsmith.files import dump_json, encode
from recsmith.jobs.processes import Arrays, close_pipes, decode_text, end_piped, pipe_of, receive, send, start_piped

EngineName = Literal["local", "ray"]
ENGINES = {"local": "recsmith.feeding.engines:LocalEngine", "ray": "recsmith.feeding.on_ray:RayEngine"}
GRACE_S = 5.0  # seconds that a thread has to end after its worker was ended


class WorkerLost(Exception):
    """A worker ended before it had sent all parts of a window; another worker makes the window again."""


class RunningWorker(Protocol):
    """A worker that an engine has started. place: its machine and process id, '' until they are known."""

    place: str

    def answers(self, window: int) -> Iterator[Arrays]:
        """The answers to the request of a window (worker.py); they break off early if the worker is lost."""
        ...

    def end(self) -> None:
        """End the worker at once, even while another thread waits for its answers; may be called more than once."""
        ...


class Engine(Protocol):
    """Starts the workers of one feed. name: the engine's name in run files. most: largest useful number of workers."""

    name: str
    most: int

    def start(self) -> RunningWorker:
        """Start a worker without waiting until it runs."""
        ...

    def close(self) -> None:
        """Release the engine's resources after all workers are ended; may be called more than once."""
        ...


class LocalEngine:
    """Runs workers as processes of this machine, at most one per core."""

    name = "local"

    def __init__(self, settings: FeedSettings, address: str | None = None) -> None:
        del address  # only clusters have an address
        self.most = os.cpu_count() or 1
        self._settings = dump_json(encode(settings))

    def start(self) -> "LocalWorker":
        """Start a process."""
        return LocalWorker(self._settings)

    def close(self) -> None:
        """Nothing to release."""


class LocalWorker:
    """A worker process that answers through a pipe."""

    def __init__(self, settings: str) -> None:
        self.process = start_piped("recsmith.feeding.worker", settings)
        self.place = f"{socket.gethostname()}:{self.process.pid}"

    def answers(self, window: int) -> Iterator[Arrays]:
        """Request a window, and yield the answers from the pipe until the window is complete or the process ends."""
        try:
            send(pipe_of(self.process.stdin), {WINDOW: np.array([window], np.int64)})
            while (arrays := receive(pipe_of(self.process.stdout))) is not None:
                yield arrays
                if WINDOW in arrays:
                    return
        except (OSError, ValueError):
            return  # the process's pipes are closed

    def end(self) -> None:
        """Kill the process, so that a thread that reads from its pipe stops waiting; then close the pipes."""
        end_piped(self.process, at_once=True)
        close_pipes(self.process)


def engine_of(name: EngineName, settings: FeedSettings, ray_address: str | None = None) -> Engine:
    """Create the engine with this name for one feed.

    Raises:
        MissingExtra: a package that the engine needs is not installed.
        RecSmithError: no Ray cluster answers at the address.
    """
    return load(ENGINES[name])(settings, ray_address)


class WorkerThread:
    """The thread that serves a worker. worker: the running worker, which is replaced if it is lost."""

    def __init__(
        self, number: int, buffer: Buffer, engine: Engine, schema: DataSchema, groups: Sequence[Sequence[str]]
    ) -> None:
        self.number, self.buffer, self.engine, self.schema, self.groups = number, buffer, engine, schema, groups
        self.worker = engine.start()
        self.thread = threading.Thread(target=self._run, daemon=True, name=f"recsmith-feed-{number}")
        self.thread.start()

    def end(self) -> None:
        """End the worker, and thereby the thread."""
        self.worker.end()

    def join(self) -> None:
        """Wait up to GRACE_S seconds for the thread to end."""
        self.thread.join(GRACE_S)

    def _run(self) -> None:
        try:
            while (window := self.buffer.lease(self.number)) is not None:
                self._make(window)
        except BaseException as error:
            self.buffer.fail(error)
        finally:
            self.worker.end()

    def _make(self, window: int) -> None:
        """Store the parts of a window as they arrive; if the worker is lost, start another one."""
        try:
            for part in parts_in(self.worker.answers(window), self.schema, self.groups):
                self.buffer.keep(self.number, part)
            self.buffer.complete(self.number)
        except WorkerLost:
            if self.buffer.worker_lost(self.number):
                self.worker.end()
                self.worker = self.engine.start()


def parts_in(answers: Iterable[Arrays], schema: DataSchema, groups: Sequence[Sequence[str]]) -> Iterator[StepPart]:
    """The parts in a worker's answers to a request.

    Raises:
        RecSmithError: the worker reported an error.
        WorkerLost: the answers end before the window is complete.
    """
    for arrays in answers:
        if ERROR in arrays:
            raise RecSmithError(decode_text(arrays[ERROR]))
        if WINDOW in arrays:
            return
        yield part_of(arrays, schema, groups)
    raise WorkerLost
