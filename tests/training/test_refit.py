"""A model that is fitted again: better on the new data, near the old one, its bound true, and nothing else changed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torchrec")

import torch
from click.testing import CliRunner

from recsmith.cli.train import refit_command
from recsmith.errors import RecSmithError, UsageError
from recsmith.training import Run, RunData, RunModel, load_model, train
from recsmith.training.card import RefitSettings, read_card
from recsmith.training.refit import refit
from recsmith.training.sources import open_data

pytestmark = pytest.mark.usefixtures("torchrec")
FEATURES = [{"name": name, "num_embeddings": size} for name, size in (("a", 40), ("b", 90))]
WORDS: dict[str, Any] = {
    "format": "generator", "seed": 2, "dense": 3, "features": FEATURES, "drift": {"kind": "sudden", "samples": 4000},
}  # fmt: skip


def clicks(first: int, samples: int, **words: Any) -> dict[str, Any]:
    """Samples from a number on."""
    return {**WORDS, "first_sample": first, "num_samples": samples, **words}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on samples before the truth changes."""
    output = tmp_path_factory.mktemp("refit") / "out"
    data = RunData(train=clicks(0, 4000), batch_size=100, shuffle=False)
    train(Run(data=data, output=str(output), model=RunModel(embedding_dim=8, bottom=(8,), top=(16, 8))))
    return output


def solved(folder: Path, data: dict[str, Any], damping: float) -> float:
    """The least damped loss of the last layer, by SciPy's way of Newton, written anew with NumPy."""
    model = load_model(folder)
    layer: Any = [each for each in model.task.modules() if isinstance(each, torch.nn.Linear)][-1]
    kept: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    hook = layer.register_forward_pre_hook(lambda _, given: kept.append(given[0].detach().double().numpy()))
    for batch in open_data(data, "data").batches(rank=0, world_size=1, batch_size=500, seed=0, shuffle=False):
        model.predict(batch)
        labels.append(batch.labels[:, 0])
    hook.remove()
    inputs, truth = np.concatenate(kept), np.concatenate(labels)
    inputs = np.concatenate([inputs, np.ones((len(inputs), 1))], 1)
    old = np.append(layer.weight.detach().double().numpy()[0], layer.bias.item())
    weights = old.copy()
    for _ in range(50):
        chances = 1 / (1 + np.exp(-inputs @ weights))
        slope = inputs.T @ (chances - truth) / len(truth) + damping * (weights - old)
        bent = (inputs * (chances * (1 - chances))[:, None]).T @ inputs / len(truth) + damping * np.eye(len(weights))
        weights -= np.linalg.solve(bent, slope)
    logits = inputs @ weights
    loss = np.mean(np.logaddexp(0, logits) - truth * logits) + damping / 2 * np.sum((weights - old) ** 2)
    return float(loss)


@pytest.mark.parametrize("method", ["dance", "progressive_lbfgs"])
def test_the_last_layer_is_fitted_to_its_bound(method: Any, trained: Path, tmp_path: Path) -> None:
    data, said = clicks(4000, 3000), list[str]()
    before = (trained / "model/weights.safetensors").read_bytes()
    settings = RefitSettings(method=method)
    found, scores = refit(
        trained, data, settings=settings, test=clicks(7000, 1000), output=tmp_path / "new", on_progress=said.append
    )
    least = solved(trained / "model", data, settings.damping)
    assert found.bound is not None
    assert least - 1e-9 <= found.damped <= least + found.bound + 1e-9
    assert found.bound < 1e-5
    assert found.loss < found.loss_before - 0.005
    assert scores["new"].ne < scores["old"].ne
    assert (trained / "model/weights.safetensors").read_bytes() == before
    assert found.samples == 3000
    assert said[0].startswith("3,000 samples read once; fitting the last layer, 9 weights")
    _compared(trained / "model", tmp_path / "new", only=("over_arch",), loss=found.loss, data=data)
    assert read_card(tmp_path / "new").refit == found


def _compared(old: Path, new: Path, *, only: tuple[str, ...], loss: float, data: dict[str, Any]) -> None:
    """The new model differs from the old one in some tensors alone, and has the loss that was told."""
    from safetensors.torch import load_file

    before, after = (load_file(folder / "weights.safetensors") for folder in (old, new))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert before.keys() == after.keys()
    assert changed
    assert all(any(part in name for part in only) for name in changed)
    assert not any("embedding_bags" in name for name in changed)
    model, losses = load_model(new), list[float]()
    for batch in open_data(data, "data").batches(rank=0, world_size=1, batch_size=500, seed=0, shuffle=False):
        chances = model.predict(batch).astype(np.float64)
        losses.append(float(-np.where(batch.labels > 0.5, np.log(chances), np.log(1 - chances)).mean()))
    assert np.mean(losses) == pytest.approx(loss, rel=1e-5)


def test_all_dense_layers_fit_better_than_the_last(trained: Path, tmp_path: Path) -> None:
    data = clicks(4000, 1000)
    last, _ = refit(trained, data, output=tmp_path / "last")
    found, _ = refit(trained, data, settings=RefitSettings(layers="dense", damping=1e-3), output=tmp_path / "dense")
    assert found.loss < last.loss
    assert found.bound is None
    _compared(trained / "model", tmp_path / "dense", only=("over_arch", "dense_arch"), loss=found.loss, data=data)


def test_more_damping_holds_it_nearer(trained: Path, tmp_path: Path) -> None:
    losses = [
        refit(trained, clicks(4000, 500), settings=RefitSettings(damping=each), output=tmp_path / "new")[0].loss
        for each in (0.001, 0.1, 10.0)
    ]
    assert losses == sorted(losses)
    assert losses[0] < losses[-1]


def test_what_cannot_be_fitted_is_refused_and_nothing_is_written(trained: Path, tmp_path: Path) -> None:
    other = clicks(0, 100, features=[*FEATURES, {"name": "c", "num_embeddings": 5}])
    cases: list[tuple[dict[str, Any], str]] = [
        ({"data": other}, "--data has features a, b, c, and the model was trained on a, b; give data of the same"),
        ({"data": clicks(0, 100, dense=4)}, "has dense columns .*, and the model was trained on"),
        ({"data": clicks(0, 20, teacher={"positive_rate": 0.001})}, "all 20 samples have .* 0; give data with both"),
        ({"data": clicks(0, 100), "output": trained / "model"}, "is the model itself, which stays as it is"),
        ({"data": clicks(0, 100), "output": tmp_path}, "holds no model that was fitted again"),
    ]
    for words, sentence in cases:
        with pytest.raises(UsageError, match=sentence):
            refit(trained, **{"output": tmp_path / "new", **words})
    with pytest.raises(UsageError, match="holds no trained model"):
        refit(tmp_path, clicks(0, 100))
    with pytest.raises(UsageError, match="damping is 0"):
        RefitSettings(damping=0)
    assert not (tmp_path / "new").exists()
    assert not (trained / "refit").exists()


def test_a_line_search_that_fails_writes_nothing(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recsmith.training.optimizers import flat

    monkeypatch.setattr(flat.DampedLoss, "gradient", lambda self, at: (0.5, -self.layers.gradient(at, self.parts)[1]))
    with pytest.raises(RecSmithError, match=r"no step lowers the loss of .*; nothing was written"):
        refit(trained, clicks(4000, 500), output=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_command_says_what_came_of_it(trained: Path, tmp_path: Path) -> None:
    for name, first in (("new", 4000), ("test", 5000)):
        spec = {"schema": "recsmith/dataset/1", **clicks(first, 1000)}
        (tmp_path / f"{name}.json").write_text(json.dumps(spec))
    options = [str(trained), "--data", str(tmp_path / "new.json"), "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(refit_command, [*options, "--test", str(tmp_path / "test.json")])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("1,000 samples: log loss ")
    assert "above the least" in lines[1]
    assert [line.split()[0] for line in lines[2:]] == ["old", "new"]
    again = CliRunner().invoke(refit_command, [*options, "--format", "json"])
    assert again.exit_code == 0, again.output
    raw = json.loads(again.stdout)
    assert raw["samples"] == 1000
    assert replace(RefitSettings(), samples=200_000) == RefitSettings(**raw["settings"])
