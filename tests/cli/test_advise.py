"""`recsmith advise`: what it reads, prints and refuses."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from recsmith.cli.advise import advise_command
from recsmith.errors import RecSmithError, UsageError
from recsmith.planning import plan
from recsmith.plans import save_plan

FAST = ("--cost-model", "torchrec")


def run(*words: object) -> Result:
    return CliRunner().invoke(advise_command, list(map(str, words)))


def test_tables_on_a_cluster(tables: Path):
    done = run(tables, "--cluster", "h100:2", *FAST)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("advice   ")
    assert "a new plan: " in done.stdout
    assert "quality: " in done.stdout
    assert "switch on: " in done.stdout


def test_a_list_of_tables_has_its_batch_from_the_command(tmp_path: Path):
    (tmp_path / "tables.csv").write_text("name,num_embeddings,embedding_dim,pooling_factor\na,1000,16,2\nb,500,16,1\n")
    done = run(tmp_path / "tables.csv", "--cluster", "h100:2", "--format", "json", "--batch-size", "512", *FAST)
    assert json.loads(done.stdout)["base"]["samples"] == 512


def test_json_has_every_switch_and_its_price(tables: Path):
    done = run(tables, "--cluster", "h100:2", "--format", "json", "--batch-size", "512", *FAST)
    raw = json.loads(done.stdout)
    assert raw["schema"] == "recsmith/advice/1"
    assert raw["base"]["samples"] == 512
    assert all(each["price"]["step_s"] > 0 for each in raw["switches"] if each["verdict"] != "cannot")


def test_a_plan_runs_on_its_own_cluster(tables: Path, tmp_path: Path):
    made = plan(str(tables), "h100:2", planner="random", cost_model="torchrec").plan
    save_plan(made, str(tmp_path / "plan.json"))
    done = run(tmp_path / "plan.json", *FAST)
    assert "the running plan: " in done.stdout
    assert "a new plan" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cluster", "h100:2", "--price", "h100=2.99EUR/h"), "other money has to be changed into dollars first"),
        (("--cluster", "h100:2", "--price", "h200=2/h"), "the job's devices are 'h100', and prices are of h200"),
        (("--cluster", "h100:2", "--price", "h100=2/h", "--budget", "40"), "'40' is no budget; it is dollars an hour"),
        (("--cluster", "h100:2", "--objective", "cost"), "the objective cost needs what a device costs"),
        (("--cluster", "h100:2", "--try", "200"), "--try trains a run on this machine, and .* give a run without"),
        ((), "is no run and no plan, so say on which devices it trains"),
        (("--cluster", "h100:2", "--set", "data.batch_size=4"), "--set changes a run, and .* is none"),
        (("--cluster", "h100:2", "--step-time", "0.0001ms"), "a whole step is said to take 0.1 µs"),
        (("--cluster", "h100:2", "--running", "nothing.json"), "nothing.json"),
    ],
)
def test_wrong_questions_are_refused(words: tuple[str, ...], said: str, tables: Path):
    done = run(tables, *words, *FAST)
    assert isinstance(done.exception, RecSmithError)
    assert re.search(said, str(done.exception))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--batch-size", "4"), "is a run, which says its plan and batch itself; use --set in place of --batch-size"),
        (("--cost-model", "analytic"), "--cost-model is of plans on a cluster, and .* add --cluster, or leave it out"),
        (
            ("--objective", "devices"),
            "money and devices are of plans on a cluster, and .* take --objective step or memory",
        ),
        (("--hbm", "10GiB"), "--hbm is of plans on a cluster"),
    ],
)
def test_options_of_tables_are_refused_for_a_run(words: tuple[str, ...], said: str, tmp_path: Path):
    (tmp_path / "run.yaml").write_text("schema: recsmith/run/1\noutput: out\n")
    done = run(tmp_path / "run.yaml", *words)
    assert isinstance(done.exception, UsageError)
    assert re.search(said, str(done.exception))


def test_help_has_no_objective_of_another_command():
    said = CliRunner().invoke(advise_command, ["--help"]).stdout
    assert "step_time" not in said
    assert "Objective:" in said


def test_a_plan_for_another_cluster_is_left_out_and_that_is_said(tables: Path, tmp_path: Path):
    save_plan(plan(str(tables), "h100:2", cost_model="torchrec").plan, str(tmp_path / "plan.json"))
    done = run(tmp_path / "plan.json", "--cluster", "h100:4", *FAST)
    assert done.exit_code == 0
    assert "the plan that runs is left out, and one is made for this cluster: " in done.stdout
    assert "a new plan" in done.stdout


def test_the_cost_model_of_a_plan_is_of_its_own_devices(tables: Path, tmp_path: Path):
    made = plan(str(tables), "h100:2", planner="random", cost_model="neural:h100").plan
    save_plan(made, tmp_path / "plan.json")
    done = run(tmp_path / "plan.json", "--cluster", "h200:2")
    assert (done.exit_code, done.stdout[:9]) == (0, "advice   ")


def test_a_line_to_type_names_what_was_typed_and_json_has_it_as_data(tables: Path, tmp_path: Path):
    save_plan(plan(str(tables), "h100:2", planner="random", cost_model="torchrec").plan, str(tmp_path / "plan.json"))
    done = run(tables, "--cluster", "h100:2", "--running", tmp_path / "plan.json", "--format", "json", *FAST)
    made = {each["switch"]["name"]: each["switch"] for each in json.loads(done.stdout)["switches"]}
    assert f"recsmith plan {tables} --cluster h100:2 -o plan.json" in made["a new plan"]["change"]
    assert made["fp16 and bf16 between devices"]["edits"] == {"comm_dtype": "fp16", "backward_comm_dtype": "bf16"}


def test_memory_has_no_interval(tables: Path):
    done = run(tables, "--cluster", "h100:2", "--objective", "memory", *FAST)
    assert "between" not in done.stdout.replace("between devices", "")


def test_a_run_of_another_schema_is_read_as_a_run(tmp_path: Path):
    (tmp_path / "run.yaml").write_text("schema: recsmith/run/9\noutput: out\n")
    assert "recsmith/run/1" in str(run(tmp_path / "run.yaml").exception)
