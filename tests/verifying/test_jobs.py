"""What ranks are predicted to allocate when a plan is verified."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.build import cluster, placed, plan_of, table, workload
from support.plans import two_tables

from recsmith import Plan, Space, load_cluster, plan, save_plan, save_workload
from recsmith.cli import printing, verify
from recsmith.cli.app import app
from recsmith.clusters import sharding_group
from recsmith.errors import UsageError
from recsmith.problems.rank_bytes import predicted_bytes
from recsmith.verifying import jobs as room
from recsmith.verifying.jobs import check_memory, check_plan, runnable
from recsmith.workloads import Feature

needs_torchrec = pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec")


def verified(made: Plan, folder: Path, *words: str) -> Result:
    save_plan(made, str(folder / "plan.json"))
    return CliRunner().invoke(app, ["verify", str(folder / "plan.json"), *words])


def measured(*, ranks: int, on_message: Callable[[Any], object], **_: Any) -> list[dict[str, float]]:
    """What a job of so many ranks finds, with a step to warm up and one that is timed told."""
    on_message(0)
    on_message(3)
    return [{"forward_s": 1.0, "backward_s": 2.0, "step_s": 3.0, "peak": 10**8} for _ in range(ranks)]


STAGES = ["starting 2 ranks", "warming up step 1 of 2", "training step 2 of 5", "comparing"]


@pytest.mark.parametrize(
    ("stdout", "stderr", "words", "shown"),
    [
        (True, True, (), STAGES),
        (True, False, (), STAGES),
        (True, True, ("--format", "json"), []),
        (False, True, (), []),
    ],
)
def test_what_is_under_way_is_shown_where_somebody_reads_the_report(
    stdout: bool, stderr: bool, words: tuple[str, ...], shown: list[str],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
):  # fmt: skip
    """Over one line on a terminal, in lines elsewhere, and not at all where stdout is read by a program."""
    monkeypatch.setattr(room, "launch", lambda *_, **words: measured(**words))
    monkeypatch.setattr(room, "require_torchrec", lambda: None)
    monkeypatch.setattr(printing, "is_watched", lambda: stderr)
    monkeypatch.setattr(printing, "WATCHED_S", 0.0)
    monkeypatch.setattr(verify, "LOG_EVERY_S", 0.0)
    monkeypatch.setattr(verify, "is_watched", lambda _: stdout)
    done = verified(two_tables(), tmp_path, "--torchrec", *words)
    assert done.exception is None, done.exception
    assert re.findall(r"recsmith: ([\w ]*\w)", done.stderr) == shown
    assert ("\r" in done.stderr) is (stderr and bool(shown))


@needs_torchrec
def test_a_plan_runs_and_takes_the_memory_that_was_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It tells each step, and imports nothing from the working folder, where files of the libraries' names lie."""
    monkeypatch.chdir(tmp_path)
    for name in ("secrets.py", "fbgemm_gpu.py"):
        Path(name).write_text(
            f"from pathlib import Path\nPath({str(tmp_path / 'imported')!r}).touch()\nraise SystemExit(7)\n"
        )
    told: list[Any] = []
    launch = room.launch

    def overheard(*given: Any, on_message: Callable[[Any], object], **words: Any) -> Any:
        return launch(*given, on_message=lambda word: (told.append(word), on_message(word)), **words)

    monkeypatch.setattr(room, "launch", overheard)
    done = verified(two_tables(), tmp_path, "--torchrec", "--steps", "1", "--batch-size", "512", "--format", "json")
    assert done.exception is None, done.exception
    assert told == [0, 1, 2]  # the step that begins: two to warm up, and one that is timed
    said = json.loads(done.output)
    assert (said["schema"], said["steps"], said["batch_size"]) == ("recsmith/verification/1", 1, 512)
    assert [rank["rank"] for rank in said["ranks"]] == [0, 1]
    for rank in said["ranks"]:
        assert rank["predicted_bytes"] == rank["shards_bytes"] + rank["base_bytes"]
        assert rank["predicted_bytes"] == pytest.approx(rank["peak_bytes"], rel=0.15)
        assert 0 < rank["forward_s"] < rank["step_s"]
        assert 0 < rank["backward_s"] < rank["step_s"]
        assert rank["predicted_s"] > 0


@needs_torchrec
@pytest.mark.soak
def test_a_plan_for_a_sharding_group_runs_in_all_groups(tmp_path: Path):
    save_workload(
        workload(*(table(name, 200_000, 32) for name in "abc"), optimizer="adagrad"), str(tmp_path / "w.json")
    )
    group = sharding_group(load_cluster("cpu:2x2"), 2)
    made = plan(str(tmp_path / "w.json"), group, space=Space(types=("table_wise", "row_wise")), iterations=1).plan
    done = verified(made, tmp_path, "--torchrec", "--steps", "1", "--batch-size", "512", "--format", "json")
    assert done.exception is None, done.exception
    ranks = json.loads(done.output)["ranks"]
    assert [rank["rank"] for rank in ranks] == [0, 1, 2, 3]
    assert [rank["predicted_bytes"] for rank in ranks[::2]] == [rank["predicted_bytes"] for rank in ranks[1::2]]
    for rank in ranks:
        assert rank["predicted_bytes"] == pytest.approx(rank["peak_bytes"], rel=0.05)


def test_the_report_shows_each_rank_and_says_what_times_mean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def answer(function: str, arguments: dict[str, Any], *, hosts: int, **words: Any) -> list[dict[str, float]]:
        assert (function, arguments["steps"], hosts) == ("recsmith.verifying.job_ranks:measure", 5, 1)
        return measured(**words)

    monkeypatch.setattr(room, "launch", answer)
    monkeypatch.setattr(room, "require_torchrec", lambda: None)
    done = verified(two_tables(), tmp_path, "--torchrec", "--batch-size", "16")
    assert done.exception is None, done.exception
    assert "not the speed of the plan's devices" in done.output
    assert "5 steps of 16 samples on 2 ranks" in done.output
    assert len([line for line in done.output.splitlines() if "95.37 MiB" in line]) == 2


def in_bf16(made: Plan) -> Plan:
    """The plan of tables of another type, which no search makes."""
    tables = tuple(replace(each, data_type="bf16") for each in made.workload.tables)
    return replace(made, workload=replace(made.workload, tables=tables))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (two_tables("cpu:8x4"), "32 ranks"),
        (two_tables(optimizer="adam"), "adam"),
        (in_bf16(two_tables()), "bf16"),
        (plan_of(workload(table("a", optimizer="adam")), cluster(), placed("a", "table_wise", [0])), "adam"),
        (
            plan_of(
                workload(table("a", optimizer="adagrad")),
                cluster(),
                placed("a", "data_parallel", [0, 1], kernel="dense"),
            ),
            "'a' is data_parallel and has optimizer adagrad",
        ),
    ],
)
def test_what_this_machine_cannot_run_is_refused_before_it_starts(made: Plan, words: str):
    with pytest.raises(UsageError, match=words):
        room.verify_job(made)


def test_poolings_become_one_bag_of_the_batch_that_is_asked_for():
    feature = Feature(name="f", pooling_factor=3.0, num_poolings=2.0, batch_size=7)
    made = plan_of(
        workload(table("a", features=(feature,)), pipeline="sparse_dist"), cluster(), placed("a", "table_wise", [0])
    )
    trained = runnable(made, 32).workload
    assert (trained.batch_size, trained.pipeline) == (32, "none")
    assert trained.tables[0].features == (Feature(name="f", pooling_factor=6.0),)
    assert runnable(made, None).workload.batch_size == made.workload.batch_size


def test_more_memory_than_the_machine_has_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "proc_bytes", lambda file, field: 2**29)
    with pytest.raises(UsageError, match=r"the plan's 2 ranks need .* which has 512 MiB available"):
        check_memory([2**20, 2**20])
    check_memory([2**20])


def test_tables_in_host_memory_need_a_gpu():
    made = plan_of(workload(table("a")), cluster(), placed("a", "table_wise", [0], kernel="fused_uvm"))
    with pytest.raises(UsageError, match="uses fused_uvm, which needs a GPU"):
        check_plan(made)


def test_a_sequence_cannot_be_data_parallel_on_cpu():
    made = two_tables(pooling="none")
    copies = tuple(
        replace(each, sharding_type="data_parallel", compute_kernel="dense", ranks=(0, 1), widths=())
        for each in made.placements
    )
    with pytest.raises(UsageError, match="data_parallel sequence"):
        check_plan(replace(made, placements=copies))


def test_the_base_is_the_batch_its_outputs_and_at_most_two_gradients():
    made = two_tables()
    rows = tuple(replace(each, sharding_type="row_wise", ranks=(0, 1), widths=()) for each in made.placements)
    outputs = 1024 * 2 * 64 * 4
    batch = 2 * 1024 * (5 * 8 + 16)
    for each in (made, replace(made, placements=rows)):
        for _, base in predicted_bytes(runnable(each, None)):
            assert batch + outputs <= base <= batch + 3 * outputs
