"""The protocol of cost models: who calls what, when.

    model.compile(problem) -> Evaluator      once per problem
    evaluator.terms(modes, widths)           once for all pieces, and for the pieces of a plan
    evaluator.head(sums)                     once per plan: seconds of a group on a rank, in four parts
    evaluator.loads(sums), .compute(sums)    often, while searching: sums of these parts

The cost of a device is the sum over fusion groups of head(sum of its pieces' terms), so a move changes a few vectors;
to it every rank adds what the collectives of all groups in use cost it even when it sends nothing (`shared`). The
step is a sequence of phases, after each of which all ranks wait for the slowest.

Legend: N pieces, k work terms, G fusion groups, W ranks, F phases; the four parts are recsmith.plans.PARTS.
"""

from dataclasses import dataclass
from typing import Protocol

from recsmith._types import Floats, Ints
from recsmith.problems import Problem


@dataclass(frozen=True, slots=True)
class Plane:
    """A plane below the loads of a cost model: loads(sums) is at least slopes @ sums, + opening in the first phase.

    slopes (F, k): seconds per term in each phase. opening: seconds of a group that holds at least one piece on a rank;
    0 or more.
    """

    slopes: Floats
    opening: float


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
    def lifted(self) -> tuple[tuple[float, "Evaluator"], ...]:
        """(seconds, model) pairs for bounds: models that cost each group in use on a rank this many seconds more.

        A plane may lie below zero where a group has little work, and bounds need planes that do not. Costing every
        group more lifts them; the bound then takes back what was added. Nothing where no plane lies below zero.
        """
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
