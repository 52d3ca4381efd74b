"""TorchRec's own planner, as comparisons run it: its settings, its limits, and the best of several."""

import time
from dataclasses import replace

import pytest
from support.build import table, workload

from recsmith.adapters.torchrec_settings import PROPOSERS, STOCK, TorchRecSettings
from recsmith.bench.plans import attempt
from recsmith.bench.tasks import SPACE, DimRow, draw_tasks
from recsmith.clusters import load_cluster
from recsmith.costs import cost_model, step_seconds
from recsmith.errors import NoPlanFound, PlanMismatch
from recsmith.learning.policies.tasks import PlacementTask
from recsmith.plans import check_placements
from recsmith.problems import Constraints, Space, build_problem, footprint_of

pytestmark = pytest.mark.usefixtures("torchrec")


@pytest.fixture(params=[("cpu", 4096), ("h100", 65_536)], scope="module")
def task(request: pytest.FixtureRequest) -> PlacementTask:
    return draw_tasks(DimRow(devices=4, max_dim=16), 1, 2026, *request.param).tasks[0]


@pytest.mark.parametrize("word", ["torchrec", "torchrec_best"])
def test_its_plans_are_placements_of_the_space(task: PlacementTask, word: str):
    found = attempt(word, task, "analytic", 0)
    assert found.error is None
    check_placements(found.placements, task.workload, task.cluster)
    assert [placement.table for placement in found.placements] == sorted(t.name for t in task.workload.tables)
    footprint_of(build_problem(task.workload, task.cluster, SPACE), found.placements)


def test_without_room_it_finds_no_plan(task: PlacementTask):
    tight = replace(task, cluster=task.cluster.with_memory(2**20))
    found = attempt("torchrec", tight, "analytic", 0)
    assert found.placements == ()
    assert (found.error or "").startswith("TorchRec's planner: ")


@pytest.mark.parametrize("task", [("h100", 65_536)], indirect=True)
def test_stock_is_the_planner_that_somebody_gets_who_changes_nothing(task: PlacementTask):
    from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology

    from recsmith.adapters import torchrec_planner

    topology = Topology(world_size=4, local_world_size=4, compute_device="cuda", hbm_cap=2**40)
    theirs = EmbeddingShardingPlanner(topology=topology, storage_reservation=torchrec_planner._reservation(STOCK))
    ours = torchrec_planner._planner(task.workload, task.cluster, SPACE, STOCK)
    assert [type(each) for each in ours._proposers] == [type(each) for each in theirs._proposers]
    assert vars(ours._partitioner) == vars(theirs._partitioner)
    for name in ("hbm_mem_bw", "ddr_mem_bw", "intra_host_bw", "inter_host_bw", "hbm_to_ddr_mem_bw"):
        assert getattr(ours._topology, name) == getattr(topology, name)
    assert all(each.min_partition is None for each in (ours._constraints or {}).values())


@pytest.mark.parametrize("task", [("h100", 65_536)], indirect=True)
def test_its_own_rating_is_what_cost_model_torchrec_says_of_the_plan(task: PlacementTask):
    from recsmith.adapters.torchrec_planner import plan_with_torchrec, rate_with_torchrec

    cluster = load_cluster("torchrec-default:4").with_memory(2**36)
    problem = build_problem(task.workload, cluster, SPACE, Constraints(memory="torchrec"))
    placements = plan_with_torchrec(task.workload, cluster, SPACE)
    step_s = step_seconds(cost_model("torchrec").compile(problem), footprint_of(problem, placements))
    assert rate_with_torchrec(task.workload, cluster, SPACE) == pytest.approx(step_s, rel=1e-6)


@pytest.mark.parametrize("task", [("h100", 65_536)], indirect=True)
def test_narrow_shards_may_be_for_tables_that_read_much_alone(task: PlacementTask):
    from recsmith.adapters import torchrec_planner

    some = TorchRecSettings(min_partition=4, heavy=0.5)
    found = torchrec_planner._limits(task.workload, task.cluster, SPACE, some)
    narrow = {name for name, each in found.items() if each.min_partition == 4}
    read = {t.name: t.embedding_dim * t.features[0].pooling_factor for t in task.workload.tables}
    assert narrow == {name for name, values in read.items() if values >= 0.5 * sum(read.values()) / 4}
    assert 0 < len(narrow) < len(found)


@pytest.mark.parametrize("task", [("h100", 65_536)], indirect=True)
def test_settings_reach_the_planner(task: PlacementTask):
    from recsmith.adapters import torchrec_planner

    settings = TorchRecSettings(
        bandwidths="cluster", min_partition=8, proposers="uniform", order="perf", types=("column_wise",), timeout_s=7,
        reserve="heuristic",
    )  # fmt: skip
    with torchrec_planner.quiet():
        made = torchrec_planner._planner(task.workload, task.cluster, SPACE, settings)
    assert made._topology.hbm_mem_bw * 1000 == pytest.approx(3.35e12)
    assert made._topology.intra_host_bw * 1000 == pytest.approx(450e9)
    assert [type(each).__name__ for each in made._proposers] == ["UniformProposer"]
    assert made._timeout_seconds == 7
    assert vars(made._partitioner)["_sort_by"].value == "perf"
    assert type(made._storage_reservation).__name__ == "HeuristicalStorageReservation"
    limits = (made._constraints or {})[task.workload.tables[0].name]
    assert (limits.sharding_types, limits.min_partition) == (["column_wise"], 8)
    assert set(torchrec_planner.PROPOSERS) == set(PROPOSERS)


def test_a_limit_that_is_not_reached_changes_no_plan():
    from recsmith.adapters.torchrec_planner import plan_with_torchrec

    task = draw_tasks(DimRow(devices=4, max_dim=4), 1, 2026, "h100", 65_536).tasks[0]
    limited = plan_with_torchrec(task.workload, task.cluster, SPACE, replace(STOCK, proposer_cpu_s=1000.0))
    assert limited == plan_with_torchrec(task.workload, task.cluster, SPACE, STOCK)


def test_it_is_asked_for_no_more_after_its_seconds():
    from torchrec.distributed.planner.proposers import UniformProposer
    from torchrec.distributed.planner.types import ShardingOption

    from recsmith.adapters.torchrec_planner import LimitedProposer

    class Endless(UniformProposer):
        def propose(self) -> list[ShardingOption] | None:
            return []

    made = LimitedProposer(Endless(), 0.01)
    made.load([])
    assert made.propose() == []
    ends = time.process_time() + 0.02
    while time.process_time() < ends:
        pass
    assert made.propose() is None


SETTINGS = (STOCK, replace(STOCK, types=("column_wise",), min_partition="half"), replace(STOCK, order="perf"))


@pytest.mark.parametrize("task", [("h100", 65_536)], indirect=True)
def test_it_is_the_least_by_the_judge(task: PlacementTask):
    from recsmith.adapters.torchrec_planner import best_of_settings, plan_with_torchrec

    evaluator = cost_model("analytic").compile(build_problem(task.workload, task.cluster, SPACE))
    found, settings = best_of_settings(evaluator, SETTINGS)
    steps = {
        each: step_seconds(
            evaluator,
            footprint_of(evaluator.problem, plan_with_torchrec(task.workload, task.cluster, SPACE, each)),
        )
        for each in SETTINGS
    }
    assert step_seconds(evaluator, footprint_of(evaluator.problem, found)) == min(steps.values())
    assert steps[settings] == min(steps.values()) < max(steps.values())


@pytest.mark.parametrize("task", [("h100", 65_536)], indirect=True)
def test_without_a_plan_under_any_setting_there_is_none(task: PlacementTask):
    from recsmith.adapters.torchrec_planner import best_of_settings

    tight = build_problem(task.workload, task.cluster.with_memory(2**20), SPACE)
    with pytest.raises(NoPlanFound, match="under any of 3 settings"):
        best_of_settings(cost_model("analytic").compile(tight), SETTINGS)


def test_types_that_no_table_has_here_are_not_offered():
    """TorchRec would put the table in grid_shard on one host, which no plan here has: the setting would be lost."""
    from recsmith.adapters.torchrec_planner import best_of_settings, plan_with_torchrec

    tables = workload(table("t", 1_000_000, 256, pooling_factor=100.0), batch_size=4096, optimizer="rowwise_adagrad")
    space = Space(types=("table_wise", "grid_shard"), widths="torchrec")
    problem = build_problem(tables, load_cluster("h100:2"), space)
    with pytest.raises(PlanMismatch, match="grid_shard has two ranges of columns or more here"):
        plan_with_torchrec(problem.workload, problem.cluster, space, STOCK)
    (found,), settings = best_of_settings(cost_model("analytic").compile(problem), (STOCK,))
    assert (found.sharding_type, settings) == ("table_wise", STOCK)
