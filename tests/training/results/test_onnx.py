"""ONNX: scores of the model in torch to 1e-6 on rows of any lengths, and operators that ONNX lacks are named."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torchrec")
pytest.importorskip("onnxscript", reason="needs onnxscript")
pytest.importorskip("onnxruntime", reason="needs onnxruntime")

from training.results.test_exports import MODELS, ROWS, SEQUENCES, written

from recsmith.errors import CorruptFile, UsageError
from recsmith.training import RunModel, load_model, load_onnx
from recsmith.training.results.exporting import export_model

FEW = ("dlrm", "mmoe", "two_tower")  # an export takes five CPU seconds
pytestmark = pytest.mark.usefixtures("torchrec")


@pytest.mark.parametrize(
    "name", [each if each in FEW else pytest.param(each, marks=pytest.mark.soak) for each in MODELS]
)
def test_scores_are_those_of_torch(name: str, tmp_path: Path):
    weighted = name in ("dlrm", "deepfm")
    model = written(tmp_path / "model", MODELS[name], weighted=weighted)
    columns = export_model(model, tmp_path / "served", runtime="onnx")
    assert not (tmp_path / "served/weights.safetensors").exists()
    served, trained = load_onnx(tmp_path / "served"), load_model(model)
    assert set(served.row_reader.names) == set(columns)
    for rows in (ROWS, ROWS[:1], [{**each, "tags": [], "importance": []} for each in ROWS[:3]]):
        np.testing.assert_allclose(served.predict_rows(rows), trained.predict_rows(rows), rtol=1e-6, atol=1e-6)
    with pytest.raises(UsageError, match="column 'user' holds the id 30, and its table has 30 rows"):
        served.predict_rows([{**ROWS[0], "user": 30}])


def build(tables: object, dense: int) -> object:
    """A model of one's own with an operator that ONNX lacks."""
    import torch

    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables, self.last = tables, torch.nn.Linear(24 + dense, 1)

        def forward(self, values: torch.Tensor, features: object) -> torch.Tensor:
            together = torch.cat([values, self.tables(features).values()], dim=1)  # type: ignore[operator]
            return torch.special.bessel_j0(self.last(together))

    return Own()


def test_a_model_that_cannot_be_exported_is_refused_with_its_operator(tmp_path: Path):
    own = RunModel(name="training.results.test_onnx:build", embedding_dim=8)
    for name, model, said in (
        ("own", own, "has operator prims::bessel_j0, which ONNX lacks"),
        ("din", SEQUENCES["din"], "fbgemm::asynchronous_complete_cumsum, an operator that ONNX lacks"),
        ("bf16", RunModel(precision="bf16"), "the model has model.precision: bf16"),
    ):
        with pytest.raises(UsageError, match=said):
            export_model(written(tmp_path / name, model), tmp_path / "served", runtime="onnx")
        assert not (tmp_path / "served").exists()
    with pytest.raises(UsageError, match="an export for ONNX has tables in fp32, not int8"):
        export_model(tmp_path / "own", tmp_path / "served", runtime="onnx", tables="int8")


def test_a_folder_that_holds_another_kind_of_model_says_which(tmp_path: Path):
    model = written(tmp_path / "model", MODELS["mmoe"])
    with pytest.raises(UsageError, match=r"holds no model\.onnx; make one by `recsmith export RUN --for onnx"):
        load_onnx(model)
    (model / "model.onnx").write_bytes(b"nothing")
    with pytest.raises(CorruptFile, match="cannot be loaded"):
        load_onnx(model)
    with pytest.raises(UsageError, match=r"load it by recsmith\.training\.load_onnx"):
        load_model(model)
