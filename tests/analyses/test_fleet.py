"""Jobs go where all together cost least; what cannot be had is proved, and told by its figures."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from support.cases import table, workload

pytest.importorskip("ortools")

from recsmith.analyses.cp_sat_fleet import assign
from recsmith.analyses.fleet import FleetJob, Pool, Way, fleet, load_jobs, load_pools, quick_step_s
from recsmith.cli.app import app
from recsmith.clusters import load_cluster
from recsmith.errors import CorruptFile, Infeasible, RecSmithError, UsageError
from recsmith.workloads import load_workload, save_workload

POOLS = (
    Pool(name="fast", device="h100", per_host=2, hosts=3, price=3.0),
    Pool(name="cheap", device="a100-80", per_host=2, hosts=2, price=1.0),
)


@pytest.fixture
def job(tmp_path: Path) -> FleetJob:
    """Some hours of training on either pool."""
    save_workload(workload(*(table(f"t{i}", 200_000, 64, 20.0) for i in range(6))), tmp_path / "tables.json")
    return FleetJob(name="a", workload=str(tmp_path / "tables.json"), global_batch=24_576, samples=1e11)


@pytest.mark.parametrize("seed", range(12))
def test_no_assignment_of_all_costs_less(seed: int):
    """Every combination of ways is listed."""
    rng = np.random.default_rng(seed)
    jobs, room = [f"j{i}" for i in range(4)], {"p": int(rng.integers(2, 7)), "q": int(rng.integers(1, 5))}
    ways = [
        Way(job=job, pool=pool, hosts=hosts, step_s=1.0, hours=1.0, dollars=float(rng.integers(1, 10_000)))
        for job in jobs for pool in room for hosts in (1, 2, 3)
    ]  # fmt: skip
    best = np.inf
    for chosen in itertools.product(*([way for way in ways if way.job == job] for job in jobs)):
        if all(sum(way.hosts for way in chosen if way.pool == pool) <= most for pool, most in room.items()):
            best = min(best, sum(way.dollars for way in chosen))
    found = assign(ways, room, 5.0)
    if found is None:
        assert best == np.inf
        return
    chosen, bound = found
    assert sum(way.dollars for way in chosen) == best
    assert bound <= best * (1 + 1e-12)
    assert bound >= best * (1 - 1e-5)


def between(job: FleetJob) -> float:
    """Hours that three hosts need less than, and one host needs more than."""
    one, three = (
        quick_step_s(load_workload(job.workload).with_batch_size(job.global_batch // (2 * hosts)),
                     load_cluster(f"h100:2x{hosts}"), "cost_greedy", None)
        for hosts in (1, 3)
    )  # fmt: skip
    assert three < one
    return job.samples / job.global_batch * (one + three) / 2 / 3600


def test_a_job_alone_takes_its_cheapest_way_and_one_that_is_late_does_not(job: FleetJob):
    found = fleet([job], POOLS)
    (only,) = found.jobs
    assert only.way == only.cheapest
    assert "cheapest of its" in only.why
    assert found.free == {name: room - (only.way.hosts if only.way.pool == name else 0)
                          for name, room in (("fast", 3), ("cheap", 2))}  # fmt: skip
    step = quick_step_s(load_workload(job.workload).with_batch_size(24_576 // 2), load_cluster("h100:2x1"),
                        "cost_greedy", None)  # fmt: skip
    hours = job.samples / job.global_batch * step / 3600
    one_host = fleet([replace(job, pools=("fast",))], [replace(POOLS[0], hosts=1)])
    assert one_host.jobs[0].way.hours == pytest.approx(hours)
    assert one_host.dollars == pytest.approx(hours * 2 * 3.0)
    hurried = fleet([replace(job, pools=("fast",), deadline_h=between(job))], POOLS)
    assert hurried.jobs[0].way.hosts == 3
    assert hurried.jobs[0].way.hours <= between(job) < hours


def test_the_rest_of_a_step_counts_and_where_a_job_trains_now_is_told(job: FleetJob):
    plain = fleet([replace(job, pools=("fast",))], POOLS).jobs[0].way
    slow = fleet([replace(job, pools=("fast",), rest_us={"h100": 1.0})], POOLS).jobs[0].way
    same = {way: 1e-6 * job.global_batch / (2 * way.hosts) for way in (plain, slow)}
    assert slow.step_s > plain.step_s
    assert slow.step_s >= same[slow]
    moved = fleet([replace(job, pool="fast", hosts=3)], POOLS).jobs[0]
    assert moved.way.pool == "cheap" or moved.way.hosts != 3
    assert "now on 3 hosts of fast, it would cost $" in moved.why
    barred = fleet([replace(job, pool="fast", hosts=3, pools=("cheap",))], POOLS).jobs[0]
    assert barred.why.endswith("now on 3 hosts of fast, which is none of its ways")
    hurried = replace(job, pool="fast", hosts=1, pools=("fast",), deadline_h=between(job))
    assert fleet([hurried], POOLS).jobs[0].why.endswith("now on 1 hosts of fast, it would be late there")


def test_names_of_jobs_and_pools_are_their_own_without_files_too(job: FleetJob):
    with pytest.raises(UsageError, match="'jobs' has two of a job called 'a'"):
        fleet([job, replace(job, samples=2e11)], POOLS)
    with pytest.raises(UsageError, match="'pools' has two of a pool called 'fast'"):
        fleet([job], [*POOLS, POOLS[0]])


def test_a_pool_is_not_overbooked_and_who_gives_way_is_told(job: FleetJob):
    jobs = [replace(job, name=name, samples=samples) for name, samples in (("a", 1e11), ("b", 2e11), ("c", 3e11))]
    found = fleet(jobs, POOLS)
    for pool in POOLS:
        assert sum(each.way.hosts for each in found.jobs if each.way.pool == pool.name) <= pool.hosts
    alone = sum(fleet([each], POOLS).dollars for each in jobs)
    assert found.dollars >= alone * (1 - 1e-9)
    gave_way = [each for each in found.jobs if each.way != each.cheapest]
    assert all("are with jobs that would lose more" in each.why for each in gave_way)


def test_what_cannot_be_had_is_proved(job: FleetJob, tmp_path: Path):
    with pytest.raises(Infeasible, match=r"job 'a' needs .* hours at least .*, and its deadline is in 0.01"):
        fleet([replace(job, deadline_h=0.01)], POOLS)
    many = [replace(job, name=f"j{i}") for i in range(6)]
    with pytest.raises(Infeasible, match="the 6 jobs do not fit 3 hosts of fast, 2 hosts of cheap at the same time"):
        fleet(many, POOLS)
    pressed = [replace(job, name=f"j{i}", pools=("fast",), deadline_h=between(job)) for i in range(3)]
    with pytest.raises(Infeasible, match=r"at least 3 of 3 jobs would be late, such as j"):
        fleet(pressed, POOLS)
    save_workload(workload(table("huge", 2**34, 128)), tmp_path / "huge.json")
    with pytest.raises(Infeasible, match=r"job 'a' fits no pool: a on fast: its .* of tables do not fit 3 hosts"):
        fleet([replace(job, workload=str(tmp_path / "huge.json"))], POOLS)
    with pytest.raises(Infeasible, match="no number of hosts divides its 1,001 samples"):
        fleet([replace(job, global_batch=1001)], POOLS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pools": ("fats",)}, "did you mean 'fast'"),
        ({"rest_us": {"b200": 1.0}}, "names device 'b200', which no pool has"),
        ({"samples": 0.0}, "both are above 0"),
        ({"deadline_h": -1.0}, "that is above 0"),
        ({"pool": "fast"}, "say both, or neither"),
        ({"rest_us": {"h100": -1.0}}, "has a number below 0"),
        ({"samples": float("inf")}, "job 'a' would cost inf dollars on 1 host of fast"),
        ({"samples": 1e308, "rest_us": {"h100": 1e9}}, "job 'a' would cost inf dollars on 1 host of fast"),
    ],
)
def test_jobs_that_break_a_rule_are_refused(change: dict[str, Any], words: str, job: FleetJob):
    with pytest.raises(UsageError, match=words):
        fleet([replace(job, **change)], POOLS)


def test_files_are_read_strictly_and_the_command_tells_all(job: FleetJob, tmp_path: Path):
    jobs, pools = tmp_path / "jobs.yaml", tmp_path / "pools.yaml"
    jobs.write_text(json.dumps({"schema": "recsmith/jobs/1", "jobs": [
        {"name": "a", "workload": job.workload, "global_batch": 24576, "samples": 1e11, "deadline_h": 5000},
    ]}))  # fmt: skip
    pools.write_text(json.dumps({"schema": "recsmith/pools/1", "pools": [
        {"name": "fast", "device": "h100", "per_host": 2, "hosts": 3, "price": 3.0}]}))  # fmt: skip
    assert load_jobs(jobs)[0].deadline_h == 5000
    assert load_pools(pools)[0].hosts == 3
    done = CliRunner().invoke(app, ["fleet", str(jobs), "--pools", str(pools)], catch_exceptions=False)
    assert "together  $" in done.stdout
    raw = json.loads(
        CliRunner().invoke(app, ["fleet", str(jobs), "--pools", str(pools), "--format", "json"]).stdout
    )  # fmt: skip
    assert raw["schema"] == "recsmith/fleet/1"
    assert raw["gap"] < 1e-5
    twice = json.loads(jobs.read_text())
    jobs.write_text(json.dumps(twice | {"jobs": twice["jobs"] * 2}))
    with pytest.raises(UsageError, match="two of a job called 'a'"):
        load_jobs(jobs)
    jobs.write_text(json.dumps(twice | {"jobs": []}))
    with pytest.raises(UsageError, match="has no job"):
        load_jobs(jobs)
    jobs.write_text(json.dumps(twice | {"jobs": [{"name": "a", "hostz": 1}]}))
    with pytest.raises(CorruptFile, match="hostz"):
        load_jobs(jobs)
    with pytest.raises(RecSmithError, match="schema"):
        load_pools(jobs)
