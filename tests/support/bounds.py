"""Cases and hand-made plans that bounds are tested with."""

from typing import Any

from hypothesis import settings

from recsmith.bounds import lower_bound
from recsmith.costs import price
from recsmith.plans import Placement, StepCost
from recsmith.problems import footprint_of
from support.cases import BOTH, LOOSE, Case, Pick, drawn, medium_case, random_placements

SOME = {"models": BOTH, "counts": (1, 2, 3), "dims": (4, 8, 20, 64)}
MEDIUM = drawn(medium_case, **SOME)
TINY = drawn(medium_case, tightness=(0.5, 1.0, 3.0), **SOME)
ANALYTIC = drawn(medium_case, **(SOME | {"models": ("analytic",)}))
FEW, ONE_DOZEN = settings(max_examples=16), settings(max_examples=12)


def bound_of(case: Case) -> float | None:
    return lower_bound(case.evaluator).bound.value_s


def hand_made(pick: Pick, **words: Any) -> tuple[Case, tuple[Placement, ...]]:
    """A case, and a legal plan for it that no planner made."""
    case = medium_case(pick, LOOSE, **words)
    return case, random_placements(pick, case)


def priced(case: Case, placements: tuple[Placement, ...]) -> StepCost:
    return price(case.evaluator, footprint_of(case.problem, placements))


def total_of(case: Case, placements: tuple[Placement, ...]) -> float:
    return priced(case, placements).total_s
