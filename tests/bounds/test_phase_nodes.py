"""Splits of nodes: both halves together are the whole."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import Case, cluster, table, workload

from recsmith.bounds.groups import GroupCosts
from recsmith.bounds.phase_nodes import (
    FEW_TABLES,
    FINE,
    NARROWER,
    Multipliers,
    PhaseNode,
    PhaseRanges,
    least_product,
    split_by_group,
    split_by_range,
    split_by_table,
    stacked,
)

ENDS = st.tuples(st.floats(0, 10), st.floats(0, 10)).map(sorted)


def _node(least: list[list[float]], ready: tuple[float, float] = (0.0, 1.0), value: float = 1.0) -> PhaseNode:
    """A node of tables with these least prices in each group, all of which are open and none paid."""
    seconds = np.array(least)
    groups = seconds.shape[1]
    multipliers = Multipliers(1.0, 1.0, 0.0, np.ones((groups, 1)), 0)
    return PhaseNode(
        value, 0, PhaseRanges(ready, (0.0, 0.0)), np.isfinite(seconds), np.zeros(groups, dtype=bool), multipliers,
        0.5, seconds,
    )  # fmt: skip


@given(st.floats(0, 1), st.floats(0, 1))
def test_halves_of_a_range_meet_in_between(low: float, width: float) -> None:
    node = _node([[1.0]], (low, low + width))
    pairs = split_by_range(node)
    assert len(pairs) == (node.ranges.ready[1] - low > FINE)
    for below, above in pairs:
        (start, middle), (again, end) = below.ranges.ready, above.ranges.ready
        assert (start, middle, end) == (low, again, low + width)
        assert start < middle < end


@given(ENDS, ENDS)
def test_the_wider_range_is_split_and_no_much_narrower_one(ready: list[float], rest: list[float]) -> None:
    node = _node([[1.0]])
    node.ranges = PhaseRanges((ready[0], ready[1]), (rest[0], rest[1]))
    widths = {"ready": ready[1] - ready[0], "rest": rest[1] - rest[0]}
    wider, narrower = sorted(widths, key=lambda name: -widths[name])
    split = [pair[0].path[-1].split for pair in split_by_range(node)]
    assert (wider in split) == (widths[wider] > FINE)
    assert narrower not in split or widths[narrower] > NARROWER * widths[wider]


def test_the_most_expensive_unpaid_group_is_closed_or_paid() -> None:
    case = Case(workload(table("a", 100, 8), table("b", 100, 8)), cluster(2), cost_model="analytic")
    costs = GroupCosts(case.evaluator, 1e-5)
    groups = case.evaluator.groups
    node = _node([[float(g != group) for g in range(groups)] for group in (0, 1)], value=1e-6)
    dearest = int(costs.added(node.paid)[:2].argmax())
    ((closed, paid),) = split_by_group(node, costs, {})
    assert (~closed.open).nonzero()[1].tolist() == [dearest] * 2
    assert np.flatnonzero(paid.paid).tolist() == [dearest]
    assert paid.open.all()
    assert split_by_group(replace(node, paid=np.arange(groups) < 2), costs, {}) == []


def test_a_table_that_costs_the_same_both_ways_is_spread_or_not() -> None:
    """Group 1 spans the world. Table 0 is tied, table 1 is not, table 2 has one group only."""
    node = _node([[1.0, 1.0], [0.1, 5.0], [2.0, np.inf]])
    worldwide = np.array([False, True])
    ((spread, placed),) = split_by_table(node, worldwide, np.ones(3, dtype=bool))[:1]
    assert spread.open.tolist() == [[True, False], [True, True], [True, False]]
    assert placed.open.tolist() == [[False, True], [True, True], [True, False]]
    assert ((spread.open | placed.open) == node.open).all()


@pytest.mark.parametrize(("others", "first"), [(0, 0), (FEW_TABLES, 1)])
def test_of_many_tables_those_are_split_first_that_cost_nearly_the_same_both_ways(others: int, first: int) -> None:
    """Table 0 is heavy and costs a tenth more where it spans the world; table 1 is lighter and costs the same."""
    node = _node([[10.0, 11.0], [5.0, 5.0], *others * [[0.1, 1.0]]])
    pairs = split_by_table(node, np.array([False, True]), np.ones(2 + others, dtype=bool))
    assert [pair[0].path[-1].of for pair in pairs] == [first, 1 - first]


def test_a_table_that_others_are_like_is_not_split() -> None:
    """Of two that are alike, one may span the world and the other not: neither half would allow that."""
    node = _node([[1.0, 1.0], [1.0, 1.0]])
    pairs = split_by_table(node, np.array([False, True]), np.array([False, True]))
    assert [pair[0].open.tolist() for pair in pairs] == [[[True, True], [True, False]]]


@given(st.floats(-5, 5), ENDS, st.floats(0, 1))
def test_the_least_product_is_below_every_product(factor: float, ends: list[float], part: float) -> None:
    found = float(least_product(np.array([factor]), np.array([ends]))[0])
    assert found in (factor * ends[0], factor * ends[1])
    assert found <= factor * ((1 - part) * ends[0] + part * ends[1]) + 1e-9


def test_nodes_side_by_side_keep_their_order() -> None:
    mixes = np.full((3, 2), 0.5), np.array([[1.0, 0.0]] * 3)
    ranges = [PhaseRanges((0.0, 1.0), (0.0, 2.0)), PhaseRanges((0.5, 1.0), (1.0, 2.0))]
    nodes = stacked(ranges, [Multipliers(1.0, 2.0, 0.0, mixes[0], 0), Multipliers(3.0, 4.0, 5.0, mixes[1], 1)])
    assert nodes.ready.tolist() == [[0, 1], [0.5, 1]]
    assert nodes.rest.tolist() == [[0, 2], [1, 2]]
    assert (nodes.ready_multiplier.tolist(), nodes.rest_multiplier.tolist()) == ([1, 3], [2, 4])
    assert (nodes.byte_price.tolist(), nodes.plane.tolist()) == ([0, 5], [0, 1])
    assert nodes.mix.shape == (2, 3, 2)
