"""A delta of each period: with the first model they make the last one, bit for bit, also where a job was ended."""

import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from training.systems.periods.test_period_jobs import a_run

from recsmith.errors import UsageError
from recsmith.training import train

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
WEIGHTS = "weights.safetensors"


def test_deltas_of_periods_make_the_last_model_of_the_first(tmp_path: Path):
    from recsmith.training import apply_deltas

    run = a_run(tmp_path / "out", ranks=2, watchers=("period_deltas",))
    train(run)
    folder = tmp_path / "out/deltas"
    names = [f"period-{period:05d}" for period in (1, 2, 3)] + ["last"]
    assert sorted(each.name for each in folder.iterdir()) == sorted(["first", "newest", *names])
    apply_deltas(folder / "first", [folder / name for name in names], tmp_path / "made")
    trained = (tmp_path / "out/model" / WEIGHTS).read_bytes()
    assert (tmp_path / "made" / WEIGHTS).read_bytes() == trained
    assert (folder / "newest" / WEIGHTS).read_bytes() != trained

    again = tmp_path / "again"  # ended within period 1, whose delta of period 2 was there already
    shutil.copytree(tmp_path / "out", again)
    shutil.rmtree(again / "model")
    for each in (again / "checkpoints").iterdir():
        if int(each.name.removeprefix("step-")) > 7:
            shutil.rmtree(each)
    shutil.rmtree(again / "deltas/last")
    train(run, settings=(f"output={again}",))
    apply_deltas(again / "deltas/first", [again / "deltas" / name for name in names], tmp_path / "again-made")
    assert (tmp_path / "again-made" / WEIGHTS).read_bytes() == trained


def test_a_run_without_periods_or_that_never_scores_the_next_one_is_refused(tmp_path: Path):
    from recsmith.training.launch.launching import dry_run

    run = a_run(tmp_path / "out", watchers=("period_deltas",))
    with pytest.raises(UsageError, match=r"the run has no data\.periods; give it some"):
        dry_run(replace(run, data=replace(run.data, periods=None)))
    with pytest.raises(UsageError, match=r"score_ahead is \[2\]; add 1 to it"):
        dry_run(run, settings=("data.periods.score_ahead=[2]",))
