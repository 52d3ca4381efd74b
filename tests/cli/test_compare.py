"""`recsmith compare` and `explain`: words in, tables and JSON out."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from support.planner_logs import SHAPES, bare

from recsmith.cli.compare import compare_command as compare
from recsmith.cli.plans import explain_command as explain
from recsmith.errors import PlanMismatch, RecSmithError, UsageError
from recsmith.planning import plan
from recsmith.plans import save_plan
from recsmith.workloads import load_workload, save_workload

FAST = ("--planners", "cost_greedy,random", "--cost-model", "torchrec", "--judges", "torchrec")


def run(command: click.Command, *words: object) -> Result:
    return CliRunner().invoke(command, list(map(str, words)))


@pytest.fixture
def plan_file(tables: Path, tmp_path: Path) -> Path:
    """A plan of the three tables on two devices."""
    made = plan(load_workload(str(tables)), "h100:2", planner="cost_greedy", cost_model="torchrec").plan
    save_plan(made, str(tmp_path / "plan.json"))
    return tmp_path / "plan.json"


# --- compare ------------------------------------------------------------------------------------------------------


def test_compare_prints_rows_and_a_verdict(tables: Path):
    done = run(compare, tables, "--cluster", "h100:2", *FAST)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "verdict  " in done.stdout
    assert {"cost_greedy", "random"} <= set(done.stdout.split())


def test_compare_prints_json(tables: Path, plan_file: Path):
    done = run(compare, tables, "-c", "h100:2", *FAST, "--baseline", plan_file, "--format", "json")
    raw = json.loads(done.stdout)
    assert (done.exit_code, raw["schema"], raw["judges"]) == (0, "recsmith/comparison/1", ["torchrec"])
    rows = {row["name"]: row for row in raw["rows"]}
    assert set(rows) == {"baseline", "cost_greedy", "random"}
    assert rows["baseline"]["judgements"] == rows["cost_greedy"]["judgements"]
    assert rows["baseline"]["digest"] == rows["cost_greedy"]["digest"] == json.loads(plan_file.read_text())["digest"]


def test_compare_reads_the_running_plan_from_a_job_log(tmp_path: Path):
    job, work = tmp_path / "job.log", tmp_path / "work.json"
    job.write_text(f"start\n{SHAPES['torchrun and logger'](bare('mixed'))}step 0\n")
    save_workload(load_workload(str(job)), str(work))
    for workload in (work, job):
        done = run(compare, workload, "-c", "h100:4", *FAST, "--baseline", job, "--format", "json")
        assert (done.exit_code, done.stderr) == (0, "")
        assert "baseline" in {row["name"] for row in json.loads(done.stdout)["rows"]}


def test_compare_takes_the_words_of_plan(tables: Path, plan_file: Path):
    space = [
        "--types",
        "row_wise",
        "--widths",
        "torchrec",
        "--kernels",
        "fused",
        "--memory",
        "torchrec",
        "--keep-exact",
    ]
    asked = ["--batch-size", "128", "--optimizer", "sgd", "--reserve", "1GiB"]
    words = [*space, *asked, "--iterations", "1", "--seed", "3", "--time-limit", "9s"]
    done = run(compare, tables, "-c", "h100:2", *FAST, *words, "--baseline", plan_file, "--format", "json")
    assert done.exit_code == 0
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    assert rows["baseline"]["judgements"][0]["gap"] is None
    assert rows["random"]["judgements"][0]["gap"] == rows["cost_greedy"]["judgements"][0]["gap"]


def test_compare_keeps_the_rules_of_a_file(tables: Path, tmp_path: Path):
    (tmp_path / "rules.yaml").write_text(
        "schema: recsmith/constraints/1\nrules:\n- {tables: '*', sharding_types: [table_wise]}\n"
    )
    free, bound = (
        json.loads(run(compare, tables, "-c", "h100:2", *FAST, *words, "--format", "json").stdout)["rows"][0]
        for words in ((), ("--constraints", tmp_path / "rules.yaml"))
    )
    assert bound["judgements"][0]["bound_s"] > free["judgements"][0]["bound_s"]


def test_compare_notes_searches_that_were_cut(tables: Path):
    words = ("--planners", "auto", "--cost-model", "torchrec", "--judges", "torchrec", "--time-limit", "0.0001ms")
    done = run(compare, tables, "-c", "h100:2", *words)
    assert (done.exit_code, done.stdout.count("(cut)")) == (0, 1)
    assert done.stderr == "recsmith: note: the search of auto was cut short; its plan is the best by then\n"


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        (("--planners", "cost_gredy"), UsageError, "did you mean 'cost_greedy'"),
        (("--judges", "torchrek"), UsageError, "did you mean 'torchrec'"),
        (("--planners", ","), UsageError, "nothing to compare"),
        (("--time-limit", "9"), UsageError, "write for example 10s"),
        (("--baseline", "absent.json"), UsageError, "cannot read 'absent.json'"),
    ],
)
def test_compare_refuses_bad_words(tables: Path, words: tuple[str, ...], kind: type[RecSmithError], said: str):
    done = run(compare, tables, "-c", "h100:2", *FAST, *words)
    assert isinstance(done.exception, kind)
    assert said in str(done.exception)
    assert done.stdout == ""


def test_compare_refuses_a_baseline_of_another_cluster(tables: Path, plan_file: Path):
    done = run(compare, tables, "-c", "h100:4", *FAST, "--baseline", plan_file)
    assert isinstance(done.exception, PlanMismatch)
    assert f"'{plan_file}' is for 1 host of 2 devices, the cluster has 1 of 4" in str(done.exception)


# --- explain ------------------------------------------------------------------------------------------------------


def test_explain_says_what_binds(plan_file: Path):
    done = run(explain, plan_file)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "slowest  rank" in done.stdout
    assert "cost model torchrec" in done.stdout
    assert "phase 2" in run(explain, plan_file, "--cost-model", "analytic").stdout


def test_explain_accounts_for_a_table(plan_file: Path):
    done = run(explain, plan_file, "--table", "medium")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "table    medium: 100,000 x 64 fp32" in done.stdout
    assert "»" in done.stdout


def test_explain_prints_json(plan_file: Path):
    raw = json.loads(run(explain, plan_file, "--format", "json").stdout)
    assert (raw["schema"], raw["account"]) == ("recsmith/explanation/1", None)
    made = json.loads(plan_file.read_text())
    assert (raw["digest"], raw["total_s"], raw["gap"]) == (made["digest"], made["cost"]["total_s"], made["gap"])
    table = json.loads(run(explain, plan_file, "--table", "medium", "--format", "json").stdout)["account"]
    assert table["table"]["name"] == table["placement"]["table"] == "medium"
    assert sum(way["current"] for way in table["alternatives"]) == 1


def test_explain_reads_stdin(plan_file: Path):
    piped = CliRunner().invoke(explain, ["-"], input=plan_file.read_text())
    assert piped.stdout == run(explain, plan_file).stdout


def test_explain_refuses_unknown_tables_and_models(plan_file: Path):
    for words, said in ((("--table", "mediun"), "did you mean 'medium'"), (("--cost-model", "x"), "no cost model")):
        done = run(explain, plan_file, *words)
        assert isinstance(done.exception, UsageError)
        assert said in str(done.exception)
