"""`watch` of a run: faults are named, on any ranks and after a restart at the same step; actions; bad input."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec")
pytest.importorskip("river")
pytest.importorskip("datasketches")

from recsmith.errors import UsageError
from recsmith.training import Checkpointing, Run, RunData, RunMetrics, RunModel, train
from recsmith.training.watchers.sketch_files import read_sketches

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
pytestmark = pytest.mark.usefixtures("torchrec")
BATCH, STEPS = 128, 320
FAULTS = {"zeros": [201, 240], "flipped": [273, 320]}


@pytest.fixture(autouse=True)
def jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources that break are on the path, of ranks too."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv("PYTHONPATH", str(BENCHMARKS), prepend=":")


def a_run(output: Path, **fields: Any) -> Run:
    features = [{"name": name, "num_embeddings": 500, "zipf": 1.05} for name in ("f0", "f1")]
    generator = {
        "num_samples": BATCH * (STEPS + 10),
        "features": features,
        "dense": 1,
        "seed": 3,
        "teacher": {"signal": 3.0},
    }
    values: dict[str, Any] = {
        "data": RunData(train={"source": "watching_jobs:Disturbed", "generator": generator, "faults": FAULTS},
                        global_batch_size=BATCH),
        "model": RunModel(embedding_dim=8, bottom=(8,), top=(8,)), "output": str(output), "steps": STEPS, "ranks": 1,
        "watch": {"sketch_every": 96, "kinds": ["constant_feature", "flipped_labels", "hot_set", "loss"],
                  "cooldown": 200, "actions": {"constant_feature": "save", "flipped_labels": "save"}},
        "checkpoint": Checkpointing(every=1000), "metrics": RunMetrics(every=64), "plan": "auto",
    }  # fmt: skip
    return Run(**{**values, **fields})


def alarms(folder: Path) -> list[tuple[int, str, str]]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [(each["step"], each["kind"], each["because"]) for each in lines if each["event"] == "alarm"]


def test_faults_are_named_at_the_same_step_on_ranks_and_after_a_restart(tmp_path: Path) -> None:
    train(a_run(tmp_path / "one"))
    found = alarms(tmp_path / "one")
    assert [(step, kind) for step, kind, _ in found] == [(216, "constant_feature"), (288, "flipped_labels")]
    assert found[0][2] == "all ids of feature 'f0' are 0"

    lines = [json.loads(line) for line in (tmp_path / "one/log.jsonl").read_text().splitlines()]
    done = [(each["what"], each["because"], each["done"]) for each in lines if each["event"] == "watcher"]
    assert done == [("save", "all ids of feature 'f0' are 0", "saved")]  # once in 200 steps
    assert [each["action"] for each in lines if each["event"] == "alarm"] == ["save"] * 2

    train(a_run(tmp_path / "cut", steps=205, ranks=2))
    train(a_run(tmp_path / "cut", ranks=2))
    assert alarms(tmp_path / "cut") == found
    step, sketches = read_sketches(tmp_path / "cut")
    _, of_one = read_sketches(tmp_path / "one")
    assert step == 288
    for name in ("f0", "f1"):  # of the steps after the restart, on both ranks
        assert sketches[name].bags == pytest.approx(of_one[name].bags * (288 - 205) / 96, rel=0.15)


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    for watch, message in (
        ("on", "watch is 'on'; it is auto, none, or a mapping"),
        ({"every": 0}, "watch.every is 0; 1 or more"),
        ({"kinds": ["los"]}, "watch.kinds names 'los'; did you mean 'loss'"),
        ({"actions": {"hot_sets": "save"}}, "watch.actions names 'hot_sets'; did you mean 'hot_set'"),
        ({"actions": {"loss": "sve"}}, "save"),
        ({"kinds": ["loss"], "actions": {"ne": "save"}}, "which watch.kinds does not"),
        ({"evry": 3}, "every"),
    ):
        with pytest.raises(UsageError, match=message):
            a_run(tmp_path, watch=watch)
    with pytest.raises(UsageError, match=r"plan is the file 'p.json'.* write plan: auto"):
        a_run(tmp_path, watch={"actions": {"hot_set": "replan"}}, plan="p.json")
    with pytest.raises(UsageError, match=r"watch.features names 'f9', which the data does not have"):
        train(a_run(tmp_path / "out", watch={"features": ["f9"]}))


def test_a_watch_without_its_packages_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from recsmith.streaming.job_signals import JobSignals
    from recsmith.streaming.job_sums import JobLayout

    monkeypatch.setitem(sys.modules, "river.drift", None)
    signals = JobSignals(JobLayout(("f",), (), 1, ((1.0,),)))
    assert signals.missing is not None
    assert "needs river: pip install" in signals.missing
    assert not signals.hot
    assert "loss" in signals.series
