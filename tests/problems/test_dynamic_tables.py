"""Tables of ids without end in problems: where they may be, and what their ids take."""

from dataclasses import replace

import numpy as np
import pytest
from support.printed import text_of

from recsmith.clusters import load_cluster
from recsmith.errors import Infeasible, PlanMismatch, UsageError
from recsmith.planning import plan
from recsmith.plans import check_placements, plan_from_raw, plan_to_raw
from recsmith.problems import Constraints, build_problem
from recsmith.problems.footprint import footprint_of, memory_taken
from recsmith.reports.plans import plan_report
from recsmith.workloads import Dynamic, Feature, Table, Workload

ROWS = 100_000


def workload(dynamic: Dynamic | None, rows: int = ROWS) -> Workload:
    tables = tuple(
        Table(
            name=name, num_embeddings=rows, embedding_dim=16, dynamic=dynamic if name == "user" else None,
            features=(Feature(name=name, pooling_factor=2.0),),
        )
        for name in ("user", "item")
    )  # fmt: skip
    return Workload(batch_size=32, optimizer="rowwise_adagrad", tables=tables)


def placed(dynamic: Dynamic | None, cluster: str):
    return plan(workload(dynamic), cluster, planner="cost_greedy").plan


def test_on_gpus_they_are_row_wise_alone() -> None:
    made = placed(Dynamic(evict="lfu"), "h100:4")
    assert {each.table: each.sharding_type for each in made.placements}["user"] == "row_wise"
    moved = tuple(
        replace(each, sharding_type="table_wise", ranks=(0,)) if each.table == "user" else each
        for each in made.placements
    )
    with pytest.raises(PlanMismatch, match=r"shards what gives ids their rows row_wise on cuda, not table_wise"):
        check_placements(moved, made.workload, made.cluster)
    assert plan_from_raw(plan_to_raw(made), "plan").workload.tables == made.workload.tables


def test_torchrec_evicts_by_no_age() -> None:
    with pytest.raises(UsageError, match=r"managed collisions on cuda evict by lfu or lru, and dynamic.evict is age"):
        placed(Dynamic(evict="age"), "h100:2")


@pytest.mark.parametrize(("cluster", "each"), [("h100:2", 24), ("cpu:2", Dynamic(admit=2).row_bytes)])
def test_ids_of_rows_take_memory(cluster: str, each: int) -> None:
    made = placed(Dynamic(admit=2), cluster)
    same = {}
    for name, given in (("with", made.workload), ("without", workload(None))):
        problem = build_problem(given, made.cluster)
        same[name] = memory_taken(problem, footprint_of(problem, made.placements))[0]
    kind = next(one for one in made.placements if one.table == "user")
    copies = len(kind.ranks) if kind.sharding_type != "row_wise" else 1
    assert (same["with"] - same["without"]).sum() == ROWS * each * copies
    plain = build_problem(made.workload, made.cluster, None, Constraints(memory="torchrec"))
    other = build_problem(workload(None), made.cluster, None, Constraints(memory="torchrec"))
    without, beside = (memory_taken(one, footprint_of(one, made.placements))[0] for one in (plain, other))
    assert np.array_equal(without, beside)


def test_they_decide_whether_a_table_fits() -> None:
    cluster = load_cluster("h100:1").with_memory(hbm_bytes=2 * 100_000 * 68 + 2**20, reserve_bytes=0)
    assert plan(workload(None), cluster, planner="cost_greedy").plan
    with pytest.raises(Infeasible):
        plan(workload(Dynamic()), cluster, planner="cost_greedy")


def test_reports_tell_rows_and_rule(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(text_of(plan_report(placed(Dynamic(evict="lfu", admit=3), "h100:2")), capsys).split())
    assert "1 table of ids without end: 'user', 100,000 rows, evict lfu, a row from the 3rd lookup on." in text
    assert "On GPUs they are row_wise alone" in text
