"""How many lookups of a job find their row in memory, and how long the rest wait: for its log and its result."""

from typing import Any

import torch.distributed as dist

from recsmith.files import Raw
from recsmith.training.job.job import TrainingJob, over_ranks
from recsmith.training.seams.in_jobs import Attached
from recsmith.units import format_time


class CacheHits(Attached):
    """Counts at the last line of the log: lookups of all ranks, misses, seconds of waiting."""

    def __init__(self) -> None:
        self.lookups, self.missed, self.waited_s = 0, 0, 0.0

    def line(self, job: TrainingJob, steps: int) -> tuple[Raw, str]:
        """Since the last line: the hit rate of lookups, and average seconds of waiting per step."""
        rows: Any = job.sharded.rows
        (lookups, missed), waited = lookups_of(job), rows.waited_s()
        share, wait = hit_share_of(lookups - self.lookups, missed - self.missed), (waited - self.waited_s) / steps
        self.lookups, self.missed, self.waited_s = lookups, missed, waited
        said = f"{share:.1%} of lookups found a row in memory, the others waited {wait * 1e3:.1f} ms"
        return {"hit_share": share, "rows_wait_s": wait}, said


def lookups_of(job: TrainingJob) -> tuple[int, int]:
    """(lookups so far in tables with caches, misses) summed over all ranks."""
    rows: Any = job.sharded.rows
    lookups, missed = rows.lookups()
    return over_ranks(lookups, dist.ReduceOp.SUM), over_ranks(missed, dist.ReduceOp.SUM)


def brought_line(job: TrainingJob, predicted: float | None) -> str:
    """The hit rate of the whole job, and how long its steps waited. predicted: the predicted hit rate."""
    rows: Any = job.sharded.rows
    lookups, missed = lookups_of(job)
    if not lookups:
        return "rows: tiered: no table was looked up through a cache: all are copied to every rank"
    share, steps = hit_share_of(lookups, missed), max(job.progress.step - job.progress.begun, 1)
    before = "" if predicted is None else f"; {predicted:.1%} were predicted"
    return (
        f"rows: tiered: {share:.1%} of lookups found a row in memory{before}; a step waited "
        f"{format_time(rows.waited_s() / steps)} for the others"
    )


def hit_share_of(lookups: int, missed: int) -> float:
    """The hit rate (0..1) of lookups; 1 if there were none."""
    return 1 - missed / lookups if lookups else 1.0
