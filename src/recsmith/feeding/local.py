"""The engine of one machine: workers are processes of it, spoken to through pipes."""

import os
import socket
from collections.abc import Iterator

import numpy as np

from recsmith.feeding.settings import FeedSettings
from recsmith.feeding.worker import WINDOW
from recsmith.files import dump_json, encode
from recsmith.jobs.messages import Arrays, receive, send
from recsmith.jobs.piped import close_pipes, end_piped, pipe_of, start_piped


class LocalEngine:
    """Starts processes of this machine, as many as it has cores at most."""

    name = "local"

    def __init__(self, settings: FeedSettings) -> None:
        self.most = os.cpu_count() or 1
        self._words = dump_json(encode(settings))

    def start(self) -> "LocalWorker":
        """Start a process."""
        return LocalWorker(self._words)

    def close(self) -> None:
        """Nothing is held."""


class LocalWorker:
    """A process that answers through a pipe."""

    def __init__(self, words: str) -> None:
        self.process = start_piped("recsmith.feeding.worker", words)
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
