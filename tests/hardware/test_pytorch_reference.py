"""FBGEMM beside torch.nn.EmbeddingBag: outputs and updated weights agree, and a wrong one is seen."""

from importlib import import_module
from typing import Any

import pytest
from support.measured import group

pytestmark = pytest.mark.usefixtures("fbgemm")
SHAPES = ((200, 64, 5.0, 1.0), (3, 8, 2.5, 0.0), (50, 12, 0.0, 0.0), (1, 4, 1.0, 1.6))


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "rowwise_adagrad"])
@pytest.mark.parametrize(("data_type", "rounding"), [("fp32", 2e-5), ("fp16", 2e-3)])
def test_outputs_and_updates_agree(optimizer: Any, data_type: Any, rounding: float):
    room, torch = import_module("recsmith.hardware.pytorch_reference"), import_module("torch")
    case = group(*SHAPES, optimizer=optimizer, data_type=data_type)
    found = room.compare(case, torch.device("cpu"))
    assert found.outputs <= rounding
    assert found.weights <= rounding


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "rowwise_adagrad"])
def test_another_update_is_seen(monkeypatch: pytest.MonkeyPatch, optimizer: Any):
    room, torch = import_module("recsmith.hardware.pytorch_reference"), import_module("torch")
    ours = room.FusedTables
    monkeypatch.setattr(
        room, "FusedTables", lambda case, memory, learning_rate, **_: ours(case, memory, learning_rate / 2)
    )
    found = room.compare(group(*SHAPES, optimizer=optimizer), torch.device("cpu"))
    assert min(found.outputs, found.weights) > 1e-3
