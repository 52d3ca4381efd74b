"""Seconds in which disks bring the rows that a step lacks, and what is left of them where a thread fetches ahead.

Cost model `analytic` adds them to the step, so that planners see them. Under TorchRec's prefetch pipeline the rows of
the next batch come while this one trains, so a step takes the longer of both (docs/tiers.md).

Legend: W ranks; the four parts are recsmith.plans.PARTS.
"""

from dataclasses import replace

import numpy as np

from recsmith._types import Floats, noun
from recsmith.costs.analytic import AnalyticCostModel
from recsmith.costs.pricing import device_parts, step_of
from recsmith.plans import Plan
from recsmith.problems import footprint_of, problem_holding, problem_of, sum_per_rank
from recsmith.sharding import KEY_VALUE


@noun
class DiskFetches:
    """What a plan's disks do in a step of its embeddings, by cost model analytic.

    seconds: of each rank, in which rows come and others go. step_s: of the embeddings, if rows took no time.
    """

    seconds: tuple[float, ...]
    step_s: float

    @property
    def longest_s(self) -> float:
        """Of the rank that fetches longest."""
        return max(self.seconds)

    @property
    def ahead_s(self) -> float:
        """Of the embeddings' step, where rows are fetched beside the step before."""
        return max(self.step_s, self.longest_s)


def disk_fetches(plan: Plan, batch_size: int | None = None) -> DiskFetches | None:
    """What the disks of a plan do in a step, at its own batch size or another; None where no table is on disk.

    Raises:
        UsageError: the plan's cluster does not say how fast its disk is.
    """
    if all(placement.compute_kernel != KEY_VALUE.name for placement in plan.placements):
        return None
    workload = plan.workload if batch_size is None else replace(plan.workload, batch_size=batch_size)
    problem = problem_holding(problem_of(replace(plan, workload=workload, digest="")), plan.placements)
    footprint, evaluator = footprint_of(problem, plan.placements), AnalyticCostModel().compile(problem)
    seconds: Floats = sum_per_rank(evaluator.kernels.from_disk(footprint.mode, footprint.width), footprint, problem)
    parts = device_parts(evaluator, footprint)
    parts[:, 0] = np.maximum(parts[:, 0] - seconds, 0.0)
    return DiskFetches(seconds=tuple(seconds.tolist()), step_s=step_of(evaluator, parts))
