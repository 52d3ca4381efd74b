"""The first changes of an advice are trained for real, beside the run as it is."""

import os
import signal
import tempfile
import threading
from pathlib import Path

import pytest

pytest.importorskip("torchrec")

from recsmith.advising.trials import check_idle, check_steps, speed_in, with_trials
from recsmith.analyses.advice import Advice, Advised, Switch
from recsmith.analyses.aims import JobPrice
from recsmith.errors import RecSmithError, UsageError
from recsmith.reports.advice import advice_lines, advice_to_raw
from recsmith.training import Run, RunData, RunModel

pytestmark = pytest.mark.usefixtures("torchrec")
DATA = {
    "format": "generator", "seed": 1, "dense": 2, "num_samples": 20_000,
    "features": [{"name": "a", "num_embeddings": 1000}, {"name": "b", "num_embeddings": 1000}],
}  # fmt: skip


def a_run(folder: Path) -> Run:
    test = {**DATA, "first_sample": 20_000, "num_samples": 512}
    return Run(
        data=RunData(train=DATA, test=test, batch_size=64),
        model=RunModel(embedding_dim=8, bottom=(8,), top=(8,)), ranks=1, output=str(folder / "out"),
    )  # fmt: skip


def advice_on(verdict: str) -> Advice:
    base = JobPrice(step_s=1.0, samples=64, memory_bytes=1, error=0.2)
    switch = Switch(
        name="twice the batch", change="", settings=("data.batch_size=128",), quality="not measured", page="train.md"
    )  # fmt: skip
    some = Advised(switch=switch, verdict=verdict, why="", price=base, gain=0.3, gain_error=0.06)  # type: ignore[arg-type]
    return Advice(base=base, about=(), switches=(some,), together=(), joined=base)


def test_what_pays_is_trained_beside_the_run_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    heard: list[str] = []
    made = with_trials(advice_on("pays"), a_run(tmp_path), (), 16, seeds=(0,), on_progress=heard.append)
    assert heard == ["the run as it is, seed 0", "twice the batch, seed 0"]
    assert made.tried is not None
    (tried,) = made.tried
    assert (tried.name, tried.told, tried.told_error, tried.seeds, tried.steps) == ("twice the batch", 0.3, 0.06, 1, 16)
    assert -5 < tried.gain < 1
    assert tried.score == "auc"
    assert tried.delta is not None
    assert abs(tried.delta) < 1
    assert list(tmp_path.iterdir()) == []
    lines = advice_lines(made)
    assert "Tried here, 16 steps of 1 seeds each, in turn with the run as it is" in lines
    assert any(line.startswith("  twice the batch: predicted +30.0% ± 6.0%, measured ") for line in lines)
    raw = advice_to_raw(made)
    assert raw["tried"][0]["name"] == "twice the batch"


def test_ctrl_c_ends_a_trial_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = threading.Event()

    def interrupt() -> None:
        while not ended.wait(0.05):
            if any(log.stat().st_size for log in tmp_path.glob("recsmith-try-*/out/log.jsonl")):
                os.kill(os.getpid(), signal.SIGINT)
                return

    waiting = threading.Thread(target=interrupt)
    waiting.start()
    try:
        with pytest.raises((RecSmithError, KeyboardInterrupt)):
            with_trials(advice_on("pays"), a_run(tmp_path), (), 100_000)
    finally:
        ended.set()
        waiting.join()
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_pays_nothing_is_trained(tmp_path: Path):
    made = with_trials(advice_on("no"), a_run(tmp_path), (), 16)
    assert made.tried == ()
    assert advice_lines(made)[-1] == "  nothing, for nothing pays"


def test_a_trial_whose_data_ends_is_refused(tmp_path: Path):
    """A stream may end before the steps are done; a dataset is read again."""
    (tmp_path / "log.jsonl").write_text('{"event": "train", "step": 2, "samples_per_s": 9.0}\n')
    with pytest.raises(UsageError, match="the data of the run ends after 2 steps; try fewer, or give more data"):
        speed_in(tmp_path)


def test_a_busy_machine_and_too_few_steps_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (2 * len(os.sched_getaffinity(0)), 0.0, 0.0))
    with pytest.raises(UsageError, match=r"the load average of this machine is .* say nothing; try again below"):
        check_idle()
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    check_idle()
    with pytest.raises(UsageError, match="3 steps of a trial tell nothing; try at least 16"):
        check_steps(3)
