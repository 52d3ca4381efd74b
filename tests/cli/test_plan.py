"""`recsmith plan`: what it prints where, what it writes, how it ends."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from support.planner_logs import SHAPES, bare
from support.quick_plans import search
from support.schema import problems

from recsmith import _process
from recsmith.cli.options import left_of_limit
from recsmith.cli.printing import OWN_PROCESS
from recsmith.errors import NoPlanFound
from recsmith.plans import load_plan
from recsmith.reports.schemas import schema_of

Run = Callable[..., Any]
H100 = ("--cluster", "h100:2")


# --- output -------------------------------------------------------------------------------------------------------


def test_the_table_goes_to_stdout_alone(run: Run, tables: Path):
    short = run("plan", tables, *H100)
    assert (short.code, short.err) == (0, "")
    assert [line.split()[0] for line in short.out.splitlines()][:4] == ["plan", "step", "bound", "slowest"]
    assert "3 tables" in short.out
    assert "written" not in short.out
    assert " rank " not in short.out.splitlines()[-1]  # no grid
    done = run("plan", tables, *H100, "-v")
    assert (done.code, done.err) == (0, "")
    assert "3 tables" in done.out
    assert "written" not in done.out
    assert "h100:2, 79.2 GiB less 1.543 GiB reserve a device" in done.out
    assert "reserve  1.543 GiB of each device for other layers, activations and CUDA" in done.out
    assert "proven" in done.out


def test_json_is_a_result_by_its_schema(run: Run, tables: Path):
    done = run("plan", tables, "--cluster", "h100:2x2", "--format", "json")
    raw = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("}\n")
    assert not done.out.endswith("\n\n")
    assert problems(raw, schema_of("result")) == []
    assert raw["schema"] == "recsmith/result/1"
    assert raw["cost"] == raw["plan"]["cost"]


def test_parts_and_wait_of_every_device_add_up_to_the_step(run: Run):
    cost = json.loads(run("plan", "dlrm-v2", "--cluster", "h100:8", "--planner", "ldm", "--format", "json").out)["cost"]
    assert [device["rank"] for device in cost["per_device"]] == list(range(8))
    for device in cost["per_device"]:
        parts = ("forward_compute_s", "backward_compute_s", "forward_comm_s", "backward_comm_s", "wait_s")
        assert all(device[part] >= 0 for part in parts)
        assert sum(device[part] for part in parts) == pytest.approx(cost["total_s"], rel=1e-9)
        assert 0 < device["hbm_bytes"] <= device["hbm_capacity_bytes"]


def test_the_gap_is_the_cost_over_the_bound(run: Run, tables: Path):
    raw = json.loads(run("plan", tables, *H100, "--format", "json").out)
    assert raw["cost"]["total_s"] >= raw["bound"]["value_s"] * (1 - 1e-9)
    assert raw["gap"] == pytest.approx(max(0.0, raw["cost"]["total_s"] / raw["bound"]["value_s"] - 1), abs=1e-12)


def test_o_writes_a_plan_that_loads(run: Run, tables: Path, tmp_path: Path):
    done = run("plan", tables, *H100, "-o", tmp_path / "plan.json")
    assert done.code == 0
    assert "written to" in done.out
    assert load_plan(str(tmp_path / "plan.json")).cluster.world_size == 2


def test_o_and_json_say_the_same(run: Run, tables: Path, tmp_path: Path):
    done = run("plan", tables, *H100, "-o", tmp_path / "plan.json", "--format", "json")
    assert json.loads(done.out)["plan"] == json.loads((tmp_path / "plan.json").read_text())


def test_o_dash_prints_the_plan_alone(run: Run, tables: Path, tmp_path: Path):
    done = run("plan", tables, *H100, "-o", "-")
    run("plan", tables, *H100, "-o", tmp_path / "plan.json")
    assert done.out == (tmp_path / "plan.json").read_text()


def test_stdin_is_a_workload(run: Run, tables: Path):
    from_stdin, from_file = (
        run("plan", *words, *H100, "-o", "-", stdin=text)
        for words, text in ((["-"], tables.read_text()), ([tables], ""))
    )
    assert from_stdin == from_file


def test_csv_takes_batch_size_and_optimizer_from_the_command_line(run: Run, tmp_path: Path):
    (tmp_path / "w.csv").write_text("name,num_embeddings,embedding_dim,pooling_factor\na,1e6,64,2\n")
    done = run("plan", tmp_path / "w.csv", *H100, "--batch-size", 32, "--optimizer", "adam", "-o", "-")
    workload = json.loads(done.out)["workload"]
    assert (workload["batch_size"], workload["optimizer"]) == (32, "adam")
    assert run("plan", tmp_path / "w.csv", *H100).code == 2


def test_options_reach_the_plan(run: Run, tables: Path, tmp_path: Path):
    (tmp_path / "rules.yaml").write_text(
        "schema: recsmith/constraints/1\nrules:\n- {tables: large, sharding_types: [column_wise]}\n"
    )
    done = run(
        "plan", tables, *H100, "--hbm", "60Gib", "--reserve", "10GiB", "--types", "table_wise, column_wise",
        "--kernels", "fused,fused_uvm", "--widths", "torchrec", "--memory", "torchrec", "--planner", "size_greedy",
        "--constraints", tmp_path / "rules.yaml", "--cost-model", "torchrec", "--seed", 3, "-o", "-",
    )  # fmt: skip
    raw = json.loads(done.out)
    assert (raw["cluster"]["hbm_bytes"], raw["cluster"]["reserve_bytes"]) == (60 * 2**30, 10 * 2**30)
    assert raw["constraints"] == {
        "types": ["table_wise", "column_wise"],
        "widths": "torchrec",
        "kernels": ["fused", "fused_uvm"],
        "memory": "torchrec",
        "rules": [{"tables": "large", "sharding_types": ["column_wise"]}],
    }
    assert raw["planner"] == "size_greedy"
    assert raw["placements"][0]["sharding_type"] == "column_wise"


def test_cache_factors_reach_the_plan_and_its_report(run: Run, tables: Path):
    caches = ("--kernels", "fused_uvm_caching,dense", "--cache-factors", "0.3, 0.1", "--types", "table_wise")
    raw = json.loads(run("plan", tables, *H100, *caches, "-o", "-").out)
    assert raw["constraints"]["cache_factors"] == [0.1, 0.3]
    assert {each["cache"]["load_factor"] for each in raw["placements"]} <= {0.1, 0.3}
    said = run("plan", tables, *H100, *caches, "-v").out
    assert "kernels dense, fused_uvm_caching at 0.1, 0.3" in said
    assert f"host     {len(raw['placements'])} tables, " in said
    assert "of weights in host memory: " in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cache-factors", "0.3"), "add one: --kernels fused,dense,fused_uvm_caching"),
        (("--cache-factors", "a"), "could not convert string to float: 'a'; write shares such as 0.1,0.2"),
        (("--cache-factors", "2", "--kernels", "fused_uvm_caching"), "load_factor is 2.0; it must lie above 0"),
    ],
)
def test_cache_factors_that_say_nothing_are_refused(run: Run, tables: Path, words: tuple[str, ...], message: str):
    done = run("plan", tables, *H100, *words)
    assert done.code == 2
    assert message in done.err


def test_a_search_that_is_cut_short_prints_its_best_and_a_note(run: Run):
    done = run("plan", "dlrm-v2", "--cluster", "h100:8", "--time-limit", "0.001ms", "--format", "json")
    assert done.code == 0
    assert done.err == "recsmith: note: the search was cut short; this is the best plan by then\n"
    assert json.loads(done.out)["truncated"] is True


@pytest.mark.parametrize(("owner", "left", "ending"), [(OWN_PROCESS, 1.45, 0.05), (None, 2.0, 0.0)])
def test_a_time_limit_counts_from_the_start_of_a_command_that_has_a_process_to_its_end(
    owner: str | None, left: float, ending: float, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_process, "age_s", lambda: 0.5)
    with click.Context(click.Command("plan"), obj=owner):
        assert left_of_limit(2.0) == pytest.approx(left)
        assert left_of_limit(2.0, tables=1000) == pytest.approx(left - ending)
        assert left_of_limit(2.0, tables=1000, written=True) == pytest.approx(left - 3 * ending)
        assert left_of_limit(None) is None
        assert (left_of_limit(0.1) or 0) > 0


@pytest.mark.filterwarnings("default")
def test_warnings_are_notes_on_stderr(run: Run, tmp_path: Path):
    cells = ["m.a", "1", "1", "1", "pooled", "unweighted", "1", "8", "10"]
    columns = ["FQN", "Sum Pooling Factor", "Sum Num Poolings", "Num Indices", "Output", "Weighted", "Features",
               "Emb Dim (CW Dim)", "Hash Size"]  # fmt: skip
    rows = ["   ".join(row) for row in (columns, ["---"] * 9, cells, cells)]
    lines = ["--- Planner Statistics ---", "Parameter Info:", *rows, "", "Batch Size: 4"]
    (tmp_path / "report.txt").write_text("####\n" + "".join(f"# {line} #\n" for line in lines))
    done = run("plan", tmp_path / "report.txt", *H100)
    assert done.code == 0
    assert done.err.startswith("recsmith: note: ")
    assert done.err.endswith("tables of the same name were numbered: a\n")


@pytest.mark.filterwarnings("default")
def test_a_job_log_is_planned_as_it_is(run: Run, tmp_path: Path):
    job = tmp_path / "job.log"
    job.write_text("".join(SHAPES["torchrun and logger"](bare(name)) for name in ("cached", "mixed")))
    done = run("plan", job, *H100)
    assert done.code == 0
    assert "3 tables" in done.out
    assert done.err.startswith(f"recsmith: note: '{job}' holds 2 different planner reports; the last, which begins in")


def test_a_job_log_without_a_report_or_with_half_of_one_is_refused(run: Run, tmp_path: Path):
    job = tmp_path / "job.log"
    for text, words in (
        ("epoch 1\n" * 9, "no planner report"),
        (bare("mixed")[:5000], "before its 'Batch Size'"),
    ):
        job.write_text(text)
        done = run("plan", job, *H100)
        assert done.code == 2
        assert words in done.err
        assert done.err.count("\n") == 1


# --- usage errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--planner", "atuo"], "no planner is called 'atuo'; did you mean 'auto'?"),
        (["--cost-model", "torchre"], "no cost model is called 'torchre'; did you mean 'torchrec'?"),
        (["--types", "row_wise,tabel_wise"], "no sharding type is called 'tabel_wise'; did you mean 'table_wise'?"),
        (["--types", ","], "at least one sharding type must be allowed"),
        (["--kernels", "fussed"], "no compute kernel is called 'fussed'; did you mean 'fused'?"),
        (["--kernels", ""], "at least one compute kernel must be allowed"),
        (["--optimizer", "adgrad"], "no optimizer is called 'adgrad'; did you mean 'adagrad'?"),
        (["--cluster", "h10:8"], "no device is called 'h10'; did you mean 'h100'?"),
        (["--cluster", "h10"], "did you mean 'h100'?"),
        (["--cluster", "h100:0"], "both must be at least 1"),
        (["--widths", "all"], "'all' is not one of 'torchrec', 'any'"),
        (["--memory", "relly"], "'relly' is not one of 'real', 'torchrec'"),
        (["--format", "yaml"], "'yaml' is not one of 'table', 'json'"),
        (["--hbm", "60"], "'60' is not a quantity with a unit; write for example 60GiB"),
        (["--hbm", "0GiB"], "hbm_bytes is 0 bytes"),
        (["--hbm", "-5GiB"], "'-5GiB' is not a quantity"),
        (["--hbm", "9" * 400 + "GiB"], "larger than any memory"),
        (["--hbm", "9PiB"], "below 2^53"),
        (["--reserve", "lots"], "'lots' is not a quantity"),
        (["--reserve", "1TiB"], "leaves nothing of a device's 79.2 GiB; reserve less"),
        (["--time-limit", "10"], "'10' is not a quantity with a unit; write for example 10s"),
        (["--time-limit", "1 day"], "'1 day' is not a quantity"),
        (["--batch-size", "0"], "0 is not in the range x>=1"),
        (["--batch-size", str(2**53)], "batch_size is 9007199254740992"),
        (["--batch-size", "1.5"], "'1.5' is not a valid integer range"),
        (["--iterations", "0"], "0 is not in the range x>=1"),
        (["--seed", "-1"], "-1 is not in the range x>=0"),
        (["--constraints", "nowhere.yaml"], "cannot read 'nowhere.yaml'"),
        (["-o", "."], "cannot write '.': it is a folder"),
        (["-o", "no/plan.json"], "does not exist; create it first"),
        (["-o", ""], "it is a folder"),
        (["--cluter", "h100"], "no such option '--cluter'. (Did you mean one of: '--cluster', "),
        (["--hbm"], "requires an argument"),
    ],
)
def test_a_wrong_option_ends_with_2_and_says_why(run: Run, tables: Path, words: list[str], message: str):
    done = run("plan", tables, *H100, *words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "schema: recsmith/constraints/1\nrules: [{tables: smal}]",
            "rule 'smal' matches no table; did you mean 'small'",
        ),
        (
            "schema: recsmith/constraints/1\nrules: [{table: small}]",
            "rules[0] ('small').table is not a known field; did you mean 'tables'",
        ),
        ("schema: recsmith/constraints/1\nrules: [{tables: small, sharding_types: [x]}]", "no sharding type is called"),
        ("schema: recsmith/workload/1", "expected `recsmith/constraints/1`"),
        ("rules: []", "names no schema"),
    ],
)
def test_a_bad_constraints_file_ends_with_2(run: Run, tables: Path, tmp_path: Path, text: str, message: str):
    (tmp_path / "rules.yaml").write_text(text)
    done = run("plan", tables, *H100, "--constraints", tmp_path / "rules.yaml")
    assert (done.code, done.out) == (2, "")
    assert message in done.err


@pytest.mark.parametrize("text", ["", "{", "a: b", "\0", "[" * 100_000, "schema: recsmith/plan/1"])
def test_a_bad_workload_ends_with_2_and_one_line(run: Run, text: str):
    done = run("plan", "-", *H100, stdin=text)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("recsmith: '-' ")
    assert done.err.count("\n") == 1


# --- failures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["dlrm-v2", "--cluster", "h100:8", "--hbm", "10GiB", "--types", "table_wise"],
            "fits no device with table_wise",
        ),
        (["dlrm-v2", "--cluster", "h100:1"], "the tables need at least 9"),
    ],
)
def test_no_plan_by_proof_ends_with_3_and_a_change_that_helps(run: Run, words: list[str], message: str):
    done = run("plan", *words)
    assert (done.code, done.out) == (3, "")
    assert message in done.err
    assert "Proved" in done.err
    assert "Checked to work: --hbm" in done.err


def test_no_plan_without_proof_ends_with_1(run: Run, tables: Path, monkeypatch: pytest.MonkeyPatch):
    def give_up(*_: object, **__: object) -> None:
        raise NoPlanFound("nothing was found")

    monkeypatch.setattr("recsmith.planning.plan", give_up)
    assert run("plan", tables, *H100) == (1, "", "recsmith: nothing was found\n")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, MemoryError])
def test_an_early_end_is_one_line_and_1(
    run: Run, tables: Path, monkeypatch: pytest.MonkeyPatch, stop: type[BaseException]
):
    def end(*_: object, **__: object) -> None:
        raise stop

    monkeypatch.setattr("recsmith.planning.plan", end)
    done = run("plan", tables, *H100)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("recsmith: ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["dlrm-v2", "--cluster", "h100:1"], 3),
        (["dlrm-v2", "--cluster", "h100:8", "--planner", "x"], 2),
        (["nowhere.yaml", "--cluster", "h100:8"], 2),
    ],
)
def test_a_run_that_fails_leaves_the_old_file(run: Run, tmp_path: Path, words: list[str], code: int):
    (tmp_path / "plan.json").write_text("old")
    assert run("plan", *words, "--force", "-o", tmp_path / "plan.json").code == code
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("plan.json", "old")]


def test_the_report_says_what_is_missing(run: Run, monkeypatch: pytest.MonkeyPatch):
    from recsmith.planners.auto import annealing_turns
    from recsmith.planners.auto import planner as auto

    search(set_=monkeypatch.setattr)
    monkeypatch.setattr(auto, "is_installed", lambda: False)
    monkeypatch.setattr(annealing_turns, "is_compiled", lambda: False)
    report = " ".join(run("plan", "criteo-kaggle", "--cluster", "h100:4", "--cost-model", "analytic").out.split())
    assert "note neighbourhoods: left out, needs OR-Tools" in report
    assert "note annealing: not compiled for want of a C compiler" in report
    words = ("criteo-kaggle", "--cluster", "h100:4", "--cost-model", "analytic", "-v")
    report = " ".join(run("plan", *words).out.split())
    assert "; neighbourhoods: left out, needs OR-Tools" in report
    assert "; annealing: not compiled for want of a C compiler; plans may be a few per cent longer" in report


# --- 2D jobs ------------------------------------------------------------------------------------------------------


def test_a_group_size_plans_for_a_group_and_says_what_its_replicas_synchronise(run: Run, tables: Path, tmp_path: Path):
    words = ("--cluster", "h100:8x2", "--group-size", "4", "--steps-per-sync", "10", "--inter-host-allreduce", "-v")
    done = run("plan", tables, *words, "--iterations", "1", "-o", tmp_path / "plan.json")
    assert (done.code, done.err) == (0, "")
    assert (
        "h100:8x2, 79.2 GiB less 1.543 GiB reserve a device; sharding groups of 4, 4 replicas, sync every 10 steps"
        in done.out
    )
    assert "on 4 devices of a sharding group" in done.out
    assert "of a step, in bwd comm" in done.out
    cluster = load_plan(str(tmp_path / "plan.json")).cluster
    assert (cluster.world_size, cluster.local_world_size, cluster.job_world_size) == (4, 4, 16)
    priced = run("simulate", tmp_path / "plan.json", "--cost-model", "torchrec")
    assert "not counted by cost model torchrec" in priced.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--group-size", "3"), "do not divide the job's 2"),
        (("--group-size", "1", "--steps-per-sync", "0"), "steps_per_sync is 0"),
        (("--steps-per-sync", "2"), "add --group-size"),
        (("--inter-host-allreduce",), "add --group-size"),
        (("--fully-sharded",), "--fully-sharded says how sharding groups are replicated; add --group-size"),
        (("--group-size", "1", "--fully-sharded", "--stash", "weights"), "replicas divide weights among them"),
        (("--group-size", "1", "--optimizer", "adam"), "optimizer adam in a 2D job"),
    ],
)
def test_groups_that_cannot_be_are_bad_input(run: Run, tables: Path, words: tuple[str, ...], said: str):
    done = run("plan", tables, *H100, *words)
    assert done.code == 2
    assert said in done.err


def test_what_another_data_type_saves_is_printed_and_nothing_is_written(run: Run, tables: Path, tmp_path: Path):
    done = run("plan", tables, *H100, "--planner", "ldm", "--what-if", "data_type=bf16", "--format", "json")
    assert (done.code, [each["name"] for each in json.loads(done.out)["forms"]][1]) == (0, "bf16 alone")
    target = tmp_path / "plan.json"
    done = run("plan", tables, *H100, "--what-if", "data_type=bf16", "-o", target)
    assert (done.code, target.exists()) == (2, False)
    assert "--what-if compares plans and writes none" in done.err
