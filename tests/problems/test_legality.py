"""What holds between tables: one more table's arrangements are judged at once, and too few places are counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cluster, table, workload

from recsmith.problems import Apart, Constraints, PerRank, TableRule, build_problem
from recsmith.problems.legality import Group

COUNTS = st.lists(st.integers(0, 2), min_size=4, max_size=4)


@given(
    st.sampled_from(("together", "tables", "shards")),
    st.integers(1, 3),
    st.sampled_from((1, 2)),
    st.lists(COUNTS, min_size=3, max_size=3),
    st.lists(COUNTS.filter(any), min_size=1, max_size=4),  # a table that is placed has a shard
)
def test_a_table_more_holds_where_the_whole_holds(kind, most: int, local: int, placed, ways) -> None:
    group, on = Group(kind, np.array([0, 2]), most, local), np.array(placed)
    one_by_one = [group.holds(np.stack([on[0], on[1], np.array(way)])) for way in ways]
    assert group.holds_with(on, 2, np.array(ways)).tolist() == one_by_one


TABLES = workload(*(table(f"t{i}", 1000, 32) for i in range(5)))


@pytest.mark.parametrize(
    ("constraints", "enough"),
    [
        (Constraints(per_rank=(PerRank(max_tables=1),)), False),
        (Constraints(per_rank=(PerRank(max_tables=2),)), True),
        (Constraints(per_rank=(PerRank(tables=("t[0-3]",), max_tables=1),)), True),
        (Constraints(per_rank=(PerRank(max_shards=1),)), False),
        (Constraints(apart=(Apart(tables=("t0", "t1"), per="host"),)), True),
        (Constraints(apart=(Apart(tables=("t0", "t1", "t2"), per="host"),)), False),
        (Constraints(rules=(TableRule(tables="t[0-3]", ranks=(0, 1, 2)),), per_rank=(PerRank(max_tables=1),)), False),
        (Constraints(rules=(TableRule(tables="t[01]", ranks=(2,)),), apart=(Apart(tables=("t0", "t1")),)), False),
    ],
)
def test_more_tables_than_places_are_counted(constraints: Constraints, enough: bool) -> None:
    assert build_problem(TABLES, cluster(2, 2), None, constraints).legality.has_places is enough
