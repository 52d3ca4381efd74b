"""A watcher of one's own, which asks for another plan: run python examples/own_watcher.py.

A run names it as `watchers: [{name: own_watcher:SlowerSteps, factor: 2}]`; nothing else of RecSmith knows of it.
"""

import tempfile
import time

from recsmith.training import Run, RunData, RunMetrics, train
from recsmith.training.watchers.protocol import Seen, Watcher, Wish

CLICKS = {"format": "generator", "dense": 2, "features": [{"name": "item", "num_embeddings": 100}]}


class SlowerSteps(Watcher):
    """Asks once for a plan that is made anew, when steps take so many times longer than those at the beginning did."""

    def __init__(self, *, factor: float = 2.0, every: int = 10) -> None:
        self.factor, self.every = factor, every
        self.begun, self.first, self.asked = time.perf_counter(), None, False

    def look(self, seen: Seen) -> Wish | None:
        """Compare the last steps with the first ones."""
        seconds, self.begun = time.perf_counter() - self.begun, time.perf_counter()
        self.first = self.first or seconds
        if self.asked or seconds < self.factor * self.first:
            return None
        self.asked = True
        return Wish("replan", f"{self.every} steps take {seconds / self.first:.2f} times as long as at the beginning")

    def to_raw(self) -> dict[str, bool]:
        """A job that goes on from a checkpoint does not ask again."""
        return {"asked": self.asked}

    def from_raw(self, raw: dict[str, bool]) -> None:
        """Whether it did."""
        self.asked = raw["asked"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run = Run(
            data=RunData(train={**CLICKS, "num_samples": 40_000}, batch_size=256),
            output=folder, metrics=RunMetrics(every=50), watchers=({"name": "own_watcher:SlowerSteps", "factor": 0.1},),
        )  # fmt: skip
        train(run, on_progress=lambda message: print(message.get("note", f"step {message.get('step')}")))
