"""Annealing keeps to the rules while it wanders: what it says of a plan is what the plan costs.

Changes that are marked legal lead to plans that TorchRec runs; guided ones begin on a slowest rank.
"""

import numpy as np
import pytest
from planners.annealing.test_population import population
from support.cases import LOOSE, Case, cluster, fits, make_workload, medium_case, seeded, table, workload
from support.placing import random_assignment

from recsmith.bounds import first_bound
from recsmith.bounds.relaxation import Relaxation, shared_relaxation
from recsmith.costs import step_seconds
from recsmith.planners.annealing import population_annealing
from recsmith.planners.annealing.population import AnnealingOptions, Population
from recsmith.planners.annealing.population_annealing import Annealing, RandomChanges
from recsmith.planners.search.candidates import candidates, place_candidate
from recsmith.planners.search.device_state import Assignment, DeviceState
from recsmith.plans import check_placements
from recsmith.problems import Space, placements_of

STEPS = 120


def drafts(case: Case) -> tuple[DeviceState, AnnealingOptions, list[Assignment]]:
    """What annealing starts from."""
    evaluator = case.evaluator
    devices, relaxation = DeviceState(evaluator), Relaxation(evaluator, linear=first_bound(evaluator).linear)
    found = [
        place_candidate(devices, relaxation, choice)
        for choice in candidates(relaxation, first_bound(evaluator).promising)
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


def test_legal_changes_keep_plans_legal() -> None:
    changed = 0
    for seed in range(20):
        case = medium_case(seeded(seed), LOOSE)
        devices, random = DeviceState(case.evaluator), np.random.default_rng(seed)
        options = AnnealingOptions(devices, shared_relaxation(case.evaluator))
        pooled = all(table.pooled for table in case.problem.tables)
        if not options.usable or not pooled:
            continue
        whole = options.reached & ~options.apart
        try:
            start = random_assignment(case.problem, random, whole)
        except ValueError:  # a table with no such option
            continue
        plans = Population(devices, options, [start], 3)
        changes = RandomChanges(plans, options, random)
        for kind in (changes.move_piece, changes.swap_pieces, changes.shift_columns, changes.replace_table) * 4:
            change = kind()
            taken = np.flatnonzero(change.legal)
            plans.take(taken, change, plans.try_(change))
            changed += len(taken)
            for plan in range(3):
                made = plans.assignment(plans.option[plan], plans.target[plan]).footprint(case.problem)
                check_placements(placements_of(case.problem, made), case.workload, case.cluster)
    assert changed > 40


def test_guided_changes_take_from_the_slowest_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population_annealing, "GUIDED", 1.0)
    plans, changes = population()
    for _ in range(5):
        change = changes.move_piece()
        assert (change.ranks[:, 0] == plans.ranks.sum(axis=0).argmax(axis=1)).all()
        assert (change.legal == (change.ranks[:, 0] != change.ranks[:, 1])).all()


def test_a_swap_of_a_table_with_itself_is_not_legal() -> None:
    _, changes = population(64)
    change = changes.swap_pieces()
    (one, _, _), (other, _, _) = change.tables
    assert not change.legal[one == other].any()
    assert not change.legal.any(), "all pieces are on one rank, where swaps change nothing"
