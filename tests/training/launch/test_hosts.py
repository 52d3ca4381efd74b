"""A job of several hosts on one machine: one is killed, training goes on, with the losses of a plain resume."""

import importlib
import json
import os
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import recsmith
from recsmith.clusters import sharding_group
from recsmith.errors import UsageError
from recsmith.problems import Space
from recsmith.training import Checkpointing, Run, RunData
from recsmith.training.launch import hosts
from recsmith.training.launch.hosts import check_hosts, hosts_of, own_address, ranks_of_host

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
needs_torchrec = pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec")
RUN = Run(data=RunData(train="clicks", global_batch_size=240), output="out", checkpoint=Checkpointing(), ranks=2)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_ranges_are_read_and_others_refused():
    assert (hosts_of("2..3"), hosts_of(" 4 "), hosts_of("1..16")) == ((2, 3), (4, 4), (1, 16))
    for wrong in ("3..2", "0..2", "2-3", "2..", "two", ""):
        with pytest.raises(UsageError, match="write the fewest and the most that train together, such as 2"):
            hosts_of(wrong)


def changed(**words: Any) -> Callable[[], object]:
    file = words.pop("file", "run.yaml")
    return lambda: check_hosts(replace(RUN, **words), file, 2, 3, 2)


@pytest.mark.parametrize(
    ("check", "told"),
    [
        (changed(file="-"), "the run comes from stdin"),
        (changed(checkpoint=None), "goes on from a checkpoint where a host is lost, and the run has none; give it"),
        (
            changed(data=RunData(train="x", batch_size=64)),
            "data.batch_size is of each; give data.global_batch_size: 384",
        ),
        (changed(data=RunData(train="x", global_batch_size=64)), "64 cannot be shared evenly by 6 ranks; give a mul"),
    ],
)
def test_a_run_that_cannot_train_on_fewer_hosts_is_refused(check: Callable[[], object], told: str):
    assert check_hosts(RUN, "run.yaml", 2, 3, 2) == (2, 3)
    assert check_hosts(RUN, "run.yaml", 2, 8, 2) == (2, 3, 4, 5, 6, 8)  # 240 samples are not shared evenly by 14 ranks
    with pytest.raises(UsageError, match=told):
        check()


def test_a_plan_of_a_file_must_be_of_the_most_hosts(tmp_path: Path):
    made = recsmith.plan(
        "dlrm-v2", "h100:8x3", cost_model="analytic", iterations=1, space=Space(types=("table_wise",))
    ).plan
    file = tmp_path / "plan.json"
    recsmith.save_plan(made, file)
    run = replace(RUN, plan=str(file), ranks=None, data=RunData(train="x", global_batch_size=4800))
    assert ranks_of_host(run) == 8
    check_hosts(run, "run.yaml", 2, 3, 8)
    with pytest.raises(UsageError, match=r"is of 3 hosts with 8 devices each, and the job is to have 4 with 8; write"):
        check_hosts(run, "run.yaml", 2, 4, 8)
    where = replace(made.placements[0], sharding_type="column_wise", ranks=(0, 1), widths=(64, 64))
    workload = replace(made.workload, optimizer="rowwise_adagrad")
    recsmith.save_plan(recsmith.price(workload, made.cluster, (where, *made.placements[1:])), file)
    with pytest.raises(
        UsageError, match=r"splits columns of table '\w+' under a row-wise optimizer, whose state fewer"
    ):
        check_hosts(run, "run.yaml", 2, 3, 8)


def test_hosts_of_a_plan_of_sharding_groups_come_in_whole_groups(tmp_path: Path):
    made = recsmith.plan("dlrm-v2", sharding_group(recsmith.load_cluster("h100:4x6"), 8), cost_model="analytic",
                         iterations=1, space=Space(types=("table_wise",))).plan  # fmt: skip
    recsmith.save_plan(made, tmp_path / "plan.json")
    run = replace(RUN, plan=str(tmp_path / "plan.json"), ranks=None, data=RunData(train="x", global_batch_size=4800))
    assert ranks_of_host(run) == 4
    assert check_hosts(run, "run.yaml", 2, 6, 4) == (2, 4, 6)
    with pytest.raises(UsageError, match="is of sharding groups of 8 ranks, and 3 hosts have 12; give --hosts a range"):
        check_hosts(run, "run.yaml", 3, 6, 4)


def test_a_rank_of_a_launcher_starts_no_hosts(monkeypatch: pytest.MonkeyPatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="a launcher has started this process already; start the command once on each"):
        check_hosts(RUN, "run.yaml", 2, 3, 2)


def test_an_address_is_that_of_the_interface_or_its_lack_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert own_address() == "127.0.0.1"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nowhere7")
    with pytest.raises(UsageError, match=r"no address where others reach it \(nowhere7: .*\); export GLOO_SOCKET_IFN"):
        own_address()


@pytest.mark.usefixtures("torchrec")
def test_no_restart_can_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file, asked = tmp_path / "run.yaml", list[int]()
    train = {"format": "generator", "features": [{"name": "a", "num_embeddings": 9}], "num_samples": 480}
    data = {"train": train, "global_batch_size": 24}
    raw = {"schema": "recsmith/run/1", "data": data, "output": str(tmp_path / "out"), "checkpoint": {}, "ranks": 2}
    file.write_text(json.dumps(raw))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(hosts, "_run_agent", lambda settings, **_: asked.append(settings.restarts))
    for given in None, 0, 2:
        hosts.train_on_host(str(file), (), "2..3", given, "text")
    assert asked == [3, 0, 2]


# --- jobs -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def lost_host(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.delitem(sys.modules, "lost_host", raising=False)
    return importlib.import_module("lost_host")


@pytest.mark.usefixtures("torchrec")
def test_a_job_whose_host_is_killed_goes_on_with_the_losses_of_a_resume(lost_host: Any, tmp_path: Path):
    run = lost_host.write_run(tmp_path)
    with lost_host.three_hosts(run, loopback=True, range_="1..2", names="ab") as hosts:
        for name in "ab":
            hosts.start(name)
        hosts.wait("steps", lambda: hosts.trains_on(0, lost_host.EVERY + 3))
        kill = lost_host.kill_once(hosts, lost_host.round_of(hosts)[0], cut=False)  # the host of rank 0
    assert kill.checkpoint is not None
    assert kill.step % lost_host.EVERY == 0
    assert kill.told["moved_bytes"] <= 1.05 * kill.told["least_bytes"]
    assert 0 < kill.told["least_bytes"] < sum(rows for _, rows in lost_host.TABLES) * 16 * 4
    assert len(kill.losses) == lost_host.COMPARED
    assert kill.losses == lost_host.resumed(tmp_path, kill, run, 1)


@needs_torchrec
@pytest.mark.torchrun
@pytest.mark.soak
def test_of_two_sharding_groups_one_is_left(lost_host: Any, tmp_path: Path):
    assert lost_host.measure(tmp_path, 1, loopback=True, draw=random.Random(1), groups=True) == 0


@needs_torchrec
@pytest.mark.torchrun
@pytest.mark.soak  # some fifteen processes that import TorchRec
def test_of_three_hosts_with_networks_one_is_killed_taken_back_and_cut_off(lost_host: Any, tmp_path: Path):
    reason = lost_host.why_not()
    if reason is not None:
        pytest.skip(f"hosts with networks of their own cannot be made here: {reason}")
    assert lost_host.measure(tmp_path, 3, loopback=False, draw=random.Random(os.urandom(8))) == 0
    events = [json.loads(line) for line in (tmp_path / "out/log.jsonl").read_text().splitlines()]
    assert [each["joined"] for each in events if each["event"] == "hosts" and each["joined"]]


@pytest.mark.usefixtures("torchrec")
@pytest.mark.torchrun
@pytest.mark.soak
def test_a_plan_that_does_not_fit_the_hosts_that_are_left_ends_in_one_sentence(lost_host: Any, tmp_path: Path):
    first = lost_host.write_run(tmp_path, plan="auto", steps=1)
    recsmith_train = importlib.import_module("recsmith.training").train
    recsmith_train(str(first), settings=("ranks=2", f"output={tmp_path / 'first'}"))
    plan = recsmith.load_plan(tmp_path / "first/plan.json")
    least = max(device.hbm_bytes for device in plan.cost.per_device)
    tight = replace(plan.cluster, local_world_size=1, hosts=2, hbm_bytes=int(least * 1.2))
    made = recsmith.plan(plan.workload, tight, space=None, cost_model="neural:cpu").plan
    recsmith.save_plan(made, tmp_path / "tight.json")
    run = lost_host.write_run(tmp_path, plan=str(tmp_path / "tight.json"))
    with lost_host.three_hosts(run, loopback=True, range_="1..2", names="ab") as hosts:
        for name in "ab":
            hosts.start(name)
        hosts.wait("steps", lambda: hosts.trains_on(0, lost_host.EVERY + 3))
        hosts.kill("a")
        left = hosts.running.pop("b")
        assert left.wait(120) == 3
    said = hosts.log("b").read_text().splitlines()[-1]
    assert "the tables need at least" in said
    assert "Proved: no plan exists below" in said
    assert [*(tmp_path / "out/checkpoints").glob("step-*0")]
