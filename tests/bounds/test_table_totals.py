"""Least totals over every split: never above what options cost, and monotone in the limits."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bounds import TINY
from support.cases import Case, cluster, table, workload

from recsmith.bounds import table_totals
from recsmith.bounds.linear_bounds import SelectionLimits
from recsmith.bounds.relaxation import DEAREST, Relaxation
from recsmith.bounds.table_totals import TableTotals, least_cost, least_cost_and_bytes
from recsmith.problems import Space

COSTS = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 7.0, math.inf]), min_size=1, max_size=9)


@given(TINY, st.sampled_from([0.0, 1e-12, DEAREST]), st.integers(0, 10**6))
def test_splits_of_every_width_are_never_dearer_than_options(case: Case, price_: float, seed: int) -> None:
    limits = SelectionLimits(price=price_, groups=np.random.default_rng(seed).random(case.evaluator.groups) < 0.8)
    totals = TableTotals(case.evaluator)
    least, choice = totals.per_table(limits), Relaxation(case.evaluator).choose(limits)
    assert (least.value <= choice.seconds + price_ * choice.bytes).all()
    assert limits.groups is not None
    found = np.isfinite(least.value)
    assert limits.groups[least.group[found]].all()
    assert totals.at(limits).value == (least.value.sum() if found.all() else math.inf)
    assert totals.at(limits).bytes == least.bytes.sum()


@given(TINY, st.sampled_from([0.3, 1.0, 3.0]), st.sampled_from([0.0, 1e-12]))
def test_totals_fall_as_limits_rise_and_as_groups_are_added(case: Case, share: float, price_: float) -> None:
    totals, everything = TableTotals(case.evaluator), np.ones(case.evaluator.groups, dtype=bool)
    limit = share * float(totals.relaxation.piece_alone.mean())
    limits = SelectionLimits(limit=limit, price=price_)
    free, limited = totals.per_table(SelectionLimits(price=price_)), totals.per_table(limits)
    local = totals.per_table(SelectionLimits(local=limit, price=price_))
    assert (free.value <= local.value).all()
    assert (local.value <= limited.value).all()
    for group in range(case.evaluator.groups):
        fewer = everything.copy()
        fewer[group] = False
        without = totals.per_table(replace(limits, groups=fewer))
        assert (limited.value <= without.value).all()
        same = (limited.group != group) & np.isfinite(limited.value)
        assert (without.value[same] == limited.value[same]).all()
    assert totals.at(replace(limits, groups=everything)) == totals.at(limits)


@given(TINY, st.sampled_from([0.1, 1.0, 10.0]))
def test_a_penalty_is_paid_by_what_spans_the_world(case: Case, penalty: float) -> None:
    """So nothing is cheaper with it, and all that spans it costs as much on every rank."""
    totals = TableTotals(case.evaluator)
    free, penalised = totals.per_table(SelectionLimits()), totals.per_table(SelectionLimits(world_penalty=penalty))
    found = np.isfinite(free.value)
    everywhere = free.everywhere[found] * case.cluster.world_size
    assert (free.value[found] <= penalised.value[found]).all()
    np.testing.assert_array_less(
        penalised.value[found], (free.value[found] + penalty * everywhere) * (1 + 1e-12) + 1e-300
    )
    assert everywhere[everywhere > 0] == pytest.approx(free.value[found][everywhere > 0])


def test_a_grid_has_at_least_two_pieces() -> None:
    """Whole, it would be table_row_wise: a bound that took it so would lie below every plan."""
    space = Space(types=("grid_shard",))
    case = Case(workload(table("t", 5000, 32, 10.0), batch_size=64), cluster(2, hosts=2), space=space)
    options = case.problem.options
    assert options.count.sum(axis=1).tolist() == [2]
    least = TableTotals(case.evaluator).per_table(SelectionLimits())
    np.testing.assert_array_equal(least.value, Relaxation(case.evaluator).option_seconds)


@given(COSTS)
def test_the_cheapest_split_is_the_least_of_all(cost) -> None:
    steps = len(cost)

    @cache
    def least(left: int) -> float:
        return min((cost[size - 1] + least(left - size) for size in range(1, left + 1)), default=0.0)

    size = np.arange(1.0, steps + 1) ** 2
    found, weight = least_cost_and_bytes(np.array([cost]), size[None])
    assert found.tolist() == [least(steps)]
    assert least_cost(np.array([[cost, cost[::-1]]])).shape == (1, 2)
    assert least_cost(np.array([[cost[::-1], cost]]))[0, 1] == least(steps)
    if math.isfinite(least(steps)):
        assert (least(steps), weight[0]) in _all_splits(tuple(cost), tuple(size))


def _all_splits(cost: tuple[float, ...], size: tuple[float, ...]) -> set[tuple[float, float]]:
    """(cost, bytes) of every split of all steps."""
    found = [{(0.0, 0.0)}]
    for filled in range(1, len(cost) + 1):
        found.append({(a + cost[n - 1], b + size[n - 1]) for n in range(1, filled + 1) for a, b in found[filled - n]})
    return found[-1]


@given(COSTS)
def test_very_wide_tables_get_a_bound_below_the_cheapest_split(cost) -> None:
    """With the limit lowered, so that a few steps are many: never above, equal where one width alone is cheapest."""
    costs, size = np.array([cost]), np.arange(1.0, len(cost) + 1)[None]
    exact = least_cost(costs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_totals, "MOST_STEPS", 0)
        bound, (again, weight) = least_cost(costs), least_cost_and_bytes(costs, size)
        even = least_cost(np.full_like(costs, 3.0) * size)
    assert bound.tolist() == again.tolist()
    assert bound[0] <= exact[0] * (1 + 1e-12)
    assert weight.tolist() == pytest.approx([len(cost)])  # as many bytes as steps, whatever the width
    assert even.tolist() == pytest.approx([3.0 * len(cost)])
