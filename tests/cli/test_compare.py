"""`recsmith compare`, `explain` and `sweep`: what they print where, what they write, how they end."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from support.planner_logs import SHAPES, bare

from recsmith.cli import compare as module
from recsmith.cli.compare import compare_command as compare
from recsmith.cli.compare import sweep_command
from recsmith.cli.live import LiveLine
from recsmith.cli.plans import explain_command as explain
from recsmith.errors import Infeasible, NoPlanFound, PlanMismatch, RecSmithError, UsageError
from recsmith.planning import PLANNERS, plan
from recsmith.plans import save_plan
from recsmith.workloads import load_workload, save_workload

FAST = ("--planners", "cost_greedy,random", "--cost-model", "torchrec", "--judges", "torchrec")
FAST_SWEEP = ("--cost-model", "torchrec", "--widths", "torchrec")
GRID = ("--devices", "2,4", "--device", "h100")


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


def run_sweep(*words: object, planner: str = "cost_greedy") -> Result:
    return CliRunner().invoke(sweep_command, [*map(str, words), *FAST_SWEEP, "--planner", planner])


# --- output -------------------------------------------------------------------------------------------------------


def test_the_table_goes_to_stdout_alone(tables: Path):
    done = run_sweep(tables, *GRID)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "workload 3 tables" in done.stdout
    assert "knee     h100:8, 64 samples a device: " in done.stdout
    assert done.stdout.count("\n h100:8 ") == 2


def test_group_sizes_have_columns_of_their_own(tables: Path):
    done = run_sweep(tables, "--devices", "4", "--device", "h100", "--group-size", "2,4", "--steps-per-sync", "9")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.count("\n h100:8 ") == 2
    assert "sync" in done.stdout
    assert "hosts" not in done.stdout


def test_json_names_its_schema(tables: Path):
    done = run_sweep(
        tables, "--devices", "16, 8,8", "--device", "h100,v100-32", "--batch-size", "32,16", "--format", "json"
    )
    raw = json.loads(done.stdout)
    assert (done.exit_code, done.stderr, raw["schema"]) == (0, "", "recsmith/sweep/1")
    assert [(each["device"], each["batch_size"], each["devices"]) for each in raw["points"]] == [
        (device, batch, count) for device in ("h100", "v100-32") for batch in (16, 32) for count in (8, 16)
    ]
    assert (raw["fixed"], raw["planner"], raw["cost_model"]) == ("batch_size", "cost_greedy", "torchrec")


def test_csv_has_a_line_for_each_point(tables: Path):
    done = run_sweep(tables, *GRID, "--global-batch", "64", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert done.exit_code == 0
    assert [(row["devices"], row["batch_size"], row["global_batch_size"]) for row in rows] == [
        ("2", "32", "64"), ("4", "16", "64"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "words", "is_csv"),
    [
        ("s.json", (), False),
        ("s.csv", (), True),
        ("S.CSV", (), True),
        ("s.txt", ("--format", "csv"), True),
        ("s", (), False),
    ],
)
def test_o_writes_the_points_and_the_table_is_printed(
    tables: Path, tmp_path: Path, name: str, words: tuple[str, ...], is_csv: bool
):
    done = run_sweep(tables, *GRID, "-o", tmp_path / name, *words)
    text = (tmp_path / name).read_text()
    assert (done.exit_code, "samples" in done.stdout) == (0, True)
    assert text.startswith("device,per_host,devices") if is_csv else len(json.loads(text)["points"]) == 2


@pytest.mark.parametrize(("words", "start"), [((), "{"), (("--format", "csv"), "device,"), (("--format", "json"), "{")])
def test_o_dash_prints_the_points_alone(tables: Path, words: tuple[str, ...], start: str):
    done = run_sweep(tables, *GRID, "-o", "-", *words)
    assert done.stdout.startswith(start)
    assert "knee     " not in done.stdout
    assert done.stdout.count('"schema"') == (start == "{")


def test_the_words_of_the_problem_are_taken(tables: Path, tmp_path: Path):
    (tmp_path / "rules.yaml").write_text(
        "schema: recsmith/constraints/1\nrules:\n- {tables: large, sharding_types: [row_wise]}\n"
    )
    done = run_sweep(
        tables, *GRID, "--per-host", 2, "--hbm", "60GiB", "--reserve", "10GiB", "--types", "table_wise,row_wise",
        "--kernels", "fused", "--memory", "torchrec", "--optimizer", "sgd", "--keep-exact", "--seed", 3,
        "--iterations", 1, "--time-limit", "9s", "--constraints", tmp_path / "rules.yaml", "--format", "json",
    )  # fmt: skip
    raw = json.loads(done.stdout)
    assert [(each["per_host"], each["hosts"]) for each in raw["points"]] == [(2, 1), (2, 2)]
    assert raw["space"].startswith("table_wise + row_wise; widths torchrec; kernels fused; memory torchrec")


def test_memory_of_the_command_line_is_that_of_every_device(tables: Path):
    done = run_sweep(tables, "--devices", "1,2", "--device", "h100,h200", "--hbm", "400MiB", "--format", "json")
    outcomes = [each["outcome"] for each in json.loads(done.stdout)["points"]]
    assert outcomes == ["infeasible", "planned"] * 2


def test_csv_workloads_need_a_batch_of_either_kind(tmp_path: Path):
    (tmp_path / "w.csv").write_text("name,num_embeddings,embedding_dim,pooling_factor\na,1e5,64,2\n")
    for words, batch in ((("--batch-size", "32"), 32), (("--global-batch", "64"), 16)):
        done = run_sweep(tmp_path / "w.csv", *GRID, *words, "--format", "json")
        assert json.loads(done.stdout)["points"][-1]["batch_size"] == batch
    assert isinstance(run_sweep(tmp_path / "w.csv", *GRID).exception, UsageError)


def test_a_device_may_be_a_file(tables: Path, tmp_path: Path):
    file = tmp_path / "mine.yaml"
    text = (
        "schema: recsmith/cluster/1\ndevice: {name: mine, hbm_bytes: 4e10, hbm_bandwidth: 1e12}\n"
        "local_world_size: 2\nhosts: 7\nlinks: {intra_host_bandwidth: 1e11, inter_host_bandwidth: 1e10}\n"
    )
    file.write_text(text.replace("4e10", "40000000000"))
    raw = json.loads(run_sweep(tables, "--devices", "2,4", "--device", file, "--format", "json").stdout)
    assert [(each["device"], each["hosts"]) for each in raw["points"]] == [("mine", 1), ("mine", 2)]
    file.write_text(text.replace("4e10", "40000000000").replace("hosts: 7", f"hosts: 1\nhbm_bytes: {[10**10] * 2}"))
    for words in ((), ("--per-host", "4")):
        done = run_sweep(tables, "--devices", "4", "--device", file, *words)
        assert "lists the memory of each rank" in str(done.exception)
    assert run_sweep(tables, "--devices", "4", "--device", file, "--per-host", "4", "--hbm", "10GB").exit_code == 0


# --- progress and interrupts --------------------------------------------------------------------------------------


def test_who_watches_hears_of_each_point_in_the_live_line(tables: Path, monkeypatch: pytest.MonkeyPatch):
    watched, told = LiveLine("planning the first point"), list[str]()
    monkeypatch.setattr(module, "running", lambda: watched)
    monkeypatch.setattr(watched, "tell", lambda text: told.append(f"{watched.doing}: {text}"))
    done = run_sweep(tables, "--devices", "1,2", "--device", "h100", "--hbm", "400MiB", "--format", "json")
    first, second = told
    assert first == ("sweeping, 1 point done: last h100:8, 1 device, batch 64, infeasible; Ctrl-C ends with them")
    assert second.startswith("sweeping, 2 points done: last h100:8, 2 devices, batch 64, ")
    assert done.stderr == ""
    assert json.loads(done.stdout)["points"]


class Moody:
    """A planner that raises what comes next, or finds a plan where that is None."""

    name = "moody"

    def __init__(self, *moods: BaseException | None) -> None:
        self.moods = iter(moods)

    def plan(self, *words: Any, **named: Any) -> Any:
        mood = next(self.moods)
        if mood:
            raise mood
        return PLANNERS["cost_greedy"].plan(*words, **named)


@pytest.fixture
def moody(monkeypatch: pytest.MonkeyPatch, tables: Path) -> Callable[..., Result]:
    """A sweep of three points that end in these moods."""

    def moody(*moods: BaseException | None, words: tuple[str, ...] = ()) -> Result:
        monkeypatch.setitem(PLANNERS.places, "moody", Moody(*moods))
        return run_sweep(tables, "--devices", "2,4,8", "--device", "h100", *words, planner="moody")

    return moody


def test_a_sweep_that_is_interrupted_prints_what_is_done(moody: Callable[..., Result]):
    done = moody(None, KeyboardInterrupt())
    assert (done.exit_code, done.stderr) == (0, "recsmith: note: interrupted; 2 of 3 points are not done\n")
    assert done.stdout.count("\n h100:8 ") == 1
    assert json.loads(moody(None, None, KeyboardInterrupt(), words=("--format", "json")).stdout)["left"] == 1


def test_searches_that_were_cut_are_noted(tables: Path):
    done = run_sweep(tables, *GRID, "--time-limit", "0.0001ms", planner="auto")
    note = "recsmith: note: the search of h100:8, {} devices, batch 64 was cut short; its plan is the best by then\n"
    assert (done.exit_code, done.stderr) == (0, note.format(2) + note.format(4))
    assert done.stdout.count("cut") == 2


# --- how it ends --------------------------------------------------------------------------------------------------

LOST, PROVED, REFUSED = NoPlanFound("it is dark"), Infeasible("too large"), UsageError("too many ranks")


def test_one_plan_is_enough(moody: Callable[..., Result]):
    done = moody(LOST, None, PROVED)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "note     h100:8, 2 devices, batch 64: it is dark" in done.stdout
    assert "note     h100:8, 8 devices, batch 64: too large" in done.stdout


@pytest.mark.parametrize(
    ("moods", "kind"),
    [
        ((PROVED, PROVED, PROVED), Infeasible),
        ((PROVED, LOST, PROVED), NoPlanFound),
        ((PROVED, REFUSED, PROVED), NoPlanFound),
        ((PROVED, PROVED, KeyboardInterrupt()), NoPlanFound),
        ((REFUSED, REFUSED, REFUSED), UsageError),
        ((KeyboardInterrupt(),), click.Abort),
    ],
)
def test_no_plan_at_all_is_a_failure(
    moody: Callable[..., Result], moods: tuple[BaseException, ...], kind: type[Exception]
):
    done = moody(*moods)
    if kind is click.Abort:  # which the command's `main` words
        assert (done.exit_code, done.stdout) == (1, "")
        return
    assert type(done.exception) is kind
    assert ("infeasible" in done.stdout) == (kind is not UsageError)  # points are printed all the same


# --- usage errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--devices", "0", "--device", "h100"), "number of devices 0 cannot be"),
        (("--devices", "8,x", "--device", "h100"), "--devices: 'x' is not a whole number; write for example 8,16,32"),
        (("--devices", "-8", "--device", "h100"), "'-8' is not a whole number"),
        (("--devices", "8.0", "--device", "h100"), "'8.0' is not a whole number"),
        (("--devices", "٨", "--device", "h100"), "is not a whole number"),
        (("--devices", ",", "--device", "h100"), "at least one number of devices"),
        (("--devices", "8", "--device", ","), "at least one device"),
        (("--devices", "8", "--device", "h100,h20"), "did you mean 'h200'"),
        (("--devices", "12", "--device", "h100"), "not whole hosts of 8 'h100'; ask for 8 or 16"),
        ((*GRID, "--batch-size", "4k"), "--batch-size: '4k' is not a whole number"),
        ((*GRID, "--batch-size", ""), "at least one batch size"),
        ((*GRID, "--global-batch", "63"), "no multiple of 2 devices; a batch of 60 or 64"),
        ((*GRID, "--global-batch", "64", "--batch-size", "8"), "not both"),
        ((*GRID, "-o", "absent/sweep.json"), "folder"),
    ],
)
def test_bad_words_are_refused(tables: Path, words: tuple[str, ...], said: str):
    done = run_sweep(tables, *words)
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)
    assert done.stdout == ""


@pytest.mark.parametrize("words", [(), ("--devices", "8"), ("--device", "h100"), (*GRID, "--format", "xml")])
def test_missing_words_are_refused(tables: Path, words: tuple[str, ...]):
    done = run_sweep(tables, *words)
    assert done.exit_code == 2
    assert "Usage: " in done.stderr


def test_neither_a_cluster_nor_one_batch_is_asked_for():
    names = {parameter.name for parameter in sweep_command.params}
    assert "cluster" not in names
    assert {"batch_size", "global_batch", "devices", "device", "per_host", "constraints", "hbm"} <= names
    assert len(names) == len(sweep_command.params)
