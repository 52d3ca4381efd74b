"""Cases and hand-made plans that bounds are tested with."""

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import numpy as np
from hypothesis import settings

from recsmith.bounds import lower_bound
from recsmith.bounds.bends import bent_planes
from recsmith.bounds.groups import GroupCosts
from recsmith.bounds.phase_nodes import PhaseRanges
from recsmith.costs import price
from recsmith.costs.pricing import device_sums
from recsmith.plans import Placement, StepCost
from recsmith.problems import Space, footprint_of
from support.cases import (
    BOTH,
    LOOSE,
    Case,
    Pick,
    all_placements,
    cluster,
    drawn,
    fits,
    medium_case,
    random_placements,
    seeded,
    table,
    workload,
)

SOME = {"models": BOTH, "counts": (1, 2, 3), "dims": (4, 8, 20, 64)}
MEDIUM = drawn(medium_case, **SOME)
TINY = drawn(medium_case, tightness=(0.5, 1.0, 3.0), **SOME)
ANALYTIC = drawn(medium_case, **(SOME | {"models": ("analytic",)}))
ROUNDED = 1 + 1e-12  # times the end of a range: more than rounding
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


def own_ranges(case: Case, placements: tuple[Placement, ...], below: float) -> PhaseRanges:
    """Ranges that end at the seconds of the slowest rank of a plan, and begin at so great a share of them."""
    evaluator, footprint = case.evaluator, footprint_of(case.problem, placements)
    worldwide = GroupCosts(evaluator, bent_planes(evaluator).launch).worldwide
    loads = evaluator.loads(device_sums(evaluator, footprint))[:, :, ~worldwide].sum(axis=2)
    ready = float(loads[0].max()) - bent_planes(evaluator).launch
    rest = float(loads[1:].sum(axis=0).max(initial=0.0))
    return PhaseRanges((below * ready, ready * ROUNDED), (below * rest, rest * ROUNDED))


def best_of_whole_tables(draw: np.random.Generator) -> tuple[Case, tuple[Placement, ...], float]:
    """Four tables on up to four ranks with slow links, and the best plan that keeps them whole, with its seconds."""
    tables = [
        table(f"t{i}", int(draw.integers(100, 5000)), int(draw.choice([4, 8, 12])), float(draw.uniform(1, 4)))
        for i in range(4)
    ]
    ranks = int(draw.integers(2, 5))
    only = Space(types=("table_wise",), kernels=("fused",))
    case = Case(workload(*tables, batch_size=65536), cluster(1, hosts=ranks), only, cost_model="analytic")
    every = product(*all_placements(case).values())
    total, best = min(((total_of(case, each), each) for each in every), key=lambda pair: pair[0])
    return case, best, total
