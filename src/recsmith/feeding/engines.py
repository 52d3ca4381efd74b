"""What runs the workers of a feed: processes of this machine, or actors of a Ray cluster (on_ray.py).

An engine starts workers and nothing more. Which worker makes which window, what is kept and what is made again after a
loss is decided in buffer.py, for every engine alike. A thread serves each worker: it asks for windows, brings what it
makes, and replaces it when it is lost.
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
GRACE_S = 5.0  # that a thread has to see that its worker was ended


class WorkerLost(Exception):
    """A worker ended before it had given all parts of a window; another one makes it again."""


class RunningWorker(Protocol):
    """A worker that an engine has started. place: its machine and process id, '' until it is known."""

    place: str

    def answers(self, window: int) -> Iterator[Arrays]:
        """What a worker answers to the number of a window (worker.py); its end is missing where the worker is lost."""
        ...

    def end(self) -> None:
        """End the worker at once, also while another thread waits for its answers. More than once does no harm."""
        ...


class Engine(Protocol):
    """What starts the workers of one feed. name: as a run says it. most: workers that make sense."""

    name: str
    most: int

    def start(self) -> RunningWorker:
        """Start a worker; does not wait until it runs."""
        ...

    def close(self) -> None:
        """Let go of what the engine holds, once all workers are ended. More than once does no harm."""
        ...


class LocalEngine:
    """Starts processes of this machine, as many as it has cores at most."""

    name = "local"

    def __init__(self, settings: FeedSettings, address: str | None = None) -> None:
        del address  # of a cluster
        self.most = os.cpu_count() or 1
        self._settings = dump_json(encode(settings))

    def start(self) -> "LocalWorker":
        """Start a process."""
        return LocalWorker(self._settings)

    def close(self) -> None:
        """Nothing is held."""


class LocalWorker:
    """A process that answers through a pipe."""

    def __init__(self, settings: str) -> None:
        self.process = start_piped("recsmith.feeding.worker", settings)
        self.place = f"{socket.gethostname()}:{self.process.pid}"

    def answers(self, window: int) -> Iterator[Arrays]:
        """Ask, and hand on what comes through the pipe until the window is complete or the process has ended."""
        try:
            send(pipe_of(self.process.stdin), {WINDOW: np.array([window], np.int64)})
            while (arrays := receive(pipe_of(self.process.stdout))) is not None:
                yield arrays
                if WINDOW in arrays:
                    return
        except (OSError, ValueError):
            return  # its pipes are closed

    def end(self) -> None:
        """Kill the process, which ends the waiting of whoever reads its pipe; then close the pipes."""
        end_piped(self.process, at_once=True)
        close_pipes(self.process)


def engine_of(name: EngineName, settings: FeedSettings, ray_address: str | None = None) -> Engine:
    """The engine of a name, for one feed.

    Raises:
        MissingExtra: what it needs is not installed.
        RecSmithError: no Ray cluster answers at the address.
    """
    return load(ENGINES[name])(settings, ray_address)


class WorkerThread:
    """A worker, and the thread that serves it. worker: the one that runs now."""

    def __init__(
        self, number: int, buffer: Buffer, engine: Engine, schema: DataSchema, groups: Sequence[Sequence[str]]
    ) -> None:
        self.number, self.buffer, self.engine, self.schema, self.groups = number, buffer, engine, schema, groups
        self.worker = engine.start()
        self.thread = threading.Thread(target=self._run, daemon=True, name=f"recsmith-feed-{number}")
        self.thread.start()

    def end(self) -> None:
        """End the worker, and with it the thread."""
        self.worker.end()

    def join(self) -> None:
        """Wait for the thread's end."""
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
        """Bring the parts of a window as they come. Where the worker is lost, another one gets the window again."""
        try:
            for part in parts_in(self.worker.answers(window), self.schema, self.groups):
                self.buffer.keep(self.number, part)
            self.buffer.complete(self.number)
        except WorkerLost:
            if self.buffer.worker_lost(self.number):
                self.worker.end()
                self.worker = self.engine.start()


def parts_in(answers: Iterable[Arrays], schema: DataSchema, groups: Sequence[Sequence[str]]) -> Iterator[StepPart]:
    """The parts in what a worker answers.

    Raises:
        RecSmithError: what the worker says that went wrong.
        WorkerLost: the end of the window is missing.
    """
    for arrays in answers:
        if ERROR in arrays:
            raise RecSmithError(decode_text(arrays[ERROR]))
        if WINDOW in arrays:
            return
        yield part_of(arrays, schema, groups)
    raise WorkerLost
