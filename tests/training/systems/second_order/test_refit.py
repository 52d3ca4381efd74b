"""A model that is fitted again: better on the new data, near the old one, its bound true, and nothing else changed."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torchrec")

import torch
from click.testing import CliRunner
from support.systems import needs_systems

from recsmith.data.batch import ValueMeaning
from recsmith.errors import RecSmithError, UsageError
from recsmith.training import Run, RunData, RunModel, evaluate, load_model, train
from recsmith.training.job.card import CopyOrigin, read_card, weights_digest
from recsmith.training.sources import open_data
from recsmith.training.systems.second_order.command import refit_command
from recsmith.training.systems.second_order.refit import refit
from recsmith.training.systems.second_order.settings import RefitSettings

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
    settings = RefitSettings(method=method, damping=0.01)
    found, scores = refit(
        trained, data, settings=settings, test=clicks(7000, 1000), output=tmp_path / "new", on_progress=said.append
    )
    assert found.damping is not None
    least = solved(trained / "model", data, found.damping)
    assert found.bound is not None
    assert least - 1e-9 <= found.damped <= least + found.bound + 1e-9
    assert found.bound < 1e-5
    assert found.loss < found.loss_before - 0.005
    told: Any = scores
    assert told["new"].ne < told["old"].ne
    assert (trained / "model/weights.safetensors").read_bytes() == before
    assert found.samples == 3000
    assert said[0].startswith("3,000 samples read once; fitting the last layer, 9 weights")
    _compared(trained / "model", tmp_path / "new", only=("over_arch",), loss=found.loss, data=data)
    assert read_card(tmp_path / "new").refit == found


def test_the_damping_is_the_best_on_samples_that_were_held_out(trained: Path, tmp_path: Path) -> None:
    said = list[str]()
    found, scores = refit(
        trained, clicks(4000, 3000), test=clicks(7000, 1000), output=tmp_path / "new", on_progress=said.append
    )
    assert found.tried[f"{found.damping:g}"] == min(found.tried.values())
    assert f"damping {found.damping:g}: log loss" in said[1]
    assert found.loss < found.loss_before - 0.005
    told: Any = scores
    assert told["new"].ne < told["old"].ne


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
    from recsmith.training.systems.second_order import flat

    monkeypatch.setattr(flat.DampedLoss, "gradient", lambda self, at: (0.5, -self.layers.gradient(at, self.parts)[1]))
    with pytest.raises(RecSmithError, match=r"no step lowers the loss of .*; nothing was written"):
        refit(trained, clicks(4000, 500), output=tmp_path / "new", settings=RefitSettings(damping=0.01))
    assert not (tmp_path / "new").exists()


def test_the_command_says_what_came_of_it(trained: Path, tmp_path: Path) -> None:
    for name, first in (("new", 4000), ("test", 5000)):
        spec = {"schema": "recsmith/dataset/1", **clicks(first, 1000)}
        (tmp_path / f"{name}.json").write_text(json.dumps(spec))
    options = [str(trained), "--data", str(tmp_path / "new.json"), "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(refit_command, [*options, "--test", str(tmp_path / "test.json")])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("log loss of a held-out fifth by damping: old: ")
    assert lines[1].startswith("1,000 samples: log loss ")
    assert "above the least" in lines[2]
    assert [line.split()[0] for line in lines[3:]] == ["old", "new"]
    again = CliRunner().invoke(refit_command, [*options, "--format", "json"])
    assert again.exit_code == 0, again.output
    raw = json.loads(again.stdout)
    assert raw["samples"] == 1000
    assert replace(RefitSettings(), samples=200_000) == RefitSettings(**raw["settings"])


def columns(folder: Path, count: int, **changed: Any) -> dict[str, Any]:
    """Samples in a Parquet file, some of its columns as they are given, and the spec of them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    draws = np.random.default_rng(5)
    price, item = draws.normal(size=count), draws.integers(0, 3000, count)
    labels = (draws.random(count) < 1 / (1 + np.exp(-2 * price - (item % 2)))).astype(int)
    made = {"item": item, "price": price, "clicked": labels, **changed}
    folder.mkdir()
    pq.write_table(pa.table(made), folder / "a.parquet")
    return spec(folder)


def spec(folder: Path, rows: int = 2000, ids: str = "modulo", **words: Any) -> dict[str, Any]:
    features = [{"name": "item", "num_embeddings": rows, "ids": ids}]
    named = {"format": "parquet", "paths": [str(folder)], "features": features, "dense": ["price"]}
    return {**named, "labels": ["clicked"], **words}


CLIP = {"op": "clip", "dense": "price", "least": -2.0, "most": 2.0}


@pytest.fixture(scope="module")
def transformed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose ids are taken modulo, and whose dense column is clipped."""
    folder = tmp_path_factory.mktemp("transformed")
    data = columns(folder / "data", 3000)
    run = Run(
        data=RunData(train={**data, "transforms": [CLIP]}, batch_size=100), output=str(folder / "out"),
        model=RunModel(embedding_dim=4, bottom=(4,), top=(4,)),
    )  # fmt: skip
    train(run)
    return folder


@needs_systems("sparse")
def test_data_whose_values_mean_something_else_is_refused_everywhere(transformed: Path, tmp_path: Path) -> None:
    from recsmith.training.systems.sparse.sparsify import sparsify

    data, run = transformed / "data", transformed / "out"
    clip = "clip(dense: price, least: -2, most: 2)"
    cases: list[tuple[dict[str, Any], str]] = [
        (spec(data), rf"no transforms, and the model was trained on data with the transforms {re.escape(clip)}"),
        (spec(data, 1000, transforms=[CLIP]), "ids of feature 'item' modulo 1,000, .* trained on ids modulo 2,000"),
        (
            spec(data, 3000, transforms=[CLIP]),
            "up to 2,999, and the model's go up to 1,999; give a spec with the options of the model's data .*_user_id",
        ),
        (spec(data, 2000, "exact", transforms=[CLIP]), "ids of feature 'item' as they are, .* on ids modulo 2,000"),
        (spec(data, transforms=[{**CLIP, "most": 3.0}]), "the transforms clip.*most: 3.*most: 2"),
    ]
    for given, words in cases:
        with pytest.raises(UsageError, match=words):
            refit(run, given, output=tmp_path / "new")
        with pytest.raises(UsageError, match=words):
            sparsify(run, given, output=tmp_path / "new")
    with pytest.raises(UsageError, match="no transforms, and the model was trained"):
        evaluate(run, data=spec(data))
    assert not (tmp_path / "new").exists()
    assert load_model(run / "model").schema.values == ValueMeaning(modulo={"item": 2000}, transforms=(CLIP,))


@needs_systems("sparse")
def test_copies_are_models_for_all_commands_and_say_what_they_came_from(transformed: Path, tmp_path: Path) -> None:
    from recsmith.training.systems.sparse.settings import SparsitySettings
    from recsmith.training.systems.sparse.sparsify import sparsify

    data = spec(transformed / "data", transforms=[CLIP])
    run, digest = transformed / "out", open_data(data, "data").source.digest
    assert read_card(run / "model").trained_on == digest
    first, scores = refit(run, data, output=tmp_path / "first", test=data)
    second, _ = refit(tmp_path / "first", data, output=tmp_path / "second", settings=RefitSettings(damping=1e-3))
    assert second.loss_before == pytest.approx(first.loss, rel=1e-6)
    card = read_card(tmp_path / "second")
    assert card.origin == CopyOrigin(
        model=str(tmp_path / "first"), weights=weights_digest(tmp_path / "first"), data=data, digest=digest
    )
    sparse, _ = sparsify(
        tmp_path / "first", data, output=tmp_path / "sparse", settings=SparsitySettings(share=0.3, masks=0)
    )
    assert sparse.loss_full == pytest.approx(first.loss, rel=1e-5)
    assert read_card(tmp_path / "sparse").origin is not None
    found = evaluate(tmp_path / "first", data=data)
    assert found.logloss == pytest.approx(scores["new"].logloss, rel=1e-5)
    raw = json.loads((run / "model/card.json").read_text())
    assert raw["model"]["cross_layers"] == RunModel().cross_layers, "defaults of today are those of the model for ever"
    del raw["data"]["values"]  # as older versions wrote it: what nobody kept is not compared
    shutil.copytree(run / "model", tmp_path / "old")
    (tmp_path / "old/card.json").write_text(json.dumps(raw))
    refit(tmp_path / "old", spec(transformed / "data"), output=tmp_path / "third", settings=RefitSettings(damping=0.1))


@needs_systems("sparse")
def test_what_is_no_success_is_refused(transformed: Path, tmp_path: Path) -> None:
    from recsmith.training.systems.sparse.sparsify import sparsify

    run, data = transformed / "out", {"transforms": [CLIP]}
    drawn = np.random.default_rng(1)
    few = columns(tmp_path / "few", 4, clicked=[0, 1, 0, 1]) | data
    noise = columns(tmp_path / "noise", 400, clicked=drawn.integers(0, 2, 400)) | data
    one = columns(tmp_path / "one", 300, clicked=np.ones(300, int)) | data
    with pytest.raises(UsageError, match=r"--data has 4 samples, which are too few to tell 5 weights; give 5 or more"):
        refit(run, few, output=tmp_path / "new")
    with pytest.raises(UsageError, match=r"--data has 3 samples"):
        refit(run, noise, output=tmp_path / "new", settings=RefitSettings(samples=3))
    with pytest.raises(UsageError, match=r"cannot write '/proc/x': .*; choose a folder you may write to"):
        refit(run, noise, output="/proc/x")
    for made in (refit, sparsify):
        with pytest.raises(UsageError, match=r"all 300 samples have clicked 1; give data with both classes"):
            made(run, one, output=tmp_path / "new")
    wide = {**CLIP, "least": -1e35, "most": 1e35}
    huge = columns(tmp_path / "huge", 500, price=drawn.normal(size=500) * 1e30) | {"transforms": [wide]}
    card = json.loads((run / "model/card.json").read_text())
    card["data"]["values"]["transforms"] = [wide]
    shutil.copytree(run / "model", tmp_path / "wide")
    (tmp_path / "wide/card.json").write_text(json.dumps(card))
    for layers in ("last", "dense"):
        settings = RefitSettings(layers=layers, damping=0.01)  # type: ignore[arg-type]
        with pytest.raises((UsageError, RecSmithError), match=r"is not finite|nothing was written"):
            refit(tmp_path / "wide", huge, output=tmp_path / "new", settings=settings)
    assert not (tmp_path / "new").exists()


@needs_systems("sparse")
def test_as_many_samples_are_read_as_are_asked_for_and_corrupt_ones_are_counted(
    transformed: Path, tmp_path: Path
) -> None:
    from recsmith.training.systems.sparse.settings import SparsitySettings
    from recsmith.training.systems.sparse.sparsify import sparsify

    price = np.random.default_rng(5).normal(size=600)
    price[[5, 70]] = np.nan
    data = columns(tmp_path / "data", 600, price=price) | {"transforms": [CLIP], "wrong": "skip"}
    settings, said = RefitSettings(samples=300, damping=0.01), list[str]()
    found, _ = refit(transformed / "out", data, settings=settings, output=tmp_path / "new", on_progress=said.append)
    assert (found.samples, found.corrupt) == (300, 2)
    assert said[0].startswith("300 samples read once; 2 corrupt ones were left out; fitting the last layer")
    cut = SparsitySettings(share=0.3, samples=300, batch_size=128)
    made, _ = sparsify(transformed / "out", data, settings=cut, output=tmp_path / "sparse")
    assert (made.samples, made.corrupt) == (300, 2)
