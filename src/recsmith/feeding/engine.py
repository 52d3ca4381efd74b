"""What runs the workers of a feed: processes of this machine (local.py), or actors of a Ray cluster (on_ray.py).

An engine starts workers and nothing more. Which worker makes which window, what is kept and what is made again after a
loss is decided in buffer.py and leases.py, for every engine alike.
"""

from collections.abc import Iterator
from typing import Protocol

from recsmith.jobs.messages import Arrays


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
