"""Scores by label, and scores that have no meaning: null in every file, in words for people, no point in a picture."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torchrec")

import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import recsmith.jobs.log as board
from recsmith.cli.train import evaluate_command
from recsmith.data import open_dataset, spec_from_raw
from recsmith.errors import UsageError
from recsmith.scoring.predictions import exact_scores
from recsmith.scoring.scores import known_score, scores_text
from recsmith.training import Run, RunData, RunMetrics, RunModel, evaluate, load_model, train
from recsmith.training.job.log import RunLog, progress_text

pytestmark = pytest.mark.usefixtures("torchrec")
MINE = """
import torch


class Mine(torch.nn.Module):
    def __init__(self, tables, dense, outputs):
        super().__init__()
        self.tables, self.out = tables, torch.nn.Linear(4 + dense, outputs)

    def forward(self, dense, features):
        return self.out(torch.cat([self.tables(features).values(), dense], 1))


def build(tables, dense, outputs=2):
    return Mine(tables, dense, outputs)
"""


def two_labels(folder: Path) -> dict[str, Any]:
    """Samples with two labels, of which nobody ever `bought`, as the spec of them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    drawn = np.random.default_rng(4)
    items = drawn.integers(0, 30, 200)
    clicked = (items % 3 == 0) ^ (drawn.random(200) < 0.2)
    columns = {"item": items, "price": drawn.random(200), "clicked": clicked.astype(int), "bought": np.zeros(200, int)}
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "a.parquet")
    features = [{"name": "item", "num_embeddings": 30}]
    words = {"format": "parquet", "paths": [str(folder)], "features": features}
    return {**words, "dense": ["price"], "labels": ["clicked", "bought"]}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, Any], list[str]]:
    """A run on two labels, what came of it, and what was said."""
    folder = tmp_path_factory.mktemp("labels")
    (folder / "two_outputs.py").write_text(MINE)
    data = two_labels(folder / "data")
    run = Run(
        data=RunData(train=data, test=data, batch_size=50), output=str(folder / "out"), ranks=1,
        model=RunModel(name="two_outputs:build", embedding_dim=4), metrics=RunMetrics(every=2), checkpoint=None,
    )  # fmt: skip
    (folder / "run.json").write_text(json.dumps({"schema": "recsmith/run/1"}))
    said = list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        return run, train(run, on_progress=lambda message: said.append(progress_text(message))), said


def predicted(run: Run, label: int) -> tuple[np.ndarray, np.ndarray]:
    """(probabilities, labels) of one label, by the exported model."""
    model, dataset = load_model(Path(run.output) / "model"), open_dataset(spec_from_raw(dict(run.data.test), "test"))
    batches = list(dataset.batches(rank=0, world_size=1, batch_size=64, seed=0, shuffle=False, drop_last=False))
    found = np.concatenate([model.predict(each)[:, label] for each in batches])
    return found, np.concatenate([each.labels[:, label] for each in batches])


def test_each_label_has_scores_of_its_own_everywhere(
    trained: tuple[Run, dict[str, Any], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, result, said = trained
    monkeypatch.syspath_prepend(Path(run.output).parent)
    test = result["test"]
    for number, name in enumerate(("clicked", "bought")):
        chances, labels = predicted(run, number)
        loss = -np.log(np.where(labels > 0, chances, 1 - chances)).mean()
        assert test["labels"][name]["logloss"] == pytest.approx(loss, rel=1e-5)
    assert 0.5 < test["labels"]["clicked"]["auc"] < 1
    assert [test["labels"]["bought"][each] for each in ("ne", "auc", "calibration")] == [None] * 3
    assert [test[each] for each in ("ne", "auc", "calibration")] == [None] * 3, "a mean over labels that lack it"
    losses = [each["logloss"] for each in test["labels"].values()]
    assert test["logloss"] == pytest.approx(sum(losses) / 2)
    lines = [json.loads(line) for line in Path(run.output, "log.jsonl").read_text().splitlines()]
    train_line = [line for line in lines if line["event"] == "train"][-1]
    assert train_line["labels"].keys() == {"clicked", "bought"}
    assert train_line["labels"]["bought"]["ne"] is None
    step = next(line for line in said if line.startswith("step "))
    assert "(clicked: log loss 0." in step
    assert "bought: log loss" in step
    done = CliRunner().invoke(evaluate_command, [run.output, "--format", "json"], catch_exceptions=False)
    assert json.loads(done.stdout)["labels"] == {
        name: {key: value and pytest.approx(value, rel=1e-5) for key, value in each.items()}
        for name, each in test["labels"].items()
    }


def test_precision_over_recall_is_told_where_it_is_asked_for(
    trained: tuple[Run, dict[str, Any], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _, _ = trained
    monkeypatch.syspath_prepend(Path(run.output).parent)
    scores = evaluate(run.output, pr_auc=True, ranks=2)
    chances, labels = predicted(run, 0)
    order = np.argsort(-chances, kind="stable")
    precision = np.cumsum(labels[order]) / np.arange(1, len(order) + 1)  # of thresholds that differ
    last = np.append(np.diff(chances[order]) != 0, True)
    recall = np.cumsum(labels[order]) / labels.sum()
    expected = np.sum(np.diff(np.append(0, recall[last])) * precision[last])
    assert scores.labels is not None
    assert scores.labels["clicked"].pr_auc == pytest.approx(expected, rel=1e-6)
    assert scores.labels["bought"].pr_auc in (None, 1.0)  # all labels are equal
    assert f"PR-AUC {expected:.5f}" in scores_text(scores)


def test_a_model_of_one_output_and_data_of_two_labels_is_one_sentence(
    trained: tuple[Run, dict[str, Any], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _, _ = trained
    monkeypatch.syspath_prepend(Path(run.output).parent)
    wrong = (f"output={tmp_path / 'out'}", "model.arguments={outputs: 1}")
    with pytest.raises(UsageError) as refused:
        train(run, settings=wrong)
    assert str(refused.value) == (
        "the model returns logits of shape (50, 1) for 50 samples, and the data has 2 labels (clicked, bought); return "
        "one logit for each label of a sample, or name as many labels"
    )


@given(labels=st.lists(st.booleans(), max_size=9), seed=st.integers(0, 9))
def test_a_score_without_meaning_is_null(labels: list[bool], seed: int) -> None:
    logits = torch.randn(len(labels), generator=torch.Generator().manual_seed(seed))
    found = exact_scores(logits[:, None], torch.tensor(labels, dtype=torch.float32)[:, None], ("label",))
    both = any(labels) and not all(labels)
    assert (found.logloss is None) == (not labels)
    assert (found.ne is None) == (found.auc is None) == (not both)
    assert (found.calibration is None) == (not any(labels))
    text = scores_text(found)
    assert "None" not in text
    assert "nan" not in text
    assert ("all labels are equal" in text) == (bool(labels) and not both)
    if not both:
        with pytest.raises(UsageError, match=r"data.test has no NE \(.*\); give data with samples of both classes"):
            known_score({"logloss": found.logloss, "ne": found.ne}, "ne", "data.test")


def test_predictions_that_are_not_finite_have_no_scores() -> None:
    found = exact_scores(torch.tensor([[float("nan")], [0.0]]), torch.tensor([[1.0], [0.0]]), ("label",))
    assert (found.logloss, found.ne, found.calibration, found.auc) == (None, None, None, None)


def test_tensorboard_has_labels_apart_and_no_point_of_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points: dict[str, float] = {}
    writer = SimpleNamespace(add_scalar=lambda name, value, _: points.update({name: value}), close=lambda: None)
    monkeypatch.setattr(board, "import_module", lambda _: SimpleNamespace(SummaryWriter=lambda *_, **__: writer))
    log = RunLog(tmp_path, 0, tensorboard=True, step=0)
    labels = {"clicked": {"logloss": 0.4, "ne": 0.9}, "bought": {"logloss": 0.6, "ne": None}}
    log.write("train", {"step": 1, "logloss": 0.5, "ne": None, "labels": labels})
    assert points == {
        "train/logloss": 0.5, "train/clicked/logloss": 0.4, "train/clicked/ne": 0.9, "train/bought/logloss": 0.6,
    }  # fmt: skip
