"""What `-o` may write, in every command that has it: never an input, and other kinds of files only with --force."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
FAST = ("--planner", "size_greedy", "--cost-model", "torchrec")
H100 = ("--cluster", "h100:2")


@pytest.fixture
def files(run: Run, tables: Path, tmp_path: Path) -> dict[str, Path]:
    """A file of each kind, by name."""
    made = {name: tmp_path / f"{name}.json" for name in ("plan", "rules", "cluster")}
    made["rules"].write_text(json.dumps({"schema": "recsmith/constraints/1", "rules": [{"tables": "*"}]}))
    assert run("plan", tables, *H100, *FAST, "-o", made["plan"]).code == 0
    made["cluster"].write_text(json.dumps(json.loads(made["plan"].read_text())["cluster"]))
    return made | {"tables": tables}


COMMANDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "plan": ("tables rules cluster", ("plan", "tables", "--cluster", "cluster", "--constraints", "rules", *FAST)),
    "import": ("plan tables cluster", ("import", "plan", "--workload", "tables", "--cluster", "cluster")),
    "sweep": ("tables rules cluster", ("sweep", "tables", "--devices", "2", "--device", "cluster", "--constraints",
                                       "rules", *FAST)),
    "workload": ("", ("workload", "sample", "--tables", "2")),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_no_output_overwrites_an_input_or_another_kind(run: Run, files: dict[str, Path], tmp_path: Path, name: str):
    inputs, words = COMMANDS[name]
    line = [words[0], *(str(files.get(word, word)) for word in words[1:])]
    before = {path: path.read_bytes() for path in files.values()}
    for word in inputs.split():
        done = run(*line, "--force", "-o", files[word])
        assert (done.code, done.out) == (2, "")
        assert f"cannot write '{files[word]}': this command reads it" in done.err
    (tmp_path / "thesis.txt").write_text("mine")
    done = run(*line, "-o", tmp_path / "thesis.txt")
    assert done.code == 2
    assert "a file of another kind is there and would be lost; give another path, or --force" in done.err
    assert {path: path.read_bytes() for path in files.values()} == before
    assert (tmp_path / "thesis.txt").read_text() == "mine"
    for force in (["--force"], []):  # which then is of the command's own kind
        assert run(*line, *force, "-o", tmp_path / "thesis.txt").code == 0
    assert (tmp_path / "thesis.txt").read_text().startswith('{\n"schema": "recsmith/')


def test_a_sweep_overwrites_its_own_csv_and_no_other(run: Run, tables: Path, tmp_path: Path):
    words = ("sweep", tables, "--devices", "2", "--device", "h100", *FAST, "-o", tmp_path / "points.csv")
    assert [run(*words).code, run(*words).code] == [0, 0]
    (tmp_path / "points.csv").write_text("name,num_embeddings\na,1\n")
    assert "a file of another kind is there" in run(*words).err


def test_learning_overwrites_neither_measurements_nor_the_model_it_starts_from(run: Run, tmp_path: Path):
    from support.learned import write_model

    folder, model = tmp_path / "m", tmp_path / "m" / "about.safetensors"
    folder.mkdir()
    (folder / "about.json").write_text("{}")
    write_model(tmp_path / "here.safetensors")
    for output, rule in ((model, "about.json': this command reads it"), (tmp_path / "here.safetensors", "reads it")):
        start = ("--start", tmp_path / "here.safetensors")
        done = run("learn", "cost", "--data", folder, "-o", output, *start, "--force")
        assert (done.code, rule in done.err) == (2, True)
    (tmp_path / "x.json").write_text("mine")
    assert (
        "x.json': a file of another kind"
        in run("learn", "cost", "--data", folder, "-o", tmp_path / "x.safetensors").err
    )
    (tmp_path / "here.json").unlink()
    other = run("learn", "comm", "--data", folder, "-o", tmp_path / "here.safetensors")
    assert "here.safetensors': a file of another kind" in other.err
    assert "another kind" not in run("learn", "cost", "--data", folder, "-o", tmp_path / "here.safetensors").err


def test_names_of_files_are_printed_without_control_characters(run: Run, files: dict[str, Path], tmp_path: Path):
    """The device of a plan that all commands accept; tables of such names are refused."""
    evil = "\x1b[2J\x9b31m\u202e"
    cluster = json.loads(files["cluster"].read_text())
    cluster["device"]["name"] = evil
    files["cluster"].write_text(json.dumps(cluster))
    plan = tmp_path / "evil.json"
    assert run("plan", files["tables"], "--cluster", files["cluster"], *FAST, "-o", plan).code == 0
    assert json.loads(plan.read_text())["cluster"]["device"]["name"] == evil
    sweep = ("sweep", files["tables"], "--devices", "2", "--device", files["cluster"], *FAST)
    as_json, about = ("--format", "json"), ("--table", "small")
    plans = (("simulate", plan), ("explain", plan, *about), ("diff", plan, plan), ("simulate", plan, *as_json))
    for words in (*plans, sweep, (*sweep, "--format", "csv"), (*sweep, *as_json)):
        done = run(*words)
        assert done.code == 0, done.err
        assert not set(evil) & set(done.out + done.err) - set("[2J31m")
