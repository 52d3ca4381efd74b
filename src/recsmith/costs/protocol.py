"""The protocol of cost models: the methods that planners, bounds and reports call, and when; and step rules.

    model.compile(problem) -> Evaluator      once per problem
    evaluator.terms(modes, widths)           once for all pieces, and for the pieces of a plan
    evaluator.head(sums)                     once per plan: seconds of a group on a rank, in four parts
    evaluator.loads(sums), .compute(sums)    often, while searching: sums of these parts

A fusion group on a rank costs head(sum of its pieces' terms), and a rank costs the sum over its groups, so a move of a
piece changes only a few vectors. In addition, every rank pays `shared`: the cost of the collectives of all groups in
use, even if it sends nothing.

The step rule turns the ranks' parts into the step, which is a sequence of phases. At the end of a phase every rank
waits for the slowest one, so a phase lasts as long as its slowest rank, and the step is the sum of its phases.

Legend: N pieces, M modes, k work terms, G fusion groups, W ranks, F phases; the four parts are recsmith.plans.PARTS:
forward and backward compute, forward and backward communication.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.plans import PARTS, StepCost
from recsmith.problems import Problem

_FORWARD_COMPUTE, _BACKWARD_COMPUTE, _FORWARD_COMM, _BACKWARD_COMM = range(len(PARTS))  # columns of parts (..., 4)


@dataclass(frozen=True, slots=True)
class StepRule:
    """The rule by which parts become a step: which parts a rank performs in each phase.

    name: its name in code and tests.
    sentence: the rule in words.
    phases: columns of the four parts, by phase; each part is in exactly one phase.
    """

    name: str
    sentence: str
    phases: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        parts = [part for phase in self.phases for part in phase]
        if sorted(parts) != list(range(len(PARTS))):
            raise ValueError(f"step rule '{self.name}' has parts {parts}; each of the {len(PARTS)} parts has one phase")

    @property
    def several_phases(self) -> bool:
        """Whether ranks wait for each other within a step, not only at its end."""
        return len(self.phases) > 1

    def phase_seconds(self, parts: Floats) -> Floats:
        """Seconds of each phase (F, ...) from seconds in the four parts (..., 4)."""
        return np.stack([parts[..., phase].sum(axis=-1) for phase in self.phases])

    def step_seconds(self, parts: Floats) -> float:
        """Seconds of the step from the ranks' parts (W, 4): the sum over phases of the slowest rank."""
        return float(self.phase_seconds(parts).max(axis=1).sum())


LARGEST_SUM = StepRule(
    name="largest sum",
    sentence="The step takes as long as the rank with the largest sum of its four parts.",
    phases=(tuple(range(len(PARTS))),),
)
"""TorchRec's rule (torchrec 1.8, planner/perf_models.py, NoopPerfModel)."""

READY_THEN_FORWARD = StepRule(
    name="ready, then forward all-to-all",
    sentence="The backward all-to-all starts together; a rank is ready after it and its own backward and forward "
    "compute; the forward all-to-all begins when all ranks are ready and ends when the slowest sender is done.",
    phases=((_FORWARD_COMPUTE, _BACKWARD_COMPUTE, _BACKWARD_COMM), (_FORWARD_COMM,)),
)
"""The rule of cost models `analytic` and `neural:`."""


def parts_of(cost: StepCost) -> Floats:
    """Seconds of the ranks in the four parts (W, 4)."""
    return np.array([[getattr(device, part) for part in PARTS] for device in cost.per_device])


def rule_of(cost: StepCost, cost_model: str) -> StepRule:
    """The rule by which a step's parts add up to its seconds, if only the cost is known and not the model."""
    parts = parts_of(cost)
    rules = (LARGEST_SUM, READY_THEN_FORWARD) if cost_model == "torchrec" else (READY_THEN_FORWARD, LARGEST_SUM)
    return min(rules, key=lambda rule: abs(rule.step_seconds(parts) - cost.total_s))  # the first of those that agree


def ready_and_forward(compute: Floats, backward_comm: Floats, forward_comm: Floats) -> Floats:
    """Seconds of the two phases (2, ...) of READY_THEN_FORWARD, from kernels and collectives (...)."""
    loads = np.empty((2, *compute.shape))
    np.add(compute, backward_comm, out=loads[0])
    loads[1] = forward_comm
    return loads


@dataclass(frozen=True, slots=True)
class Plane:
    """A supporting plane: a linear function of the summed terms that is nowhere above the loads of a cost model.

    For a group with summed terms S (k,) that holds at least one piece on a rank, loads(S) >= slopes @ S in each phase,
    and loads(S) >= slopes @ S + opening in the first one. slopes (F, k): seconds per unit of a term, 0 or more.
    opening: seconds that a rank pays for holding the group at all (its launches); 0 or more, except for planes of
    `Evaluator.bends`.
    """

    slopes: Floats
    opening: float


class Evaluator(Protocol):
    """A cost model compiled for one problem."""

    @property
    def problem(self) -> Problem:
        """The problem for which the model was compiled."""
        ...

    @property
    def group(self) -> Ints:
        """Fusion group of each mode (M,): a number from 0 to groups - 1."""
        ...

    @property
    def groups(self) -> int:
        """Number of fusion groups."""
        ...

    @property
    def additive(self) -> bool:
        """Whether head is linear and nothing is shared, so that the costs of pieces add up."""
        ...

    @property
    def extrapolated(self) -> dict[str, float]:
        """Inputs beyond the training range of a learned model, and by what factor; empty for other models."""
        ...

    @property
    def shared(self) -> Floats:
        """Seconds (G, 4) that every rank spends if any rank holds a piece of a group: latencies of collectives."""
        ...

    @property
    def step_rule(self) -> StepRule:
        """The rule by which the parts of all ranks become the seconds of the step."""
        ...

    @property
    def planes(self) -> tuple[Plane, ...]:
        """A few supporting planes, as tight as possible; empty if the model gives no bound."""
        ...

    @property
    def bends(self) -> tuple[Plane, ...]:
        """Planes with an opening below 0 that are above the other planes for large groups; empty if there are none.

        They tighten the bound of small problems (`bounds.bends`). A model with such planes is the largest of all its
        planes. It also costs a group no less than its pieces alone, apart from launches: load(a + b) >= load(a) +
        load(b) - launch, where launch is the highest opening of its planes.
        """
        ...

    @property
    def lifted(self) -> tuple[tuple[float, "Evaluator"], ...]:
        """(seconds, model) pairs for bounds: models in which each group in use on a rank costs this many seconds more.

        A plane of a model may be below zero for a group with little work, and bounds need planes that are not. A model
        in which every group costs more has such planes; the bound then subtracts what was added (`bounds.first`). Empty
        if no plane is below zero.
        """
        ...

    def terms(self, modes: Ints, widths: Ints) -> Floats:
        """Work terms (N, k), 0 or more, of pieces with these modes (N,) and columns (N,), on each covered rank."""
        ...

    def head(self, sums: Floats) -> Floats:
        """Seconds in the four parts (..., 4) of a group on a rank with summed terms (..., k); 0 without pieces."""
        ...

    def loads(self, sums: Floats) -> Floats:
        """Seconds of each phase (F, ...) of a group on a rank with summed terms (..., k), for searches.

        Equal to step_rule.phase_seconds(head(sums)) up to rounding, and faster.
        """
        ...

    def compute(self, sums: Floats) -> Floats:
        """Seconds of kernels (...) of a group on a rank with summed terms (..., k), for searches.

        Equal to the sum of forward and backward compute of head(sums) up to rounding, and faster.
        """
        ...


@runtime_checkable
class RisesBeside(Protocol):
    """An evaluator whose planes count a piece higher, the more its group already holds on the rank."""

    def beside(self, terms: Floats, held: Floats) -> Floats:
        """Terms (N, k), for planes, of pieces on a rank whose group also holds pieces with these summed terms (k,)."""
        ...

    def at_least(self, terms: Floats, least: Floats) -> Floats:
        """Terms (N, k), for planes, of pieces on a rank whose group holds at least these summed terms (k,)."""
        ...

    def share_steps(self, steps: tuple[int, ...]) -> list[tuple[int, Floats]]:
        """The terms with most influence on this increase, each with n - 1 sums, for each number n in `steps`."""
        ...


@runtime_checkable
class CostModel(Protocol):
    """A named cost model that can price plans."""

    @property
    def name(self) -> str:
        """Its name on the command line and in plan files."""
        ...

    def compile(self, problem: Problem) -> Evaluator:
        """The model's evaluator for a problem; UsageError if it does not cover the problem."""
        ...
