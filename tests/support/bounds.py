"""Cases and hand-made plans that bounds are tested with."""

from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import settings

from recsmith.bounds import lower_bound
from recsmith.costs import price
from recsmith.plans import Placement, StepCost
from recsmith.problems import footprint_of
from support.cases import BOTH, LOOSE, Case, Pick, drawn, fits, medium_case, random_placements, seeded

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


def check_random_plans(seeds: Iterable[int], changed: Callable[[Case, int], Case]) -> None:
    """No random plan of problems with many tables costs less than their bound.

    changed: a drawn case under the cost model that is tested, by its seed.
    """
    seeds, asked = list(seeds), 0
    for seed in seeds:
        pick = seeded(seed)
        case = changed(medium_case(pick, LOOSE, models=("analytic",), counts=(12,), dims=(4, 8, 20, 64)), seed)
        bound = bound_of(case)
        for placements in (random_placements(pick, case) for _ in range(20)):
            if fits(case, placements):
                asked += 1
                assert bound is not None
                assert bound <= total_of(case, placements) * (1 + 1e-9)
    assert asked > len(seeds)
