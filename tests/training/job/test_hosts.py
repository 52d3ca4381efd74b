"""Plans of fewer hosts: what must move, what moves, and what does not fit."""

from dataclasses import replace
from pathlib import Path

import pytest

import recsmith
from recsmith.errors import Infeasible
from recsmith.jobs.hosts.rounds import HOSTS, HostAgent, HostRound
from recsmith.plans import Plan
from recsmith.problems import Space
from recsmith.workloads import Feature, Table, Workload

pytestmark = pytest.mark.usefixtures("torchrec")
ROWS = (40_000, 70_000, 30_000, 60_000, 50_000, 20_000, 10_000)
DIM = 16


def a_plan(hosts: int = 3, *, types: tuple[str, ...] = ("table_wise",), hbm: int | None = None) -> Plan:
    tables = tuple(
        Table(
            name=f"t{i}", num_embeddings=rows, embedding_dim=DIM, features=(Feature(name=f"t{i}", pooling_factor=3.0),)
        )
        for i, rows in enumerate(ROWS)
    )
    workload = Workload(batch_size=64, optimizer="adagrad", tables=tables)
    cluster = replace(recsmith.load_cluster("h100:2"), hosts=hosts, **({} if hbm is None else {"hbm_bytes": hbm}))
    return recsmith.plan(workload, cluster, cost_model="analytic", space=Space(types=types)).plan  # type: ignore[arg-type]


def held(plan: Plan, ranks: set[int]) -> int:
    rows = {f"t{i}": rows for i, rows in enumerate(ROWS)}
    return sum(rows[each.table] * DIM * 4 for each in plan.placements if {*each.ranks} <= ranks)


def test_what_must_move_is_what_only_lost_ranks_held():
    from recsmith.training.job.hosts import as_now, least_moved

    plan = a_plan()
    assert held(plan, {2, 3}) > 0
    now = as_now(plan, {0: 0, 1: 1, 4: 2, 5: 3})
    assert least_moved(now, 4) == held(plan, {2, 3})
    assert [shard.rows for shard in now.shards()] == [shard.rows for shard in plan.shards()]
    split = a_plan(types=("row_wise",))
    assert least_moved(as_now(split, {0: 0, 1: 1, 4: 2, 5: 3}), 4) == pytest.approx(sum(ROWS) * DIM * 4 / 3, rel=1e-3)
    copies = a_plan(types=("data_parallel",))
    assert least_moved(as_now(copies, {4: 0, 5: 1}), 2) == 0


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_plan_of_the_hosts_that_are_left_moves_little_more_than_must(lost: int):
    from recsmith.plans.diff import moved_bytes
    from recsmith.training import Run, RunData
    from recsmith.training.job.hosts import SPARE, _moving_little, as_now, least_moved, of_fewer_hosts

    plan = a_plan()
    left = [host for host in range(3) if host != lost]
    places = {2 * old + local: 2 * new + local for new, old in enumerate(left) for local in range(2)}
    now, run = as_now(plan, places), Run(data=RunData(train="x", global_batch_size=384), output="x")
    made = _moving_little(of_fewer_hosts(plan, None, run, 4), now, 4)
    assert (made.cluster.world_size, made.workload.batch_size) == (4, 96)
    least = least_moved(now, 4)
    assert least == held(plan, {2 * lost, 2 * lost + 1})
    received = moved_bytes(now, made.placements, made.workload, made.cluster)
    assert least <= sum(size for shards in received.values() for _, size in shards) <= SPARE * least


def test_tables_that_do_not_fit_the_hosts_that_are_left_are_refused():
    from recsmith.training import Run, RunData
    from recsmith.training.job.hosts import _moving_little, as_now, of_fewer_hosts

    plan = a_plan(hbm=int(1.1 * max(each.hbm_bytes for each in a_plan().cost.per_device)))
    run = Run(data=RunData(train="x", global_batch_size=384), output="x")
    with pytest.raises(Infeasible, match="need"):
        _moving_little(of_fewer_hosts(plan, None, run, 2), as_now(plan, {2: 0, 3: 1}), 2)


def test_ranks_are_found_by_the_agents_of_their_hosts(tmp_path: Path):
    from recsmith.training.job.hosts import _places, note_running

    def there(*ids: str) -> HostRound:
        return HostRound(
            number=1, hosts=tuple(HostAgent(id=each, name=each, address="h", port=1, ranks=2) for each in ids)
        )

    plan = a_plan()
    (tmp_path / HOSTS).mkdir()
    note_running(tmp_path / HOSTS, there("a", "b", "c"), plan)
    assert _places(tmp_path / HOSTS, plan, there("c", "a", "d")) == {0: 2, 1: 3, 4: 0, 5: 1}
    assert _places(tmp_path / HOSTS, a_plan(types=("row_wise",)), there("c")) == {rank: rank for rank in range(6)}


def test_what_is_told_of_a_change():
    from recsmith.training.job.hosts import HostChange

    change = HostChange(
        hosts=("a", "c"), lost=("b",), joined=(), plan="24fe903b671e15a1", plan_s=0.5, step_s=0.001, moved_bytes=2**20,
        least_bytes=2**20, step=575,
    )  # fmt: skip
    assert change.sentence(12.34) == (
        "host b was lost: a, c go on after step 575 under plan 24fe903b671e (made in 500 ms, embeddings 1 ms of a "
        "step), which moves 1 MiB of tables, 1.00 of the least; 12.3 s from the loss to the next step"
    )
    anew = replace(change, lost=(), joined=("d",), least_bytes=0, step=0)
    assert "host d has come: a, c begin anew, for there was no checkpoint yet, under" in anew.sentence(None)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("lost", range(4))
def test_groups_that_are_left_keep_their_plan_and_tell_what_moves(lost: int, *, blocks: bool):
    from recsmith.clusters import sharding_group
    from recsmith.training import Run, RunData
    from recsmith.training.job.groups_left import moved_of_groups, of_groups_left

    job = replace(recsmith.load_cluster("h100:1"), hosts=4)
    made = a_plan()
    grouped = sharding_group(job, 2, use_inter_host_allreduce=blocks)
    before = recsmith.plan(made.workload, grouped, cost_model="analytic", space=Space(types=("table_wise",))).plan
    after = of_groups_left(before, Run(data=RunData(train="x", global_batch_size=256), output="x"), 2)
    assert (after.placements, after.workload.batch_size) == (before.placements, 128)
    assert (after.cluster.replication, after.cluster.job_world_size) == (None, 2)

    left = [rank for rank in range(4) if rank != lost]
    places = [before.cluster.rank_in_group(rank) for rank in left[:2]]
    sizes = [held(after, {rank}) for rank in range(2)]
    moved, least = moved_of_groups(before, after, {rank: now for now, rank in enumerate(left[:2])})
    assert moved == sum(size for place, size in enumerate(sizes) if places[place] != place)
    assert least == sum(size for place, size in enumerate(sizes) if place not in places)
    assert of_groups_left(before, Run(data=RunData(train="x", global_batch_size=256), output="x"), 4) == before
