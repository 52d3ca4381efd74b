"""What narrow.py trains with: a watcher that makes every other step narrow, and times them."""

import json
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist

from recsmith.training.watchers.protocol import Seen, Watcher


def rest(step: int, job: Any) -> None:
    """No phase begins."""


class EveryOther(Watcher):
    """Narrow and dense steps in turns, and what each takes: CPU seconds of this rank, and seconds of the clock.

    folder: where each rank writes its times, as [narrow, cpu_s, seconds] of each step but the first ten.
    """

    def __init__(self, *, folder: str) -> None:
        self.folder, self.times = Path(folder), list[Any]()
        self.kept: Any = None
        self.last = (0.0, 0.0)

    def look(self, seen: Seen) -> None:
        """Count the step, and turn the layers over for the next."""
        now = (time.process_time(), time.perf_counter())
        layers: Any = seen.job.attached.get("narrow")
        assert layers is not None
        if self.kept is None:
            self.kept = layers._chosen()
            layers.before = rest  # phases are ours
        elif seen.step > 10:
            self.times.append([layers.kept is not None, now[0] - self.last[0], now[1] - self.last[1]])
        layers._put(None if layers.kept is not None else self.kept)
        self.last = (time.process_time(), time.perf_counter())

    def close(self, error: BaseException | None) -> None:
        """Write the times."""
        if error is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / f"times-{dist.get_rank()}.json").write_text(json.dumps(self.times))
