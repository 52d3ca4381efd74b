"""`recsmith import`: the running plan becomes a plan file that the other commands take."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from support.planner_logs import SHAPES, bare

from recsmith import load_plan
from recsmith.cli.plans import diff_command as diff
from recsmith.cli.plans import import_command as import_plan
from recsmith.cli.plans import simulate_command as simulate
from recsmith.errors import PlanMismatch, UsageError


def run(command: click.Command, *words: object) -> Result:
    return CliRunner().invoke(command, list(map(str, words)))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The log of a job on four ranks."""
    (tmp_path / "job.log").write_text(f"start\n{SHAPES['torchrun and logger'](bare('mixed'))}step 0\n")
    return tmp_path / "job.log"


def test_a_log_becomes_a_plan_file(job: Path, tmp_path: Path):
    target = tmp_path / "running.json"
    done = run(import_plan, job, "--cluster", "h100:4", "-o", target)
    assert done.exit_code == 0, done.output
    assert "bound" in done.stdout
    made = load_plan(str(target))
    assert (made.planner, made.cluster.world_size) == ("given", 4)
    assert made.gap is not None
    priced = json.loads(run(simulate, target, "--format", "json").stdout)
    assert priced["cost"]["total_s"] == made.cost.total_s
    assert run(diff, target, target).exit_code == 0


def test_the_plan_goes_to_stdout(job: Path):
    done = run(import_plan, job, "--cluster", "h100:4", "--batch-size", 7, "-o", "-")
    raw = json.loads(done.stdout)
    assert (raw["schema"], raw["workload"]["batch_size"]) == ("recsmith/plan/1", 7)


def test_a_plan_of_another_number_of_ranks_is_refused(job: Path):
    done = run(import_plan, job, "--cluster", "h100:8")
    assert isinstance(done.exception, PlanMismatch)
    assert "runs on 4 ranks, the cluster has 8 devices" in str(done.exception)
    assert "of a 2D job the --group-size" in str(done.exception)


def test_the_plan_of_a_sharding_group_is_read_with_its_job(job: Path, tmp_path: Path):
    target = tmp_path / "running.json"
    done = run(import_plan, job, "--cluster", "h100:8", "--group-size", 4, "--steps-per-sync", 5, "-o", target)
    assert done.exit_code == 0, (done.output, done.exception)
    made = load_plan(str(target)).cluster
    assert (made.world_size, made.job_world_size) == (4, 8)
    assert made.replication is not None
    assert made.replication.steps_per_sync == 5


def test_a_dump_needs_the_tables(tmp_path: Path):
    (tmp_path / "dump.json").write_text('{"plan": {}}')
    for running in (tmp_path / "dump.json", "-"):
        done = run(import_plan, running, "--cluster", "h100:8")
        assert isinstance(done.exception, UsageError)
        assert "add --workload W" in str(done.exception)
