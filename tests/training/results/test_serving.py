"""A trained model in one process: what it is asked is checked, and a damaged folder ends in one sentence."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torchrec")

from safetensors.torch import save_file

from recsmith.data import Batch, DataFeature, DataSchema, JaggedIds
from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.files import dump_json, encode
from recsmith.training import RunModel, RunTable, load_model
from recsmith.training.job.models import build_task
from recsmith.training.results import serving
from recsmith.training.results.serving import Predictor
from recsmith.training.tables.features import keyed_jagged

MODEL = RunModel(embedding_dim=4, bottom=(4,), top=(4,))


def schema(*, weighted: bool) -> DataSchema:
    """A feature of single ids, and one of bags, whose ids may have weights."""
    features = (
        DataFeature(name="item", num_embeddings=30),
        DataFeature(name="tags", num_embeddings=50, weighted=weighted),
    )
    return DataSchema(features=features, dense=("age", "price"), labels=("click",))


def exported(folder: Path, *, weighted: bool = False) -> Path:
    """A model as a run exports it."""
    folder.mkdir()
    data = schema(weighted=weighted)
    task = build_task(MODEL, data, 0, tables_on="cpu")
    save_file(task.state_dict(), folder / "weights.safetensors")
    card = {"schema": "recsmith/model/1", "model": encode(MODEL), "data": encode(data), "seed": 0, "step": 3}
    (folder / "card.json").write_text(dump_json(card))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    """A model without weights."""
    return load_model(exported(tmp_path_factory.mktemp("plain") / "model"))


@pytest.fixture(scope="module")
def weighing(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    """A model whose tags have weights."""
    return load_model(exported(tmp_path_factory.mktemp("weighted") / "model", weighted=True))


IDS = {"item": [[3], [4]], "tags": [[1, 2], []]}
DENSE = [[0.5, 1.0], [0.0, 0.0]]


def test_samples_have_probabilities(model: Predictor) -> None:
    found = model(IDS, DENSE)
    assert found.shape == (2, 1)
    assert ((found > 0) & (found < 1)).all()


@pytest.mark.parametrize(
    ("ids", "dense", "said"),
    [
        (
            {"item": [[30], [4]]},
            DENSE,
            r"feature 'item' has id 30, and its table 30 rows; give whole numbers from 0 to 29",
        ),
        ({"tags": [[-1], []]}, DENSE, "feature 'tags' has id -1, and its table 50 rows"),
        ({"tags": [[1.5], []]}, DENSE, r"feature 'tags' has id 1\.5"),
        ({"tags": [[2**64], []]}, DENSE, "feature 'tags' has id 18446744073709551616, and its table 50 rows"),
        ({"tags": [["a"], []]}, DENSE, "feature 'tags' has id 'a'"),
        ({"tags": [3, 4]}, DENSE, r"feature 'tags' is \[3, 4\]; give a list of ids for each sample"),
        ({"tag": [[1], []]}, DENSE, "ids of feature 'tag' are not known; give ids of item, tags"),
        (
            {},
            [[0.5, float("nan")], [0.0, 0.0]],
            "sample 0 has dense value 'price' nan, and dense values and weights are finite",
        ),
        ({}, [[0.5, 1.0], [float("inf"), 0.0]], "sample 1 has dense value 'age' inf"),
        ({}, [[0.5], [1.0]], "of 2 dense columns"),
        ({}, [["x", 1.0], [0.0, 0.0]], "dense are not numbers"),
    ],
)
def test_what_the_model_does_not_know_is_named(model: Predictor, ids: Any, dense: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        model({**IDS, **ids}, dense)


def test_weights_weigh(weighing: Predictor) -> None:
    once = weighing(IDS, DENSE, {"tags": [[2.0, 0.0], []]})
    twice = weighing({**IDS, "tags": [[1, 1], []]}, DENSE, {"tags": [[1.0, 1.0], []]})
    np.testing.assert_allclose(once, twice, rtol=1e-6)
    assert abs(float(once[0, 0] - weighing(IDS, DENSE, {"tags": [[1.0, 1.0], []]})[0, 0])) > 1e-6


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({}, "weights of feature 'tags' are missing; give weights of tags"),
        (
            {"tags": [[1.0, 1.0], []], "item": [[1.0], [1.0]]},
            "weights of feature 'item' are given",
        ),
        ({"tags": [[1.0], []]}, "feature 'tags' has weights for other numbers of ids"),
        ({"tags": [[1.0, float("nan")], []]}, "sample 0 has weight of 'tags' nan"),
    ],
)
def test_wrong_weights_are_named(weighing: Predictor, weights: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        weighing(IDS, DENSE, weights)


def test_ids_without_weights_beside_others_weigh_one() -> None:
    bags = {
        "a": JaggedIds(values=np.array([1, 2]), lengths=np.array([1, 1], np.int32)),
        "b": JaggedIds(values=np.array([3]), lengths=np.array([0, 1], np.int32), weights=np.array([0.5], np.float32)),
    }
    assert keyed_jagged(["a", "b"], bags).weights().tolist() == [1.0, 1.0, 0.5]
    assert keyed_jagged(["a"], bags).weights_or_none() is None


def test_damaged_files_end_in_one_sentence(tmp_path: Path) -> None:
    folder = exported(tmp_path / "model")
    card, weights = (folder / "card.json").read_text(), (folder / "weights.safetensors").read_bytes()
    raw = json.loads(card)
    cards = [
        "", "[]", card[:-9], dump_json({**raw, "seed": "x"}), dump_json({k: v for k, v in raw.items() if k != "data"}),
        dump_json({**raw, "model": {**raw["model"], "embedding_dim": 8}}), dump_json({**raw, "odd": 1}),
    ]  # fmt: skip
    for text in cards:
        (folder / "card.json").write_text(text)
        with pytest.raises(CorruptFile, match="model"):
            load_model(folder)
    (folder / "card.json").write_text(card)
    for data in (b"", weights[:100], weights[:-5], b"\xff" * 300, weights.replace(b'"F32"', b'"I32"', 1)):
        (folder / "weights.safetensors").write_bytes(data)
        with pytest.raises(CorruptFile, match=r"weights\.safetensors' is"):
            load_model(folder)
    (folder / "weights.safetensors").unlink()
    with pytest.raises(RecSmithError, match=r"weights\.safetensors"):
        load_model(folder)
    os.mkfifo(folder / "weights.safetensors")
    with pytest.raises(RecSmithError, match=r"weights\.safetensors': it is a pipe"):
        load_model(folder)


@pytest.mark.parametrize("name", ["items", "keys", "values", "pop", "type", "a.b"])
def test_a_table_that_pytorch_cannot_hold_is_refused_with_what_to_write(name: str) -> None:
    data = DataSchema(features=(DataFeature(name=name, num_embeddings=9),), dense=(), labels=("click",))
    with pytest.raises(UsageError, match=r"cannot be the name of a table .* model.tables: \[\{name: table_"):
        build_task(MODEL, data, 0, tables_on="cpu")
    tables = (RunTable(name="t", num_embeddings=9, features=(name,)),)
    task = build_task(RunModel(embedding_dim=4, bottom=(4,), top=(4,), tables=tables), data, 0, tables_on="cpu")
    batch = Batch(
        dense=np.zeros((2, 0), np.float32),
        ids={name: JaggedIds(values=np.array([1, 8]), lengths=np.array([1, 1], np.int32))},
        labels=np.zeros((2, 1), np.float32), label_names=("click",), sample_ids=np.arange(2),
    )  # fmt: skip
    from recsmith.training.batches import as_tensors
    from recsmith.training.tables.plain import features_of

    assert np.isfinite(float(task(as_tensors(batch, features_of(task)))[0].detach()))


def test_layers_that_no_memory_holds_are_refused() -> None:
    with pytest.raises(UsageError, match=r"model.bottom is 1,125,899,906,842,624; it must be at most 1,048,576"):
        build_task(replace(MODEL, bottom=(1 << 50,)), schema(weighted=False), 0)


def test_a_dense_layer_is_no_table_of_its_name() -> None:
    from recsmith.training.job.sharded import table_of

    assert table_of("model.sparse_arch.embedding_bag_collection.embedding_bags.0.weight") == "0"
    assert table_of("model.over_arch.model.0.weight") is None


def test_weights_that_a_memory_limit_has_no_room_for_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = exported(tmp_path / "model")
    size = (folder / "weights.safetensors").stat().st_size
    monkeypatch.setattr(serving, "memory_held", lambda: 1000)
    monkeypatch.setattr(serving, "memory_limit", lambda: 1000 + size)
    load_model(folder)
    monkeypatch.setattr(serving, "memory_limit", lambda: 999 + size)
    with pytest.raises(UsageError, match=r"weights.safetensors' has .*, and the limit is .*; raise it, export with"):
        load_model(folder)
