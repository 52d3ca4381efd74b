"""The bound of small problems: never above a plan, never below the first bound, and exact where that can be seen."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.bounds import hand_made, total_of
from support.cases import (
    BOTH,
    LOOSE,
    Case,
    Pick,
    cluster,
    drawn,
    fits,
    medium_case,
    random_placements,
    seeded,
    table,
    workload,
)

from recsmith.bounds.dominated_groups import groups_dominated_by_type
from recsmith.bounds.lower_bound import lower_bound, prove
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.plans import Placement
from recsmith.problems import Space

WORK = 20_000_000
SOME = {"models": BOTH, "counts": (1, 2, 3, 5), "dims": (4, 8, 20, 64)}


def branching(case: Case, below: float) -> PhaseBranching:
    evaluator = case.evaluator
    return PhaseBranching(evaluator, dominated=groups_dominated_by_type(evaluator), below=below, byte_price=0.0)


@given(drawn(hand_made, **SOME), st.floats(1.0, 3.0))
def test_no_hand_made_plan_costs_less(made, reach: float):
    """However far above the plan the search looks, and wherever it stops."""
    case, placements = made
    assume(fits(case, placements))
    total = total_of(case, placements)
    search = branching(case, reach * total)
    for work in (0, WORK // 4, WORK):
        search.solve(work)
        assert search.bound <= total * (1 + 1e-9)


def with_twins(pick: Pick) -> tuple[Case, tuple[Placement, ...]]:
    """A case in which other tables ask for the same as the first ones do, and a legal plan for it."""
    case = medium_case(pick, LOOSE, **SOME)
    twins = [replace(t, name=f"{t.name} again", features=tuple(replace(f, name=f"{f.name} again") for f in t.features))
             for t in case.workload.tables]  # fmt: skip
    case = replace(case, workload=replace(case.workload, tables=(*case.workload.tables, *twins)))
    return case, random_placements(pick, case)


@given(drawn(with_twins), st.floats(1.0, 3.0))
def test_no_hand_made_plan_with_equal_tables_costs_less(made, reach: float):
    case, placements = made
    assume(fits(case, placements))
    total = total_of(case, placements)
    search = branching(case, reach * total)
    search.solve(WORK)
    assert search.bound <= total * (1 + 1e-9)


@pytest.mark.parametrize("model", BOTH)
def test_the_bound_only_rises_with_work(model: str):
    for seed in range(6):
        case = medium_case(seeded(seed), LOOSE, models=(model,), counts=(5,), dims=(8, 64))
        search = branching(case, 10.0)
        before = search.bound
        for work in (WORK // 4, WORK // 2, WORK):
            search.solve(work)
            assert search.bound >= before
            before = search.bound


def halves() -> Case:
    """Three equal tables that stay whole, on two ranks: one rank holds two of them."""
    tables = [table(f"t{i}", 5_000, 8, 10.0) for i in range(3)]
    return Case(workload(*tables, batch_size=64), cluster(2), Space(types=("table_wise",)), cost_model="torchrec")


def test_two_of_three_equal_pieces_meet_on_one_of_two_ranks():
    """The mean says 1.5 pieces a rank; a piece above half a rank has it to itself, so the truth, 2, is proved."""
    case = halves()
    total = case.plan().plan.cost.total_s
    alone = total / 2
    search = branching(case, 2 * total)
    search.solve(10 * WORK, 0.999 * total)
    assert search.bound == pytest.approx(2 * alone, rel=5e-3)


@pytest.mark.parametrize("model", BOTH)
def test_a_proof_is_a_bound_no_lower_than_the_first(model: str):
    for seed in range(4):
        case = medium_case(seeded(seed), LOOSE, models=(model,), counts=(3,), dims=(8, 64))
        plan, evaluator = case.plan(iterations=1).plan, case.evaluator
        first = lower_bound(evaluator).bound.value_s
        bound = prove(evaluator, plan.cost.total_s, keep_on=lambda: False)
        assert first is not None
        assert bound.value_s is not None
        assert first <= bound.value_s <= plan.cost.total_s * (1 + 1e-9)
