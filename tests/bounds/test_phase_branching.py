"""The bound of small problems: never above a plan, never below the first bound, and exact where that can be seen."""

from dataclasses import replace

import numpy as np
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

from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.bounds.lower_bound import lower_bound, prove
from recsmith.bounds.phase_branching import CALL, MultiplierAscent, PhaseBranching
from recsmith.bounds.phase_nodes import Multipliers, PhaseNode, PhaseRanges
from recsmith.bounds.phase_prices import TablePrices
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


def _start(model: str) -> tuple[Case, MultiplierAscent, PhaseNode, float]:
    """Three tables on two ranks, the root of their search, and what a plan of them costs."""
    tables = [table(f"t{i}", 5000, 8, 10.0 * (1 + i)) for i in range(3)]
    case = Case(workload(*tables, batch_size=64), cluster(2), cost_model=model)
    plan = tuple(
        Placement(table=t.name, sharding_type="table_wise", compute_kernel="fused", ranks=(i % 2,))
        for i, t in enumerate(tables)
    )
    total, evaluator = total_of(case, plan), case.evaluator
    groups, planes = evaluator.groups, len(evaluator.planes)
    rest = (0.0, total if evaluator.step_rule.several_phases else 0.0)
    node = PhaseNode(
        0.0, 0, PhaseRanges((0.0, total), rest), np.ones((3, groups), dtype=bool), np.zeros(groups, dtype=bool),
        Multipliers(0.3, 0.7, 0.0, np.full((groups, planes), 1 / planes), 0), 0.5, np.zeros((3, groups)),
    )  # fmt: skip
    return case, MultiplierAscent(TablePrices(evaluator, np.zeros(groups, dtype=bool)), 0.0), node, total


@pytest.mark.parametrize("model", ["analytic", "torchrec"])
def test_bounds_only_rise_and_stay_below_a_plan(model: str) -> None:
    _, ascent, node, total = _start(model)
    (before,), _ = ascent.evaluate([node], [node.multipliers])
    values = [before]
    for _ in range(4):
        ascent.improve([node], 1)
        values.append(node.value)
    assert values == sorted(values)
    assert values[-1] > before
    assert values[-1] <= total
    (again,), least = ascent.evaluate([node], [node.multipliers])
    assert again == pytest.approx(node.value)
    np.testing.assert_allclose(least[0], node.least, rtol=1e-12)


def test_nodes_side_by_side_are_those_one_by_one_and_work_is_counted() -> None:
    _, ascent, node, _ = _start("analytic")
    other = node.multipliers._replace(ready_multiplier=0.9)
    both, _ = ascent.evaluate([node, node], [node.multipliers, other])
    assert ascent.work == CALL + 2 * ascent.prices.numbers
    alone = [ascent.evaluate([node], [each])[0][0] for each in (node.multipliers, other)]
    assert both == pytest.approx(alone, rel=1e-12)


def test_what_raised_another_node_is_tried() -> None:
    """Multipliers that no small change leads to: they are taken where they are better, and as they were."""
    _, ascent, node, _ = _start("analytic")
    _, elsewhere, far, _ = _start("analytic")
    twin = replace(node)
    elsewhere.improve([far], 6)
    ascent.improve([node], 1)
    assert far.value > node.value
    ascent.remember(far.multipliers)
    ascent.improve([twin], 1)
    assert twin.value >= far.value


def test_lowest_nodes_tell_which_groups_tables_select() -> None:
    """Each selection once, of groups that are open, for each table and its copies alike."""
    tables = [table(f"t{i}", 5000 * (1 + i % 4), 16, 10.0 * (1 + i % 4)) for i in range(8)]
    evaluator = Case(workload(*tables, batch_size=64), cluster(2), cost_model="analytic").evaluator
    dominated = np.zeros(evaluator.groups, dtype=bool)
    search = PhaseBranching(evaluator, dominated=dominated, below=1.0, byte_price=0.0)
    search.solve(search.work + 200_000_000)
    found = search.selections(3)
    assert 0 < len(found) <= 3
    assert len({each.tobytes() for each in found}) == len(found)
    for selected in found:
        assert selected.shape == (8,)
        np.testing.assert_array_equal(selected[:4], selected[4:])
    lowest = min(search.heap)
    least = np.where(lowest.open, lowest.least, np.inf)
    np.testing.assert_array_equal(found[0][:4], least.argmin(axis=1)[search.prices.like[:4]])


def test_pieces_of_which_few_share_a_rank_are_bounded_by_more_than_their_seconds() -> None:
    """Nine equal tables that stay whole on four ranks: some rank holds three, where the mean says two and a quarter."""
    tables = [table(f"t{i}", 100_000, 64, 50.0) for i in range(9)]
    case = Case(workload(*tables, batch_size=512), cluster(4), Space(types=("table_wise",)), cost_model="analytic")
    evaluator = case.evaluator
    plan = tuple(
        Placement(table=t.name, sharding_type="table_wise", compute_kernel="fused", ranks=(i % 4,))
        for i, t in enumerate(tables)
    )
    total, dominated = total_of(case, plan), np.zeros(evaluator.groups, dtype=bool)
    bounds = list[float]()
    for dual in (False, True):
        search = PhaseBranching(evaluator, dominated=dominated, below=total, byte_price=0.0, dual=dual)
        search.solve(3_000_000_000, total * (1 - 1e-9))
        bounds.append(min(search.bound, total))
    assert bounds[1] > bounds[0] * 1.02
    assert bounds[1] <= total * (1 + 1e-9)
