"""The protocol of cost models: who calls what, when.

    model.compile(problem) -> Evaluator      once per problem
    evaluator.terms(modes, widths)           once for all pieces, and for the pieces of a plan
    evaluator.head(sums)                     often: a planner's candidate loads
    evaluator.step(parts)                    once per plan: from the devices' parts to the step
    evaluator.bound()                        once per problem

The cost of a device is the sum over fusion groups of head(sum of its pieces' terms), so a move changes a few vectors.

Legend: N pieces, k work terms, G fusion groups, W ranks; the four parts are recsmith.plans.PARTS.
"""

from typing import Protocol

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.plans import PARTS, Bound, DeviceCost, StepCost
from recsmith.problems import Footprint, Problem, memory_used, spread


class Evaluator(Protocol):
    """A cost model compiled for one problem."""

    @property
    def problem(self) -> Problem:
        """What it was compiled for."""
        ...

    @property
    def group(self) -> Ints:
        """Fusion group of each mode (M,)."""
        ...

    @property
    def groups(self) -> int:
        """Number of fusion groups."""
        ...

    @property
    def additive(self) -> bool:
        """Whether head is linear, so that costs of pieces add up."""
        ...

    def terms(self, modes: Ints, widths: Ints) -> Floats:
        """Work terms (N, k) of pieces on each rank that they cover."""
        ...

    def head(self, sums: Floats) -> Floats:
        """Seconds in the four parts (..., 4) of a group with summed terms (..., k)."""
        ...

    def step(self, parts: Floats) -> tuple[float, Floats]:
        """(seconds of the step, seconds that each rank waits (W,)) from the ranks' parts (W, 4)."""
        ...

    def bound(self) -> Bound:
        """What no plan of the problem's space can undercut."""
        ...


class CostModel(Protocol):
    """A named way to price plans."""

    @property
    def name(self) -> str:
        """Its name on the command line."""
        ...

    def compile(self, problem: Problem) -> Evaluator:
        """The model's evaluator for a problem; UsageError where it does not cover the problem."""
        ...


def piece_seconds(evaluator: Evaluator, modes: Ints, widths: Ints) -> Floats:
    """Seconds (N,) of pieces, each alone on a covered rank."""
    return evaluator.head(evaluator.terms(modes, widths)).sum(axis=-1)


def device_parts(evaluator: Evaluator, footprint: Footprint) -> Floats:
    """Seconds of each rank in the four parts (W, 4)."""
    terms = evaluator.terms(footprint.mode, footprint.width)
    grouped = np.zeros((len(footprint.mode), evaluator.groups, terms.shape[1]))
    grouped[np.arange(len(footprint.mode)), evaluator.group[footprint.mode]] = terms
    return evaluator.head(spread(grouped, footprint, evaluator.problem)).sum(axis=1)  # (W, G, 4) -> (W, 4)


def step_seconds(evaluator: Evaluator, footprint: Footprint) -> float:
    """Seconds of a step with these placed pieces."""
    return evaluator.step(device_parts(evaluator, footprint))[0]


def price(evaluator: Evaluator, footprint: Footprint) -> StepCost:
    """What a step costs with these placed pieces, rank by rank."""
    parts = device_parts(evaluator, footprint)
    total, wait = evaluator.step(parts)
    used, _ = memory_used(evaluator.problem, footprint)
    capacity = evaluator.problem.capacity
    devices = zip(parts.tolist(), wait.tolist(), used.tolist(), capacity.tolist(), strict=True)
    return StepCost(
        total_s=total,
        per_device=tuple(
            DeviceCost(
                rank=rank, **dict(zip(PARTS, row, strict=True)), wait_s=idle, hbm_bytes=size, hbm_capacity_bytes=room
            )
            for rank, (row, idle, size, room) in enumerate(devices)
        ),
    )
