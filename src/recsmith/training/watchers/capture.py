"""The trace of some steps, which `recsmith predict` reads: a run's `capture`."""

from recsmith.prediction.capturing import capture
from recsmith.training.watchers.protocol import Seen, Watcher, Wish


class CaptureWatcher(Watcher):
    """Captures steps from the beginning of the job on.

    folder: of the traces. skip: steps before anything is taken. plain: that are timed without being traced. steps: that
    are traced.
    """

    def __init__(self, *, folder: str, steps: int = 5, plain: int = 10, skip: int = 3) -> None:
        self.capture = capture(folder, steps=steps, plain=plain, skip=skip)
        self.capture.__enter__()

    def look(self, seen: Seen) -> Wish | None:
        """The first optimizer that steps says when a step is over."""

    def close(self, error: BaseException | None) -> None:
        """Drop what is not complete, and warn of it where the job went well."""
        self.capture.__exit__(None if error is None else type(error))
