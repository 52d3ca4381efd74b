"""Annealing keeps to the rules while it wanders: what it says of a plan is what the plan costs."""

import numpy as np
import pytest
from support.cases import Case, cluster, fits, make_workload, medium_case, seeded, table, workload

from recsmith.bounds import lower_bound
from recsmith.bounds.relaxation import Relaxation
from recsmith.costs import step_seconds
from recsmith.planners.annealing.options import AnnealingOptions
from recsmith.planners.annealing.population_annealing import Annealing
from recsmith.planners.search.assignment import Assignment
from recsmith.planners.search.candidates import candidates, place_candidate
from recsmith.planners.search.device_state import DeviceState
from recsmith.problems import Space, placements_of

STEPS = 120


def drafts(case: Case) -> tuple[DeviceState, AnnealingOptions, list[Assignment]]:
    """What annealing starts from."""
    evaluator = case.evaluator
    devices, relaxation = DeviceState(evaluator), Relaxation(evaluator, linear=lower_bound(evaluator).linear)
    found = [
        place_candidate(devices, relaxation, choice)
        for choice in candidates(relaxation, lower_bound(evaluator).promising)
    ]
    options = AnnealingOptions(devices, relaxation)
    return devices, options, [draft for draft in found if draft is not None and options.reaches(draft)]


def cooled(devices: DeviceState, options: AnnealingOptions, starts: list[Assignment], seed: int = 0) -> Annealing:
    """An annealing that has ended."""
    annealing = Annealing(devices, options, starts, seed)
    annealing.cool(0, STEPS, STEPS)
    return annealing


@pytest.mark.parametrize("model", ["torchrec", "analytic"])
def test_a_plan_costs_what_annealing_says_and_fits(model: str):
    solved = 0
    for seed in range(20):
        case = medium_case(seeded(seed), models=(model,))
        devices, options, starts = drafts(case)
        if not starts or not options.usable:
            continue
        annealing = cooled(devices, options, starts)
        footprint = annealing.assignment().footprint(case.problem)
        total = step_seconds(case.evaluator, footprint)
        assert annealing.best_s == pytest.approx(total, rel=1e-9)
        start = min(step_seconds(case.evaluator, start.footprint(case.problem)) for start in starts)
        assert total <= start * (1 + 1e-9)
        assert fits(case, placements_of(case.problem, footprint))
        solved += 1
    assert solved > 4


def lopsided() -> Case:
    """One table is placed badly by any rule of thumb; the rest is small."""
    tables = [table(f"t{i}", 5_000 * (i + 1), 4 * (1 + i % 9), 1.0 + 3 * (i % 5)) for i in range(24)]
    return Case(workload(*tables, batch_size=512), cluster(4), Space(types=("table_wise", "column_wise")))


def test_one_seed_gives_one_plan_and_another_may_not():
    devices, options, starts = drafts(lopsided())
    first, again, other = (cooled(devices, options, starts[:4], seed).assignment() for seed in (0, 0, 1))
    assert np.array_equal(first.target, again.target)
    assert np.array_equal(first.option, again.option)
    assert not (np.array_equal(first.target, other.target) and np.array_equal(first.option, other.option))


def test_it_finds_what_a_bad_start_hides():
    """All tables on one rank: three ranks are idle."""
    case = lopsided()
    devices, options, starts = drafts(case)
    whole = case.problem.options.start[:-1]
    heap = Assignment.of(case.problem, whole)
    heap.target[:] = 0
    worst = step_seconds(case.evaluator, heap.footprint(case.problem))
    best = min(step_seconds(case.evaluator, start.footprint(case.problem)) for start in starts)
    assert worst > 2 * best
    assert cooled(devices, options, [heap]).best_s < 1.1 * best


def test_many_tables_or_devices_are_left_to_others():
    many = Case(make_workload(seeded(0), 301, (4,)), cluster(2), Space(types=("table_wise",)))
    wide = Case(workload(table("t", 1000, 8)), cluster(8, 512), Space(types=("table_wise",)))
    for case in (many, wide):
        assert not drafts(case)[1].usable
