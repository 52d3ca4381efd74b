"""Training that ends when test scores get no better: when, and with which model kept."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest
from training.test_jobs import a_run, data

from recsmith.errors import UsageError
from recsmith.files import encode
from recsmith.training import RunData, RunMetrics, Scores, evaluate, run_to_raw, train
from recsmith.training.launch.dry_run import described

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]


def asked(settings: dict[str, Any], values: list[float | None], score: str = "auc") -> list[tuple[str, str] | None]:
    """What the watcher asks for after each of these evaluations."""
    from recsmith.training.watchers.early_stopping import EarlyStopping
    from recsmith.training.watchers.protocol import SeenScores

    watcher, job = EarlyStopping(**{"keep_best": False, "score": score, **settings}), cast(Any, None)
    found: list[tuple[str, str] | None] = []
    for step, value in enumerate(values, 1):
        scores = {"samples": 9, "logloss": None, "ne": None, "calibration": None, "auc": None, score: value}
        wish = watcher.look_at_scores(SeenScores(step, Scores(**scores), job))
        found.append(None if wish is None else (wish.what, wish.because))
        again = EarlyStopping(**{"keep_best": False, "score": score, **settings})
        again.from_raw(watcher.to_raw())  # as after a restart
        watcher = again
    return found


def test_training_ends_when_scores_get_no_better():
    assert asked({"patience": 2}, [0.6, 0.7, 0.69, 0.71, 0.71, None])[:5] == [None] * 5
    (*_, last) = asked({"patience": 2}, [0.6, 0.7, 0.69, 0.71, 0.71, None])
    assert last == ("stop", "auc on test data got no better in 2 evaluations; the best was 0.71 of step 4")
    assert asked({"patience": 1, "least": 0.05}, [0.6, 0.64])[1] is not None
    assert asked({"patience": 1}, [0.9, 0.8, 0.7], "ne") == [None] * 3  # less is better
    assert asked({"patience": 1}, [None], "ne")[0] == (
        "stop", "ne on test data got no better in 1 evaluations; there was none"
    )  # fmt: skip


def test_training_ends_when_scores_are_good_enough():
    found = asked({"patience": None, "target": 0.8}, [0.7, 0.8])
    assert found == [None, ("stop", "auc on test data is 0.8, as good as 0.8")]
    assert asked({"patience": None, "target": 0.8}, [0.9, 0.79], "ne")[1] is not None


def test_an_end_that_a_roll_back_dropped_is_asked_for_again():
    from recsmith.training.watchers.early_stopping import EarlyStopping
    from recsmith.training.watchers.protocol import SeenScores

    watcher = EarlyStopping(score="auc", target=0.8, keep_best=False)
    seen = SeenScores(1, Scores(samples=9, logloss=None, ne=None, calibration=None, auc=0.9), cast(Any, None))
    assert [watcher.look_at_scores(seen) is None for _ in range(2)] == [False, True]
    watcher.leave()
    assert watcher.look_at_scores(seen) is not None


def test_a_job_ends_early_and_its_best_model_is_kept(tmp_path: Path):
    watcher = {"name": "early_stopping", "patience": 2, "least": 1.0}  # nothing is so much better than the first
    run = a_run(
        tmp_path / "out", ranks=2, steps=400, watchers=(watcher,), checkpoint=None,
        metrics=RunMetrics(every=100, evaluate_every=4),
    )  # fmt: skip
    result = train(run)
    assert 12 <= result["step"] < 40
    lines: list[Any] = [json.loads(line) for line in (tmp_path / "out/log.jsonl").read_text().splitlines()]
    (said,) = (line for line in lines if line["event"] == "watcher")
    assert (said["what"], said["done"]) == ("stop", "training ends")
    first = next(line for line in lines if line["event"] == "test")
    best = evaluate(tmp_path / "out/best", data=data(20_000, 101))
    assert first["step"] == 4
    assert encode(best)["ne"] == pytest.approx(first["ne"], rel=1e-6)
    assert result["test"]["ne"] != pytest.approx(first["ne"], rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"score": "mse"}, "score is 'mse'; known: ne, logloss, rmse, auc"),
        ({"patience": 0}, "patience is 0"),
        ({"target": float("nan")}, "target is nan"),
        ({"patience": None, "keep_best": False}, "so it does nothing"),
    ],
)
def test_settings_without_sense_are_refused_before_training(settings: dict[str, Any], said: str, tmp_path: Path):
    run = a_run(
        tmp_path / "out", watchers=({"name": "early_stopping", **settings},), metrics=RunMetrics(evaluate_every=4)
    )
    with pytest.raises(UsageError, match=said):
        described(run)


def test_a_run_that_never_evaluates_is_refused(tmp_path: Path):
    run = a_run(tmp_path / "out", watchers=("early_stopping",), data=RunData(train=data(0, 960), batch_size=48))
    assert run_to_raw(run)["watchers"] == ["early_stopping"]
    with pytest.raises(UsageError, match=r"the run has no data\.test; give it data\.test"):
        described(run)
