"""Compiled annealing keeps to the rules while it wanders: what it says of a plan is what the plan costs."""

from pathlib import Path

import numpy as np
import pytest
from support.cases import Case, check_plan, cluster, fits, medium_case, seeded, table, workload
from support.learned import write_model
from support.learned_cases import cpus
from support.searched import heap, lopsided

from recsmith.bounds import first_bound
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.clusters import load_cluster
from recsmith.costs import Evaluator, cost_model, price, step_seconds
from recsmith.errors import UsageError
from recsmith.planners.annealing import kernel
from recsmith.planners.annealing.kernel import Cooling, FlatOptions, FlatProblem, is_compiled
from recsmith.planners.annealing.starts import TriedOptions
from recsmith.planners.search.candidates import candidates, place_candidate
from recsmith.planners.search.device_state import Assignment, DeviceState
from recsmith.planners.solver.linear_pieces import linear_pieces_of
from recsmith.plans import check_placements
from recsmith.problems import Constraints, Space, TableRule, build_problem, placements_of
from recsmith.workloads.sample import sample_workload

STEPS, HEAT = 4_000, (0.03, 3e-4)
pytestmark = pytest.mark.skipif(not is_compiled(), reason="built without a C compiler")


def flat(case: Case) -> tuple[FlatProblem, FlatOptions]:
    evaluator = case.evaluator
    devices, relaxation = DeviceState(evaluator), shared_relaxation(evaluator)
    linear_pieces = linear_pieces_of(evaluator, devices.terms)
    assert linear_pieces is not None
    problem = FlatProblem(evaluator, linear_pieces.group_loads)
    return problem, FlatOptions(problem, TriedOptions(devices, relaxation))


def first_draft(case: Case) -> Assignment | None:
    devices, relaxation = DeviceState(case.evaluator), shared_relaxation(case.evaluator)
    placed = (place_candidate(devices, relaxation, each)
              for each in candidates(relaxation, first_bound(case.evaluator).promising))  # fmt: skip
    return next((draft for draft in placed if draft is not None), None)


def cooled(case: Case, draft: Assignment, seed: int = 0, at_once: int = STEPS) -> tuple[FlatProblem, Cooling]:
    problem, options = flat(case)
    start = problem.plan(draft)
    assert start is not None
    cooling = Cooling(problem, options, start, seed)
    for first in range(0, STEPS, at_once):
        cooling.go_on(first, first + at_once, STEPS, HEAT)
    return problem, cooling


@pytest.mark.parametrize("model", ["torchrec", "analytic"])
def test_a_plan_costs_what_annealing_says_is_legal_and_fits(model: str) -> None:
    solved = 0
    for seed in range(24):
        case = medium_case(seeded(seed), models=(model,))
        draft = first_draft(case)
        if draft is None or not flat(case)[1].usable:
            continue
        problem, cooling = cooled(case, draft)
        footprint = problem.footprint(cooling.best)
        total = step_seconds(case.evaluator, footprint)
        assert cooling.best_s == pytest.approx(total, rel=1e-9)
        assert total <= step_seconds(case.evaluator, draft.footprint(case.problem)) * (1 + 1e-9)
        placements = placements_of(case.problem, footprint)
        check_placements(placements, case.workload, case.cluster)
        assert fits(case, placements)
        assert price(case.evaluator, footprint).total_s == pytest.approx(total)
        solved += 1
    assert solved > 6


@pytest.mark.parametrize("variant", ["convex", "corrected", "monotone"])
def test_a_plan_costs_what_a_learned_model_says(tmp_path: Path, variant: str) -> None:
    problem = build_problem(sample_workload(10, seed=3, batch_size=64), cpus(3), Space(kernels=("fused",)))
    check_learned(cost_model(write_model(tmp_path / "m.safetensors", variant)).compile(problem))


def test_a_plan_costs_what_the_model_of_a_gpu_says() -> None:
    check_learned(cost_model("best").compile(build_problem(sample_workload(10, seed=3), load_cluster("h100:4"))))


def check_learned(evaluator: Evaluator) -> None:
    problem = evaluator.problem
    devices, relaxation = DeviceState(evaluator), shared_relaxation(evaluator)
    assert devices.compiled_loads is not None
    assert devices.linear_pieces is None
    flat = FlatProblem(evaluator, devices.compiled_loads)
    draft = next(filter(None, (place_candidate(devices, relaxation, each)
                               for each in candidates(relaxation, first_bound(evaluator).promising))))  # fmt: skip
    start = flat.plan(draft)
    assert start is not None
    cooling = Cooling(flat, FlatOptions(flat, TriedOptions(devices, relaxation)), start, 0)
    cooling.go_on(0, STEPS, STEPS, HEAT)
    footprint = flat.footprint(cooling.best)
    assert cooling.best_s == pytest.approx(step_seconds(evaluator, footprint), rel=2e-6)
    assert cooling.best_s <= step_seconds(evaluator, draft.footprint(problem)) * (1 + 1e-5)
    check_placements(placements_of(problem, footprint), problem.workload, problem.cluster)


def test_a_plan_is_the_same_before_and_after() -> None:
    case = lopsided()
    problem, _ = flat(case)
    draft = heap(case)
    start = problem.plan(draft)
    assert start is not None
    there, back = draft.footprint(case.problem), problem.footprint(start)
    assert all(np.array_equal(a, b) for a, b in zip((there.mode, there.width, there.target),
                                                    (back.mode, back.width, back.target), strict=True))  # fmt: skip


def test_one_seed_gives_one_plan_and_another_may_not() -> None:
    case = lopsided()
    plans = [cooled(case, heap(case), seed)[1] for seed in (0, 0, 1)]
    first, again, other = (tuple(each.tobytes() for each in plan.best.arrays) for plan in plans)
    assert first == again != other


def test_it_finds_what_a_bad_start_hides() -> None:
    """All tables on one rank: three ranks are idle."""
    case = lopsided()
    worst = step_seconds(case.evaluator, heap(case).footprint(case.problem))
    _, cooling = cooled(case, heap(case))
    assert cooling.best_s < 0.4 * worst


def test_widths_that_are_no_option_balance_ranks() -> None:
    """One table of 100 columns on three devices: 32 + 32 + 36 is a best split, as any whose widest piece has 36 is."""
    case = Case(workload(table("wide", 10_000, 100, 40.0), batch_size=4096), cluster(3), Space(types=("column_wise",)))
    problem, cooling = cooled(case, heap(case))
    widths = sorted(problem.footprint(cooling.best).width.tolist())
    assert sum(widths) == 100
    assert len(widths) == 3
    assert max(widths) == 36


def test_rules_of_widths_are_kept() -> None:
    rule = TableRule(tables="t*", min_width=16)
    case = lopsided()
    ruled = Case(case.workload, case.cluster, case.space, Constraints(rules=(rule,)))
    problem, cooling = cooled(ruled, heap(ruled))
    footprint = problem.footprint(cooling.best)
    dims = ruled.problem.demand.dim[ruled.problem.modes.table[footprint.mode]]
    assert (footprint.width >= np.minimum(16, dims)).all()
    assert cooling.best_s < step_seconds(ruled.evaluator, heap(ruled).footprint(ruled.problem))


def test_torchrec_widths_stay_torchrec_widths() -> None:
    case = lopsided()
    narrow = Case(case.workload, case.cluster, Space(types=case.space.types, widths="torchrec"))
    problem, cooling = cooled(narrow, heap(narrow))
    assert np.isin(problem.footprint(cooling.best).width, narrow.problem.pieces.width).all()
    assert (problem.first_unit == -1).all()


def test_arrays_that_do_not_belong_together_are_refused() -> None:
    case = lopsided()
    problem, options = flat(case)
    start = problem.plan(heap(case))
    assert start is not None
    start.count = start.count[:-1].copy()
    with pytest.raises(UsageError, match=r"plan\.count: wrong length\); build it again"):
        Cooling(problem, options, start, 0).go_on(0, 1, 1, HEAT)


def test_the_whole_search_works_without_the_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    case = lopsided()
    monkeypatch.setattr("recsmith.planners.auto.annealing_turns.is_compiled", lambda: False)
    found = case.plan()
    assert "annealing" in found.members
    assert "local_search" in found.members
    check_plan(case, found.plan)
    assert kernel.is_compiled()
