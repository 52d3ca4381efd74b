"""`recsmith measure`: its words, what it says, and what it refuses."""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest

from recsmith.cli.measure import measure_command

Run = Callable[..., Any]
needs_pyarrow = pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs pyarrow")
WORDS = {
    "compute": ["--hardware", "--budget", "--samples", "--scale", "--planned", "--optimizers", "--data-types", "--seed",
                "--check", "-o --output"],
    "comm": ["--hardware", "--ranks", "--budget", "--samples", "--seed", "-o --output"],
    "kernels": ["--budget", "--cases", "--ranks", "--seed", "-o --output", "--force"],
    "disk": ["folder", "--format"],
    "show": ["folder", "--format"],
    "fold": ["folder"],
}  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_words_are_frozen():
    assert isinstance(measure_command, click.Group)
    found = {name: [" ".join(each.opts) for each in sub.params] for name, sub in measure_command.commands.items()}
    assert found == WORDS
    options = [
        each for sub in measure_command.commands.values() for each in sub.params if isinstance(each, click.Option)
    ]
    assert all(each.help for each in options)


@pytest.mark.parametrize("name", WORDS)
def test_help_has_an_example(run: Run, name: str):
    done = run("measure", name, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"  recsmith measure {name} " in done.out


def test_samples_are_added_to_a_folder_of_the_hardwares_name(run: Run):
    for total in (3, 5):
        done = run("measure", "compute", "--hardware", "simulated:h100?noise=0.1", "--samples", total)
        assert (done.code, done.out) == (0, "")
    assert "note: 2 samples in " in done.err  # pyright: ignore[reportPossiblyUnbound]
    assert "an hour) added to measurements/simulated-h100-noise=0.1" in done.err  # pyright: ignore[reportPossiblyUnbound]
    assert Path("measurements/simulated-h100-noise=0.1/about.json").exists()


@needs_pyarrow
def test_show_prints_for_people_and_programs(run: Run):
    run(
        "measure",
        "compute",
        "--hardware",
        "simulated:a100-80",
        "--scale",
        "cpu",
        "--seed",
        3,
        "--samples",
        20,
        "-o",
        "m",
    )
    lines = run("measure", "show", "m").out
    assert lines.startswith("what     compute on simulated:a100-80, scale cpu, seed 3\nsamples  20: 20 ok; 40 visits\n")
    assert "two samples of a case differ by 0.0% (median), 0.0% (mean) of 2 pairs" in lines
    raw = json.loads(run("measure", "show", "m", "--format", "json").out)
    assert (raw["schema"], raw["samples"]) == ("recsmith/measurements-summary/1", 20)


@needs_pyarrow
def test_fold_makes_parquet_of_a_journal(run: Run, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr("recsmith.measuring.parquet_parts.find_spec", lambda name: None)
        done = run("measure", "compute", "--hardware", "simulated:h100", "--samples", 2, "-o", "m")
        assert "without pyarrow samples stay in the journal; `recsmith measure fold m` makes parquet" in done.err
        done = run("measure", "fold", "m")
        assert (done.code, "pip install 'pyarrow>=20'" in done.err) == (2, True)
    assert run("measure", "fold", "m").err == "recsmith: note: wrote m/part-000000000-000000021.parquet\n"
    assert "nothing to fold" in run("measure", "fold", "m").err


def test_only_what_is_asked_for_is_measured(run: Run):
    words = ("--optimizers", "adagrad", "--data-types", "fp16", "--samples", 3, "-o", "m")
    assert run("measure", "compute", "--hardware", "simulated:h100", *words).code == 0
    assert json.loads(Path("m/about.json").read_text())["optimizers"] == ["adagrad"]


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("compute",), "missing option '--hardware'; see recsmith measure compute --help"),
        (("compute", "--hardware", "cpu"), "nothing says when to stop; give a --budget such as 20m"),
        (("compute", "--hardware", "cpu", "--budget", "0s"), "the budget is 0 s, in which nothing can be measured"),
        (("compute", "--hardware", "cpu", "--budget", "20"), "'20' is not a quantity with a unit"),
        (("compute", "--hardware", "tpu", "--budget", "1s"), "no hardware is called 'tpu'"),
        (("compute", "--hardware", "simulated:h100", "--samples", 1, "--scale", "big"), "no scale is called 'big'"),
        (("compute", "--hardware", "simulated:h100", "--check"), "computes no embeddings; check cpu or cuda"),
        (("compute", "--hardware", "cpu:2", "--check"), "computes no embeddings; check cpu or cuda"),
        (("compute", "--hardware", "simulated:h100", "--samples", 1, "--optimizers", "adamm"), "did you mean 'adam'"),
        (("compute", "--hardware", "simulated:h100", "--samples", 1, "--data-types", "fp8"), "no data type is called"),
        (("comm", "--ranks", 1, "--budget", "1s"), "1 is not in the range x>=2"),
        (("comm", "--ranks", 2), "give a --budget"),
        (("comm", "--ranks", 2, "--samples", 3), "local ranks are measured for a time; give a --budget"),
        (("comm", "--hardware", "cuda", "--samples", 3), "'cuda' has no simulated links; give for example simulated:"),
        (("show", "nowhere"), "holds no measurements"),
        (("show", "shipped:nothing"), "no measurements 'nothing' ship with this version"),
        (("fold", "nowhere"), "holds no measurements"),
    ],
)  # fmt: skip
def test_wrong_words_end_with_2_and_leave_nothing(run: Run, words: tuple[object, ...], rule: str):
    done = run("measure", *words)
    assert (done.code, done.out) == (2, "")
    assert rule in done.err
    assert list(Path().iterdir()) == []


@needs_pyarrow
def test_simulated_ranks_write_the_rows_of_local_ones(run: Run):
    words = ("measure", "comm", "--hardware", "simulated:h100", "--ranks", 16, "--samples")
    for total in (12, 20):
        done = run(*words, total)
        assert (done.code, done.out) == (0, "")
    assert "note: 8 exchanges added to measurements/comm-simulated-h100-16" in done.err  # pyright: ignore[reportPossiblyUnbound]
    shown = run("measure", "show", "measurements/comm-simulated-h100-16").out
    assert shown.startswith(
        "what     all-to-all of 16 simulated ranks, seed 0\nsamples  20\ndevice   h100, simulated\n"
    )
    assert "; alpha-beta fitted to 16 simulated ranks on simulated:h100" in shown
    done = run(*words[:-2], 8, "--samples", 30, "-o", "measurements/comm-simulated-h100-16")
    assert "holds comm measurements of simulated:h100, seed 0, 16 ranks; to add" in done.err


def test_more_ranks_than_cores_are_said_to_measure_the_scheduler(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("recsmith.measuring.comm.measure_comm", lambda *_: 7)
    done = run("measure", "comm", "--ranks", 4096, "--budget", "1s")
    assert "4096 ranks outnumber the cores of this machine: on CPU the scheduler is measured" in done.err
    assert "7 exchanges added to measurements/comm-4096" in done.err
