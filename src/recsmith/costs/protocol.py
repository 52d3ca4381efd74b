"""The protocol of cost models: which methods planners, bounds and reports call, and when.

    model.compile(problem) -> Evaluator      once per problem
    evaluator.terms(modes, widths)           once for all pieces, and for the pieces of a plan
    evaluator.head(sums)                     once per plan: seconds of a group on a rank, in four parts
    evaluator.loads(sums), .compute(sums)    often, while searching: sums of these parts

A fusion group on a rank costs head(sum of its pieces' terms), and a rank costs the sum over its groups, so a move of a
piece changes a few vectors. To it every rank adds `shared`: what the collectives of all groups in use cost it even when
it sends nothing. The step rule turns the ranks' parts into the step.

Legend: N pieces, M modes, k work terms, G fusion groups, W ranks, F phases; the four parts are recsmith.plans.PARTS.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from recsmith._types import Floats, Ints
from recsmith.costs.step_rules import StepRule
from recsmith.problems import Problem


@dataclass(frozen=True, slots=True)
class Plane:
    """A supporting plane: a linear function of the summed terms that lies nowhere above the loads of a cost model.

    For a group with summed terms S (k,) that holds at least one piece on a rank, loads(S) >= slopes @ S in each phase,
    and loads(S) >= slopes @ S + opening in the first one. slopes (F, k): seconds per unit of a term, 0 or more.
    opening: seconds, 0 or more, that a rank pays for holding the group at all (its launches).
    """

    slopes: Floats
    opening: float


class Evaluator(Protocol):
    """A cost model compiled for one problem."""

    @property
    def problem(self) -> Problem:
        """The problem that it was compiled for."""
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
        """Inputs beyond what a learned model was trained on, and by what factor; empty for other models."""
        ...

    @property
    def shared(self) -> Floats:
        """Seconds (G, 4) that every rank spends once any rank holds a piece of a group: latencies of collectives."""
        ...

    @property
    def step_rule(self) -> StepRule:
        """How the parts of all ranks become the seconds of the step."""
        ...

    @property
    def planes(self) -> tuple[Plane, ...]:
        """Supporting planes, as tight as a few can be; none where the model gives no bound."""
        ...

    @property
    def lifted(self) -> tuple[tuple[float, "Evaluator"], ...]:
        """(seconds, model) pairs for bounds: models that cost each group in use on a rank so many seconds more.

        A plane of a model may lie below zero where a group has little work, and bounds need planes that do not. A model
        that costs every group more has such planes; the bound then takes back what was added (`bounds.lower_bound`).
        Empty where no plane lies below zero.
        """
        ...

    def terms(self, modes: Ints, widths: Ints) -> Floats:
        """Work terms (N, k), 0 or more, of pieces with these modes (N,) and columns (N,), on each rank they cover."""
        ...

    def head(self, sums: Floats) -> Floats:
        """Seconds in the four parts (..., 4) of a group on a rank with summed terms (..., k); 0 for no pieces."""
        ...

    def loads(self, sums: Floats) -> Floats:
        """Seconds of each phase (F, ...) of a group on a rank with summed terms (..., k), for searches.

        The same as step_rule.phase_seconds(head(sums)) up to rounding, and faster.
        """
        ...

    def compute(self, sums: Floats) -> Floats:
        """Seconds of kernels (...) of a group on a rank with summed terms (..., k), for searches.

        The same as the sum of forward and backward compute of head(sums) up to rounding, and faster.
        """
        ...


@runtime_checkable
class HasStandIn(Protocol):
    """An evaluator that knows a simpler one, which prices plans much alike and is quicker to search by."""

    @property
    def stand_in(self) -> Evaluator:
        """The simpler evaluator, of the same problem."""
        ...


@runtime_checkable
class CostModel(Protocol):
    """A named way to price plans."""

    @property
    def name(self) -> str:
        """Its name on the command line and in plan files."""
        ...

    def compile(self, problem: Problem) -> Evaluator:
        """The model's evaluator for a problem; UsageError where it does not cover the problem."""
        ...
