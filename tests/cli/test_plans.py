"""`recsmith simulate`, `diff`, `import` and `schema`: files in, tables and JSON out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from support.planner_logs import SHAPES, bare

from recsmith import load_plan
from recsmith.cli.catalogue import NOUNS
from recsmith.cli.plans import diff_command as diff
from recsmith.cli.plans import import_command as import_plan
from recsmith.cli.plans import simulate_command as simulate
from recsmith.errors import PlanMismatch, UsageError
from recsmith.reports.schemas import schema_of

Run = Callable[..., Any]


@pytest.fixture
def plans(run: Run, tables: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Two plans of the same tables."""
    found = tmp_path / "a.json", tmp_path / "b.json"
    words = ("--cluster", "h100:2", "--planner", "size_greedy")
    assert run("plan", tables, *words, "--types", "table_wise", "-o", found[0]).code == 0
    assert run("plan", tables, *words, "--types", "row_wise", "-o", found[1]).code == 0
    return found


# --- simulate -----------------------------------------------------------------------------------------------------


def test_simulate_prints_the_price_that_the_plan_was_made_with(run: Run, plans: tuple[Path, Path]):
    done = run("simulate", plans[0], "--format", "json")
    made = json.loads(plans[0].read_text())
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("}\n")
    assert not done.out.endswith("\n\n")
    price = json.loads(done.out)
    assert "measured kernels" in price.pop("published_error")["checked"]
    assert price == {key: made[key] for key in ("cost_model", "cost", "bound", "gap")}


def test_simulate_reads_stdin(run: Run, plans: tuple[Path, Path]):
    assert run("simulate", "-", stdin=plans[0].read_text()).out == run("simulate", plans[0]).out


def test_simulate_prints_a_table(run: Run, plans: tuple[Path, Path]):
    done = run("simulate", plans[0], "--cost-model", "torchrec")
    assert (done.code, done.err) == (0, "")
    assert "3 tables" in done.out


def test_simulate_notes_devices_that_are_too_small(run: Run, plans: tuple[Path, Path]):
    raw = json.loads(plans[0].read_text())
    raw["cluster"] |= {"hbm_bytes": 2**20, "reserve_bytes": 0}
    del raw["digest"]
    plans[0].write_text(json.dumps(raw))
    done = run("simulate", plans[0], "--format", "json")
    assert done.code == 0
    others = sum(device["hbm_bytes"] > 2**20 for device in json.loads(done.out)["cost"]["per_device"]) - 1
    more = f" and {others} more" if others else ""
    assert f"rank 0{more} would need more memory than there is: " in done.err
    assert "where tables may take 1 MiB; plan again for this cluster" in done.err
    assert json.loads(done.out)["gap"] is None


def test_simulate_names_an_unknown_cost_model(run: Run, plans: tuple[Path, Path]):
    done = run("simulate", plans[0], "--cost-model", "torchrek")
    assert (done.code, done.out) == (2, "")
    assert "did you mean 'torchrec'" in done.err


# --- diff ---------------------------------------------------------------------------------------------------------


def test_diff_says_what_changed(run: Run, plans: tuple[Path, Path]):
    raw = json.loads(run("diff", *plans, "--format", "json").out)
    assert [change["table"] for change in raw["changes"]] == ["large", "medium", "small"]
    assert raw["moved_bytes"] == sum(change["moved_bytes"] for change in raw["changes"])
    assert raw["moved_bytes"] == (10**6 * 128 + 10**5 * 64 + 100 * 16) * 4 / 2
    assert raw["unchanged"] == 0
    table = run("diff", *plans)
    assert (table.code, table.err) == (0, "")
    assert "row_wise on 0, 1" in table.out


def test_diff_of_a_plan_with_itself_is_empty(run: Run, plans: tuple[Path, Path]):
    raw = json.loads(run("diff", plans[0], plans[0], "--format", "json").out)
    assert (raw["changes"], raw["moved_bytes"], raw["unchanged"]) == ([], 0, 3)
    assert not run("diff", plans[0], plans[0], "--format", "json").out.endswith("\n\n")
    assert raw["before_s"] == raw["after_s"]


def test_diff_takes_stdin_for_one_of_them(run: Run, plans: tuple[Path, Path]):
    assert run("diff", "-", plans[1], stdin=plans[0].read_text()).code == 0
    assert run("diff", "-", "-", stdin=plans[0].read_text()).code == 2


@pytest.mark.parametrize("command", ["simulate", "diff"])
def test_a_bad_plan_ends_with_2(run: Run, plans: tuple[Path, Path], command: str):
    plans[1].write_text(plans[1].read_text().replace('"batch_size": 64', '"batch_size": 65'))
    done = run(command, *(plans if command == "diff" else plans[1:]))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"recsmith: '{plans[1]}' was changed after it was written")


# --- schema -------------------------------------------------------------------------------------------------------


def test_the_nouns_of_schema_are_frozen():
    written = ("workload", "cluster", "constraints", "plan", "run", "dataset", "model", "train-bench")
    assert (*written, "result", "comparison", "sweep", "explanation", "step-memory", "advice") == NOUNS


@pytest.mark.parametrize("noun", NOUNS)
def test_schema_prints_json(run: Run, noun: str):
    done = run("schema", noun)
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out) == schema_of(noun)
    assert json.loads(done.out)["properties"]["schema"] == {"const": f"recsmith/{noun}/1"}


def invoke(command: click.Command, *words: object) -> Result:
    return CliRunner().invoke(command, list(map(str, words)))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The log of a job on four ranks."""
    (tmp_path / "job.log").write_text(f"start\n{SHAPES['torchrun and logger'](bare('mixed'))}step 0\n")
    return tmp_path / "job.log"


def test_a_log_becomes_a_plan_file(job: Path, tmp_path: Path):
    target = tmp_path / "running.json"
    done = invoke(import_plan, job, "--cluster", "h100:4", "-o", target)
    assert done.exit_code == 0, done.output
    assert "bound" in done.stdout
    made = load_plan(str(target))
    assert (made.planner, made.cluster.world_size) == ("given", 4)
    assert made.gap is not None
    priced = json.loads(invoke(simulate, target, "--format", "json").stdout)
    assert priced["cost"]["total_s"] == made.cost.total_s
    assert invoke(diff, target, target).exit_code == 0


def test_the_plan_goes_to_stdout(job: Path):
    done = invoke(import_plan, job, "--cluster", "h100:4", "--batch-size", 7, "-o", "-")
    raw = json.loads(done.stdout)
    assert (raw["schema"], raw["workload"]["batch_size"]) == ("recsmith/plan/1", 7)


def test_a_plan_of_another_number_of_ranks_is_refused(job: Path):
    done = invoke(import_plan, job, "--cluster", "h100:8")
    assert isinstance(done.exception, PlanMismatch)
    assert "runs on 4 ranks, the cluster has 8 devices" in str(done.exception)
    assert "of a 2D job the --group-size" in str(done.exception)


def test_the_plan_of_a_sharding_group_is_read_with_its_job(job: Path, tmp_path: Path):
    target = tmp_path / "running.json"
    done = invoke(import_plan, job, "--cluster", "h100:8", "--group-size", 4, "--steps-per-sync", 5, "-o", target)
    assert done.exit_code == 0, (done.output, done.exception)
    made = load_plan(str(target)).cluster
    assert (made.world_size, made.job_world_size) == (4, 8)
    assert made.replication is not None
    assert made.replication.steps_per_sync == 5


def test_a_dump_needs_the_tables(tmp_path: Path):
    (tmp_path / "dump.json").write_text('{"plan": {}}')
    for running in (tmp_path / "dump.json", "-"):
        done = invoke(import_plan, running, "--cluster", "h100:8")
        assert isinstance(done.exception, UsageError)
        assert "add --workload W" in str(done.exception)
