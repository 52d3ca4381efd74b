"""Tables with optimizers of their own: state in both accountings, fusion groups, prices and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import recsmith
from recsmith.clusters import load_cluster, sharding_group
from recsmith.errors import UsageError
from recsmith.planning.simulate import price_plan
from recsmith.plans import Plan, inexact_tables
from recsmith.plans.check import check_one_optimizer
from recsmith.problems import Space
from recsmith.problems.problem import check_replicated
from recsmith.workloads import Feature, Table, Workload

ROWS, DIM = 10_000, 64


def a_workload(*optimizers: Any, batch_size: int = 512) -> Workload:
    tables = tuple(
        Table(name=f"t{at}", num_embeddings=ROWS, embedding_dim=DIM, optimizer=each,
              features=(Feature(name=f"f{at}", pooling_factor=8),))
        for at, each in enumerate(optimizers)
    )  # fmt: skip
    return Workload(batch_size=batch_size, optimizer="rowwise_adagrad", tables=tables)


def planned(workload: Workload, cluster: str = "h100:1") -> Plan:
    return recsmith.plan(workload, cluster, planner="size_greedy").plan


@pytest.mark.parametrize("cluster", ["h100:1", "cpu:1"])
def test_memory_has_the_state_of_each_table(cluster: str):
    def held(*optimizers: str | None) -> int:
        return planned(a_workload(*optimizers), cluster).cost.per_device[0].hbm_bytes

    one, two = held(None, None), held(None, "adagrad")
    assert two - one == ROWS * (DIM - 1) * 4
    assert held("sgd", "adagrad") - two == -ROWS * 4
    assert held("rowwise_adagrad", None) == one


def test_tables_of_two_optimizers_are_two_kernels():
    workload = a_workload(None, "adagrad")
    alike = planned(replace(workload, tables=tuple(replace(each, optimizer=None) for each in workload.tables)))
    both = planned(workload)
    for model in ("analytic", "fitted", "best"):
        one, two = (price_plan(each, model) for each in (alike, both))
        assert two.per_device[0].backward_compute_s > one.per_device[0].backward_compute_s, model
    own = tuple(replace(each, optimizer="rowwise_adagrad") for each in workload.tables)
    named = planned(replace(workload, tables=own))
    assert named.cost == alike.cost, "naming the workload's own changes nothing"


def test_columns_are_split_exactly_by_table():
    workload = a_workload(None, "adagrad")
    plan = planned(workload, "h100:2")
    halves = {"sharding_type": "column_wise", "ranks": (0, 1), "widths": (DIM // 2, DIM // 2)}
    split = tuple(replace(each, **halves) for each in plan.placements)  # type: ignore[arg-type]
    assert inexact_tables(replace(plan, placements=split)) == ["t0"]


def test_a_file_keeps_them_and_what_trains_by_one_refuses_them(tmp_path: Path):
    workload = a_workload(None, "adagrad")
    recsmith.save_workload(workload, tmp_path / "tables.json")
    assert recsmith.load_workload(tmp_path / "tables.json") == workload
    assert workload.optimizers == ("rowwise_adagrad", "adagrad")
    with pytest.raises(UsageError, match="table 't1' has optimizer adagrad, and the workload rowwise_adagrad"):
        check_one_optimizer(planned(workload))
    with pytest.raises(UsageError, match="optimizer lamb in a 2D job"):
        check_replicated(a_workload(None, "lamb"), sharding_group(load_cluster("h100:8x2"), 8), Space())
