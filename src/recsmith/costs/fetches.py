"""Seconds in which disks fetch the rows that a step lacks, and what remains of them if a thread prefetches.

Cost model `analytic` adds these seconds to the step, so that planners include them. In TorchRec's prefetch pipeline,
the rows of the next batch are fetched while the current one trains, so a step takes the longer of both (docs/tiers.md).

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
    """Disk time of a plan in the embedding part of a step, by cost model analytic.

    seconds: of each rank, to fetch rows and write others back.
    step_s: of the embedding part, if rows took no time.
    """

    seconds: tuple[float, ...]
    step_s: float

    @property
    def longest_s(self) -> float:
        """Seconds of the rank that fetches longest."""
        return max(self.seconds)

    @property
    def ahead_s(self) -> float:
        """Seconds of the embedding part, if rows are fetched during the step before."""
        return max(self.step_s, self.longest_s)


def disk_fetches(plan: Plan, batch_size: int | None = None) -> DiskFetches | None:
    """The disk time of a plan in a step, at its own batch size or another; None if no table is on disk.

    Raises:
        UsageError: the plan's cluster does not state the speed of its disk.
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
