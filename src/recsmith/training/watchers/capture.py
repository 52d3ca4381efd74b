"""Captures a trace of some steps, which `recsmith predict` reads: a run's `capture`."""

from recsmith.prediction.capturing import capture
from recsmith.training.watchers.protocol import Seen, Watcher, Wish


class CaptureWatcher(Watcher):
    """Captures steps from the start of the job.

    folder: folder of the traces. skip: steps before anything is captured. plain: steps that are timed without a trace.
    steps: steps that are traced.
    """

    def __init__(self, *, folder: str, steps: int = 5, plain: int = 10, skip: int = 3) -> None:
        self.capture = capture(folder, steps=steps, plain=plain, skip=skip)
        self.capture.__enter__()

    def look(self, seen: Seen) -> Wish | None:
        """Nothing: the capture counts steps by calls of the first optimizer."""

    def close(self, error: BaseException | None) -> None:
        """Drop incomplete traces, and warn about them if the job went well."""
        self.capture.__exit__(None if error is None else type(error))
