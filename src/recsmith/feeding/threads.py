"""The thread that serves one worker: asks it for windows, brings what it makes, and replaces it when it is lost."""

import threading
from collections.abc import Iterable, Iterator, Sequence

from recsmith.data import DataSchema
from recsmith.errors import RecSmithError
from recsmith.feeding.buffer import Buffer
from recsmith.feeding.engine import Engine, WorkerLost
from recsmith.feeding.parts import Part, part_of
from recsmith.feeding.worker import ERROR, WINDOW
from recsmith.jobs.messages import Arrays, words_of

GRACE_S = 5.0  # that a thread has to see that its worker was ended


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


def parts_in(answers: Iterable[Arrays], schema: DataSchema, groups: Sequence[Sequence[str]]) -> Iterator[Part]:
    """The parts in what a worker answers.

    Raises:
        RecSmithError: what the worker says that went wrong.
        WorkerLost: the end of the window is missing.
    """
    for arrays in answers:
        if ERROR in arrays:
            raise RecSmithError(words_of(arrays[ERROR]))
        if WINDOW in arrays:
            return
        yield part_of(arrays, schema, groups)
    raise WorkerLost
