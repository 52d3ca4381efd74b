"""What ranks send compared with all numbers, in each line of a job's log, in its result and in checkpoints."""

from dataclasses import fields
from typing import Any

import torch
import torch.distributed as dist

from recsmith.clusters import Cluster
from recsmith.files import Raw, decode, encode
from recsmith.training.job.sharded import ShardedJob, rank_device
from recsmith.training.systems.thresholds.deciding import changed_by
from recsmith.training.systems.thresholds.dense import DenseThresholds
from recsmith.training.systems.thresholds.pooled import exchanges_of
from recsmith.training.systems.thresholds.sent import Crossed, Sent

NAMES = [each.name for each in fields(Sent)]


class Crossing:
    """What this rank has sent since the run began, and up to the last line of the log."""

    def __init__(self) -> None:
        self.before, self.settling, self.shown = Crossed(), Crossed(), Crossed()
        self.job: ShardedJob | None = None

    def begin(self, steps: int | None, kept: Raw | None) -> None:
        """Continue from the count in a checkpoint, which rank 0 adds for all ranks."""
        if kept is not None and dist.get_rank() == 0:
            self.before = decode(Crossed, kept, "crossed")

    def before_step(self, job: Any) -> None:
        """At the first step, exclude what was sent before it, while the job was set up."""
        if self.job is None:
            self.job, self.settling, self.shown = job.sharded, _counted(job.sharded), self.before

    @property
    def crossed(self) -> Crossed:
        """What this rank has sent since the run began."""
        return self.before if self.job is None else self.before + (_counted(self.job) - self.settling)

    def to_raw(self) -> Raw:
        """The sums over all ranks, for a checkpoint. Every rank must call this."""
        return encode(self.all_ranks())

    def line(self) -> tuple[Raw, str]:
        """What all ranks have sent since the last line."""
        now = self.crossed
        since, self.shown = over_ranks(now - self.shown), now
        return since.to_raw(), str(since)

    def brought(self, cluster: Cluster) -> str:
        """What was sent in the whole run, compared with what was wanted and predicted; '' if nothing was sent."""
        all_, hook = self.all_ranks(), None if self.job is None else self.job.hook
        said = str(all_)
        if not said or not isinstance(hook, DenseThresholds):
            return said
        warm = "" if hook.warm_up is None else " after a warm-up, which is counted"
        gain = changed_by(hook.settings.gain_s(cluster, all_.dense.of_numbers // all_.dense.steps))
        wanted = f"{hook.settings.dense:.2%} of dense gradients was wanted{warm}"
        return f"{said}; {wanted}; at that share steps were predicted to get {gain} on the plan's links"

    def all_ranks(self) -> Crossed:
        """What all ranks have sent since the run began."""
        return over_ranks(self.crossed)


def _counted(job: ShardedJob) -> Crossed:
    """What this rank has sent since its job was created."""
    dense = job.hook.crossed if isinstance(job.hook, DenseThresholds) else Sent()
    return Crossed(dense=dense, pooled=sum((each.sent for each in exchanges_of(job.model)), Sent()))


def over_ranks(crossed: Crossed) -> Crossed:
    """The sums over all ranks."""
    parts = (crossed.dense, crossed.pooled)
    sums = torch.tensor([[getattr(part, name) for name in NAMES] for part in parts], device=rank_device())
    dist.all_reduce(sums)
    dense, pooled = (Sent(**dict(zip(NAMES, each, strict=True))) for each in sums.tolist())
    return Crossed(dense=dense, pooled=pooled)
