"""Exports with tables in fp16 and int8 as TorchRec stores them: scores, bytes, deltas, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torchrec")

from safetensors.torch import load_file, save_file

from recsmith.data import DataFeature, DataSchema
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import dump_json, encode
from recsmith.training import RunModel, RunTable, RunTask, load_model
from recsmith.training.job.models import build_task
from recsmith.training.results.exporting import export_model

pytestmark = pytest.mark.usefixtures("torchrec")
SIZES = {"user": 30, "item": 20, "tags": 40}
ROWS: list[dict[str, Any]] = [
    {"user": at % 30, "item": 7 * at % 20, "tags": [(3 * at + k) % 40 for k in range(at % 5)],
     "importance": [0.5 + k for k in range(at % 5)], "age": at / 9, "price": -at / 4}
    for at in range(32)
]  # fmt: skip
TWO = (RunTask(label="click"), RunTask(label="seconds", loss="mse"))
SHARED = tuple(
    RunTable(name=name, num_embeddings=SIZES[of], features=(of,), pooling="mean" if of == "item" else "sum")
    for name, of in (("user", "user"), ("item", "item"), ("tags", "tags"), ("tags_wide", "tags"))
)  # fmt: skip
MODELS = {
    "dlrm": RunModel(name="dlrm", embedding_dim=8, bottom=(8,), top=(8,)),
    "dlrm_dcn": RunModel(name="dlrm_dcn", embedding_dim=8, bottom=(8,), top=(8,), tables=SHARED),
    "deepfm": RunModel(name="deepfm", embedding_dim=8),
    "mmoe": RunModel(name="mmoe", embedding_dim=8, tables=SHARED, tasks=TWO),
    "ple": RunModel(name="ple", embedding_dim=8, tasks=TWO),
    "wide_deep": RunModel(name="wide_deep", embedding_dim=8),
    "two_tower": RunModel(name="two_tower", embedding_dim=8, loss="softmax", arguments={"item": ["item", "tags"]}),
}
SEQUENCES = {
    "din": RunModel(name="din", embedding_dim=8, arguments={"history": ["tags"], "target": ["item"]}),
}


def schema(model: RunModel, *, weighted: bool = False) -> DataSchema:
    sizes = SIZES if model.name != "din" else {**SIZES, "item": 40}
    weights = {"tags": "importance"} if weighted else {}
    columns = [{"name": name, "num_embeddings": size, "weights": weights.get(name)} for name, size in sizes.items()]
    return DataSchema(
        features=tuple(
            DataFeature(name=name, num_embeddings=size, weighted=name in weights) for name, size in sizes.items()
        ),
        dense=("age", "price"), labels=("click", "seconds") if model.tasks else ("click",),
        number_labels=("seconds",) if model.tasks else (),
        raw={"features": columns, "dense": ["age", "price"], "nulls": []},
    )  # fmt: skip


def written(folder: Path, model: RunModel, **words: bool) -> Path:
    """A model as a run exports it, with weights as large as trained ones."""
    import torch

    folder.mkdir()
    data = schema(model, **words)
    torch.manual_seed(0)
    state = {name: each + 0.3 * torch.randn_like(each) if each.is_floating_point() else each
             for name, each in build_task(model, data, 0, tables_on="cpu").state_dict().items()}  # fmt: skip
    save_file(state, folder / "weights.safetensors")
    card = {"schema": "recsmith/model/1", "model": encode(model), "data": encode(data), "seed": 0, "step": 3}
    (folder / "card.json").write_text(dump_json(card))
    return folder


def tables_of(folder: Path) -> dict[str, Any]:
    return {name: each for name, each in load_file(folder / "weights.safetensors").items() if "embedding" in name}


@pytest.mark.parametrize("tables", ["fp16", "int8"])
@pytest.mark.parametrize("name", [*MODELS, *SEQUENCES])
def test_a_model_with_smaller_tables_says_what_their_rows_stand_for(name: str, tables: Any, tmp_path: Path):
    from recsmith.training.results.quantised_tables import dequantised

    model = {**MODELS, **SEQUENCES}[name]
    whole = written(tmp_path / "model", model)
    export_model(whole, tmp_path / "served", tables=tables)
    stored = tables_of(tmp_path / "served")
    meant = {key: dequantised(each) for key, each in stored.items()}
    save_file({**load_file(whole / "weights.safetensors"), **meant}, whole / "weights.safetensors")
    expected = load_model(whole).predict_rows(ROWS)
    served = load_model(tmp_path / "served")
    np.testing.assert_allclose(served.predict_rows(ROWS), expected, rtol=2e-5, atol=1e-6)
    assert len(np.unique(expected[:, 0])) > 20
    for key, each in stored.items():
        rows, columns = meant[key].shape
        assert each.nbytes == rows * (columns * 2 if tables == "fp16" else columns + 4)
    for key, each in meant.items():
        assert np.array_equal(served.table(key.split(".")[-2]), each.numpy())


def test_rows_in_int8_are_half_a_step_away_at_most():
    import torch

    from recsmith.training.results.quantised_tables import dequantised, quantised

    rows = torch.randn(500, 16)
    off = (dequantised(quantised(rows, "int8")) - rows).abs()
    step = (rows.amax(1) - rows.amin(1)) / 255
    assert bool((off <= 0.51 * step[:, None] + 2e-3).all()), "2e-3: scale and bias are fp16"
    assert float(off.mean()) > 1e-4
    assert bool((dequantised(quantised(torch.full((3, 8), 0.25), "int8")) == 0.25).all()), "a row of one value"


def test_weights_of_ids_count_in_smaller_tables_too(tmp_path: Path):
    whole = written(tmp_path / "model", MODELS["dlrm"], weighted=True)
    export_model(whole, tmp_path / "served", tables="int8")
    full, small = (load_model(each).predict_rows(ROWS) for each in (whole, tmp_path / "served"))
    np.testing.assert_allclose(small, full, atol=0.02)
    alike = [{**each, "importance": [1.0] * len(each["tags"])} for each in ROWS]
    assert np.abs(load_model(tmp_path / "served").predict_rows(alike) - small).max() > 0.01


def test_deltas_of_smaller_tables_are_of_the_rows_that_changed(tmp_path: Path):
    from recsmith.training import apply_deltas, make_delta

    monday = written(tmp_path / "monday", MODELS["dlrm"])
    tuesday = written(tmp_path / "tuesday", MODELS["dlrm"])
    state = load_file(tuesday / "weights.safetensors")
    name = next(key for key in state if ".user.weight" in key)
    state[name][[3, 8]] += 1
    save_file(state, tuesday / "weights.safetensors")
    for day in (monday, tuesday):
        export_model(day, tmp_path / f"{day.name}.int8", tables="int8")
    delta = make_delta(tmp_path / "monday.int8", tmp_path / "tuesday.int8", tmp_path / "delta")
    assert delta.changed_rows == 2
    apply_deltas(tmp_path / "monday.int8", [tmp_path / "delta"], tmp_path / "made")
    weights = "weights.safetensors"
    assert (tmp_path / "made" / weights).read_bytes() == (tmp_path / "tuesday.int8" / weights).read_bytes()


def test_what_serves_alone_is_not_trained_on(tmp_path: Path):
    from recsmith.training import evaluate
    from recsmith.training.systems.warm_start.trained import open_trained

    export_model(written(tmp_path / "model", MODELS["dlrm"]), tmp_path / "served", tables="int8")
    for asked in (lambda: evaluate(tmp_path / "served"), lambda: export_model(tmp_path / "served", tmp_path / "again"),
                  lambda: open_trained(str(tmp_path / "served")).card):  # fmt: skip
        with pytest.raises(UsageError, match="has tables in int8, as `recsmith export` stored them"):
            asked()
    card = tmp_path / "model/card.json"
    card.write_text(card.read_text().replace('"model": {', '"model": {"table_module": "mine:Tables", ', 1))
    with pytest.raises(UsageError, match=r"the model has model\.table_module, and --tables stores plain tables"):
        export_model(tmp_path / "model", tmp_path / "no", tables="fp16")
    assert not (tmp_path / "no").exists()


def test_a_damaged_model_is_not_exported(tmp_path: Path):
    card = written(tmp_path / "model", MODELS["dlrm"]) / "card.json"
    card.write_text(card.read_text().replace("{", '{"fingerprint": "0123456789abcdef", ', 1))
    for words in ({"tables": "fp32"}, {"tables": "int8"}, {"runtime": "onnx"}):
        with pytest.raises(CorruptFile, match=r"are not those that its card\.json was written with"):
            export_model(tmp_path / "model", tmp_path / "served", **words)  # pyright: ignore[reportArgumentType]
        assert not (tmp_path / "served").exists()
