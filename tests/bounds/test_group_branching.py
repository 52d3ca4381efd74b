"""The limits that branching over groups offers to searches."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bounds import FEW, MEDIUM, ONE_DOZEN
from support.cases import BOTH, Case, cluster, table, workload

from recsmith.bounds import lower_bound
from recsmith.bounds.group_branching import TOLERANCE, LeastLimits, least_fixed_point
from recsmith.bounds.linear_bounds import SelectionLimits, mean_linear_bound
from recsmith.bounds.table_totals import TableTotals
from recsmith.clusters import Disk
from recsmith.problems import Space

STEPS = st.lists(st.tuples(st.floats(1e-9, 10), st.floats(0, 10)), max_size=5)


@FEW
@given(MEDIUM)
def test_promising_limits_name_groups_that_tables_can_use_and_the_last_allows_everything(case: Case) -> None:
    evaluator = case.evaluator
    *promising, everything = lower_bound(evaluator).promising
    assert replace(everything, limit=math.inf) == SelectionLimits()
    totals = TableTotals(evaluator)
    for limits in promising:
        assert limits.groups is not None
        assert limits.groups.shape == (evaluator.groups,)
        assert limits.groups.any()
        assert np.isfinite(totals.per_table(SelectionLimits(groups=limits.groups)).value).all()


@pytest.mark.parametrize("model", BOTH)
def test_one_kind_of_table_has_one_promising_limit_of_its_group(model: str) -> None:
    case = Case(workload(table("a", 100, 8)), cluster(2), Space(types=("table_wise",)), cost_model=model)
    first, everything = lower_bound(case.evaluator).promising
    assert first.groups is not None
    assert first.groups.tolist() == [True]
    assert everything.groups is None


@given(st.one_of(st.just(0.0), st.floats(1e-6, 10)), STEPS)
def test_the_fixed_point_is_the_smallest_solution(start: float, steps: list[tuple[float, float]]) -> None:
    """Of a function that falls by steps: the answer needs at least itself, and a little more is a solution."""

    def needed(z: float) -> float:
        return start + sum(height for place, height in steps if z < place)

    found = least_fixed_point(needed)
    assert found is not None
    assert found * (1 - 1e-12) <= needed(found)
    above = found * (1 + 2 * TOLERANCE) + 1e-11
    assert needed(above) <= above


def test_a_function_that_is_infinite_throughout_has_no_fixed_point() -> None:
    assert least_fixed_point(lambda _: math.inf) is None


def test_tables_that_outweigh_all_devices_have_no_limits() -> None:
    case = Case(workload(table("a", 1000, 8), table("b", 1000, 8)), cluster(1, hbm=50_000))
    evaluator = case.evaluator
    limits = LeastLimits(evaluator, mean_linear_bound(evaluator))
    assert limits.of_groups(np.ones(evaluator.groups, dtype=bool), 0.0, math.inf) is None


@ONE_DOZEN
@given(MEDIUM)
def test_limits_satisfy_the_inequality_and_what_is_selected_keeps_them(case: Case) -> None:
    evaluator = case.evaluator
    least_limits = LeastLimits(evaluator, mean_linear_bound(evaluator))
    everything = np.ones(evaluator.groups, dtype=bool)
    limits = least_limits.of_groups(everything, 0.0, math.inf)
    if limits is None:
        lightest = least_limits.totals.at(SelectionLimits(price=1e6))
        assert not lightest.bytes <= sum(case.cluster.capacities) or not math.isfinite(lightest.value)
        return
    selected = least_limits.selected(limits)
    assert np.isfinite(selected.value).all()
    assert selected.largest.max() <= limits.limit * (1 + 1e-5) + 1e-11
    mean = (float(selected.value.sum()) - limits.price * least_limits.capacity) / least_limits.world
    assert mean <= limits.limit * (1 + 2e-3) + 1e-11  # the penalty on ties is in the value


@pytest.mark.parametrize("high", [1e-9, math.inf])
def test_local_pieces_stay_below_high(high: float) -> None:
    case = Case(workload(table("a", 1000, 64, 50.0), batch_size=1000), cluster(2), cost_model="analytic")
    evaluator = case.evaluator
    least_limits = LeastLimits(evaluator, mean_linear_bound(evaluator))
    limits = least_limits.of_groups(np.ones(evaluator.groups, dtype=bool), 0.0, high)
    assert limits is not None
    assert (limits.local, limits.groups is not None) == (high, True)
    assert least_limits.selected(limits).largest.max() <= high


@pytest.mark.parametrize("share", [0.25, 0.3])  # on disk they need 0.23: caches of a fifth, and the state of all rows
def test_memory_is_priced_where_it_suffices_only_beside_slow_pieces(share: float) -> None:
    """Below some step time no choice fits, and so no price: the one that counts is found beyond."""
    tables = table("giant", 1_000_000, 64, 300.0), *(table(f"t{i}", 100_000, 64, 20.0) for i in range(20))
    total = sum(each.weight_bytes for each in tables)
    stored = cluster(4, hbm=int(total * share / 4), ssd_bytes_per_host=2**40, disk=Disk(bandwidth=6e9, reads_per_s=8e5))
    space = Space(kernels=("fused", "dense", "key_value"))
    plan = Case(workload(*tables, batch_size=64), stored, space, cost_model="analytic").plan("cost_greedy").plan
    assert plan.bound.value_s is not None
    assert 0.7 * plan.cost.total_s <= plan.bound.value_s <= plan.cost.total_s
