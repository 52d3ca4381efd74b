"""The verb `plan`: what it refuses, and what it starts from."""

from typing import Any

import pytest
from support.cases import Case, cluster, table, workload

import recsmith
from recsmith.errors import PlanMismatch, UsageError
from recsmith.planning import PLANNERS, plan
from recsmith.problems import Constraints, Space, TableRule
from recsmith.workloads.sample import sample_workload

WORKLOAD = workload(table("a", 1000, 8), table("b", 500, 16), table("c", 10, 4))
CASE = Case(WORKLOAD, cluster(2))


def test_unknown_planners_and_cost_models_are_named_with_the_nearest_known() -> None:
    with pytest.raises(UsageError, match="did you mean 'size_greedy'"):
        plan(WORKLOAD, CASE.cluster, planner="sizegreedy")
    with pytest.raises(UsageError, match="did you mean 'torchrec'"):
        plan(WORKLOAD, CASE.cluster, cost_model="torchrek")


def test_names_stand_for_workloads_and_clusters() -> None:
    result = recsmith.plan("criteo-kaggle", "h100:2")
    assert result.plan.cluster.world_size == 2
    assert len(result.plan.placements) == 26


def test_plans_keep_tables_in_order_of_names() -> None:
    names = [placement.table for placement in CASE.plan().plan.placements]
    assert names == [t.name for t in CASE.plan().plan.workload.tables] == sorted(names)


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_start_outside_of_the_space_is_refused(planner: str) -> None:
    start = Case(WORKLOAD, cluster(2), Space(types=("column_wise",))).plan().plan
    with pytest.raises(PlanMismatch, match="none of those that may be made"):
        Case(WORKLOAD, cluster(2), Space(types=("table_wise", "row_wise"))).plan(planner, start=start)


def test_a_start_with_other_widths_than_the_space_is_refused() -> None:
    wide = Case(workload(table("a", 10_000, 8)), cluster(2, hbm=250_000), Space(types=("column_wise",)))
    start = wide.plan().plan
    assert start.placements[0].widths == (4, 4)
    rules = Constraints(rules=(TableRule(tables="a", min_width=8),))
    with pytest.raises(PlanMismatch, match="its rules ask for 8 at least"):
        Case(wide.workload, cluster(2), Space(types=("column_wise",)), rules).plan(start=start)
    with pytest.raises(PlanMismatch, match="none of those that may be made"):
        Case(wide.workload, cluster(2), Space(types=("column_wise",), widths="torchrec")).plan(start=start)


def test_a_start_that_does_not_fit_is_refused() -> None:
    with pytest.raises(PlanMismatch, match="more memory than the cluster has"):
        Case(WORKLOAD, cluster(2, hbm=45_000)).plan(start=_all_on_rank_0())


def test_a_start_for_other_tables_is_refused() -> None:
    with pytest.raises(PlanMismatch, match="not in the workload"):
        Case(workload(table("other", 10, 4)), cluster(2)).plan(start=CASE.plan().plan)


def _all_on_rank_0() -> recsmith.Plan:
    return Case(WORKLOAD, cluster(1), Space(types=("table_wise",))).plan().plan


def test_host_memory_of_every_host_is_kept() -> None:
    """10 rows in 4 blocks are 3 + 3 and 3 + 1: the first host holds more than the last."""
    rows = workload(table("a", 10, 8, 0.0), table("b", 10, 8, 0.0), optimizer="sgd")
    space = Space(types=("row_wise",), kernels=("fused_uvm",))
    two_on_first_host = 2 * 6 * 8 * 4
    assert Case(rows, cluster(2, 2, ddr_bytes_per_host=two_on_first_host), space).plan().plan.gap == 0
    with pytest.raises(recsmith.RecSmithError, match="no plan"):
        Case(rows, cluster(2, 2, ddr_bytes_per_host=two_on_first_host - 1), space).plan()


def test_tables_are_split_until_they_find_room() -> None:
    """One table, and devices of five and one eighths of it: neither halves nor quarters fit, eighths do."""
    eighths = workload(table("a", 1000, 32, 0.0), optimizer="sgd", batch_size=1)
    case = Case(eighths, cluster(3, hbm=(80_500, 32_300, 16_100)), Space(types=("column_wise",)))
    for planner in PLANNERS:
        assert len(case.plan(planner).plan.placements[0].widths) > 4


def test_sequence_tables_of_one_collection_are_not_cut_into_different_widths() -> None:
    tables = [table(name, 100, dim, pooling="none") for name, dim in (("a", 384), ("b", 256))]
    made = plan(workload(*tables), cluster(4), space=Space(types=("column_wise",), widths="torchrec")).plan
    assert {placement.widths_of(0) for placement in made.placements} == {(128, 128, 128), (128, 128)}
    tables = [table(name, 100, dim, pooling="none") for name, dim in (("a", 64), ("b", 32))]
    made = plan(workload(*tables), cluster(4), space=Space(types=("column_wise",))).plan
    assert {placement.widths_of(32) for placement in made.placements} == {(32, 32), (32,)}
    assert plan(workload(*tables), cluster(4)).plan.gap is not None


def test_a_budget_of_iterations_ends_a_search_that_finds_nothing_more() -> None:
    found = plan("nvidia-tiny", "h100:8", iterations=40)
    assert found.iterations == 40


@pytest.mark.parametrize(
    ("limit", "rule"),
    [
        ({"iterations": 0}, "a search of 0 iterations finds nothing; allow at least 1"),
        ({"iterations": -3}, "a search of -3 iterations"),
        ({"time_limit_s": 0.0}, "a time limit of 0 s leaves no time; give more, for example 10s"),
        ({"time_limit_s": -1.0}, "a time limit of -1 s"),
        ({"time_limit_s": float("nan")}, "a time limit of nan s"),
    ],
)
def test_a_limit_leaves_something_to_do(limit: dict[str, Any], rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        recsmith.plan("criteo-kaggle", "h100:8", **limit)


def test_a_proof_tells_both_ends_and_shares_the_time_limit() -> None:
    heard: list[tuple[float, float]] = []
    workload = sample_workload(14, seed=1)
    found = plan(workload, "h100:4", prove=True, time_limit_s=4.0, on_bound=lambda *ends: heard.append(ends))
    assert heard
    assert all(total == found.plan.cost.total_s >= bound for total, bound in heard)
    bounds = [bound for _, bound in heard]
    assert bounds == sorted(bounds)
    assert found.plan.bound.value_s == pytest.approx(bounds[-1])
