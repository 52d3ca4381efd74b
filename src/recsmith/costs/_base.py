"""The protocol of cost models: who calls what, when.

    model.compile(problem) -> Evaluator      once per problem
    evaluator.terms(modes, widths)           once for all pieces, and for the pieces of a plan
    evaluator.head(sums)                     once per plan: seconds of a group on a rank, in four parts
    evaluator.loads(sums), .compute(sums)    often, while searching: sums of these parts
    evaluator.outlook                        once per problem: the bound, and where good plans are

The cost of a device is the sum over fusion groups of head(sum of its pieces' terms), so a move changes a few vectors;
to it every rank adds what the collectives of all groups in use cost it even when it sends nothing (`shared`). The
step is a sequence of phases, after each of which all ranks wait for the slowest.

Legend: N pieces, k work terms, G fusion groups, W ranks, F phases; the four parts are recsmith.plans.PARTS.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.plans import PARTS, Bound, DeviceCost, StepCost
from recsmith.problems import Footprint, Problem, memory_used, spread


@dataclass(frozen=True, slots=True)
class Plane:
    """A plane below the loads of a cost model: loads(sums) is at least slopes @ sums, + opening in the first phase.

    slopes (F, k): seconds per term in each phase. opening: seconds of a group that holds at least one piece on a rank;
    0 or more.
    """

    slopes: Floats
    opening: float


@dataclass(frozen=True, slots=True)
class Floor:
    """A plane below the head of each fusion group: slopes (G, k), and the least opening of all groups."""

    slopes: Floats
    opening: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Under which terms tables pick their cheapest options.

    limit: most seconds of a piece; local: most seconds of one that does not span the world. price: seconds per byte.
    menu: fusion groups (G,) to pick from. toll: share by which options that span the world look dearer.
    weight: most device bytes of a piece on a rank.
    """

    limit: float = np.inf
    price: float = 0.0
    menu: Bools | None = None
    local: float = np.inf
    toll: float = 0.0
    weight: float = np.inf


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known of a problem before any search: a bound, and under which terms tables pick what good plans use.

    floor: the planes below the head that the bound rests on; None where the model has none.
    leads: terms, the most promising first; the last of them allows everything.
    """

    bound: Bound
    floor: Floor | None
    leads: tuple[Terms, ...]


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
        """Whether head is linear and nothing is shared, so that costs of pieces add up."""
        ...

    @property
    def extrapolated(self) -> dict[str, float]:
        """Inputs beyond what a learned model was trained on, by what factor; nothing for other models."""
        ...

    @property
    def shared(self) -> Floats:
        """Seconds (G, 4) that every rank spends once any piece of a group stands anywhere."""
        ...

    @property
    def phases(self) -> tuple[tuple[int, ...], ...]:
        """Parts of each phase of the step; ranks wait for the slowest at the end of a phase."""
        ...

    @property
    def planes(self) -> tuple[Plane, ...]:
        """Planes below the head, as tight as a few can be; none where the model gives no bound."""
        ...

    @property
    def outlook(self) -> Outlook:
        """The bound of the problem's space, and where good plans are to be sought."""
        ...

    def terms(self, modes: Ints, widths: Ints) -> Floats:
        """Work terms (N, k) of pieces on each rank that they cover."""
        ...

    def head(self, sums: Floats) -> Floats:
        """Seconds in the four parts (..., 4) of a group with summed terms (..., k)."""
        ...

    def loads(self, sums: Floats) -> Floats:
        """Seconds of each phase (F, ...) of a group with summed terms (..., k): head's parts, for searches."""
        ...

    def compute(self, sums: Floats) -> Floats:
        """Seconds of kernels (...) of a group with summed terms (..., k): head's first two parts, for searches."""
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


def device_sums(evaluator: Evaluator, footprint: Footprint) -> Floats:
    """Summed terms of each rank and group (W, G, k)."""
    terms = evaluator.terms(footprint.mode, footprint.width)
    grouped = np.zeros((len(footprint.mode), evaluator.groups, terms.shape[1]))
    grouped[np.arange(len(footprint.mode)), evaluator.group[footprint.mode]] = terms
    return spread(grouped, footprint, evaluator.problem)


def device_parts(evaluator: Evaluator, footprint: Footprint) -> Floats:
    """Seconds of each rank in the four parts (W, 4)."""
    local = evaluator.head(device_sums(evaluator, footprint)).sum(axis=1)  # (W, G, 4) -> (W, 4)
    return local + evaluator.shared[np.unique(evaluator.group[footprint.mode])].sum(axis=0)


def phase_seconds(evaluator: Evaluator, parts: Floats) -> Floats:
    """Seconds of each phase (F, ...) from seconds in the four parts (..., 4)."""
    return np.stack([parts[..., phase].sum(axis=-1) for phase in evaluator.phases])


def step_of(evaluator: Evaluator, parts: Floats) -> float:
    """Seconds of the step from the ranks' parts (W, 4): the slowest rank of each phase."""
    return float(phase_seconds(evaluator, parts).max(axis=1).sum())


def step_seconds(evaluator: Evaluator, footprint: Footprint) -> float:
    """Seconds of a step with these placed pieces."""
    return step_of(evaluator, device_parts(evaluator, footprint))


def price(evaluator: Evaluator, footprint: Footprint) -> StepCost:
    """What a step costs with these placed pieces, rank by rank."""
    parts = device_parts(evaluator, footprint)
    total = step_of(evaluator, parts)
    wait = np.maximum(total - parts.sum(axis=1), 0.0)
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
