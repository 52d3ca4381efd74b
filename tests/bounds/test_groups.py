"""Groups that a best plan can do without: which, and that the best plan stays as good."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bounds import ANALYTIC, ONE_DOZEN
from support.cases import Case, brute_force, cluster, table, workload

from recsmith.bounds.groups import GroupCosts, demands_no_more, groups_dominated_by_type
from recsmith.problems import Space
from recsmith.sharding import SHARDING_TYPES, Span

ROW = st.lists(st.floats(0, 10), min_size=3, max_size=3)
OPENING = 1e-5


def dominated_types(case: Case) -> set[str]:
    modes, dominated = case.problem.modes, groups_dominated_by_type(case.evaluator)
    return {SHARDING_TYPES[kind].name for kind in np.unique(modes.type[dominated[case.evaluator.group]]).tolist()}


@pytest.mark.parametrize(("hosts", "more"), [(1, {"table_column_wise", "table_row_wise"}), (2, set[str]())])
def test_on_one_host_types_of_hosts_are_replaced_by_those_of_ranks(hosts: int, more: set[str]) -> None:
    case = Case(workload(table("a", 100, 8), table("b", 1000, 8)), cluster(2, hosts), cost_model="analytic")
    assert more <= dominated_types(case)
    assert "table_wise" in dominated_types(case)
    assert dominated_types(case).isdisjoint({"column_wise", "row_wise", "data_parallel", "grid_shard"})


def test_table_wise_is_needed_where_columns_cannot_stay_together() -> None:
    """TorchRec's widths split 256 columns; sequences of a collection share a width."""
    space = Space(types=("table_wise", "column_wise"), widths="torchrec")
    assert not dominated_types(Case(workload(table("a", 100, 256)), cluster(2), space, cost_model="analytic"))
    sequences = workload(table("a", 100, 8, pooling="none"))
    assert not dominated_types(Case(sequences, cluster(2), Space(types=space.types), cost_model="analytic"))


def test_the_best_plan_without_dominated_types_costs_as_little() -> None:
    tables = workload(table("a", 100, 8), table("b", 1000, 12, 20.0), batch_size=1000)
    case = Case(tables, cluster(2), cost_model="analytic")
    gone = dominated_types(case)
    left = tuple(kind.name for kind in SHARDING_TYPES if kind.name not in gone)
    fewer = Case(tables, cluster(2), Space(types=left), cost_model="analytic")
    assert gone
    assert brute_force(fewer).least_s == pytest.approx(brute_force(case).least_s, rel=1e-9)


@given(ROW, ROW, st.sampled_from([0.0, 1e-9]))
def test_no_more_is_no_more_in_any_respect(theirs: list[float], mine: list[float], rounding: float) -> None:
    found = bool(demands_no_more(np.array(theirs), np.array(mine), rounding))
    assert found == all(a <= b * (1 + rounding) for a, b in zip(theirs, mine, strict=True))


@ONE_DOZEN
@given(ANALYTIC, st.integers(0, 10**6))
def test_a_group_adds_what_it_says(case: Case, seed: int) -> None:
    costs, groups = GroupCosts(case.evaluator, OPENING), case.evaluator.groups
    paid = np.random.default_rng(seed).random(groups) < 0.5
    added = costs.added(paid)
    for group in np.flatnonzero(~paid).tolist():
        more = paid.copy()
        more[group] = True
        np.testing.assert_allclose(costs.certain(more) - costs.certain(paid), added[group], rtol=1e-9, atol=1e-18)


@ONE_DOZEN
@given(ANALYTIC)
def test_each_group_of_the_world_or_of_a_single_device_opens_and_all_others_open_once(case: Case) -> None:
    evaluator, modes = case.evaluator, case.problem.modes
    world = {int(evaluator.group[m]) for m in np.flatnonzero(modes.span == Span.WORLD)}
    everything = np.ones(evaluator.groups, dtype=bool)
    single = case.cluster.world_size == 1
    openings = evaluator.groups if single else len(world) + (len(world) < evaluator.groups)
    found = GroupCosts(evaluator, OPENING).certain(everything) - GroupCosts(evaluator, 0.0).certain(everything)
    np.testing.assert_allclose(found, openings * OPENING, rtol=1e-9)
    assert GroupCosts(evaluator, OPENING).certain(~everything) == 0
