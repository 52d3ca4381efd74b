"""The check that FBGEMM computes what PyTorch does: what it compares, and what it refuses."""

from importlib import import_module

import pytest

from recsmith.errors import UsageError

pytestmark = pytest.mark.usefixtures("fbgemm")


def test_a_gpu_that_is_not_there_is_not_checked(monkeypatch: pytest.MonkeyPatch):
    room = import_module("recsmith.measuring.compute.correctness")
    monkeypatch.setattr(room, "require_fbgemm", lambda cuda: "")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for name in ("cuda", "cuda:h200"):
        with pytest.raises(UsageError, match="no CUDA device is visible to PyTorch"):
            room.check(name)


def test_hardware_that_computes_nothing_is_refused():
    room = import_module("recsmith.measuring.compute.correctness")
    with pytest.raises(UsageError, match="hardware simulated:h100 computes no embeddings; check cpu or cuda"):
        room.check("simulated:h100")


def test_cases_are_counted_by_optimizer_and_data_type():
    room = import_module("recsmith.measuring.compute.correctness")
    found = room.check("cpu", count=6)
    assert sum(each.cases for each in found) == 6
    assert [(each.optimizer, each.data_type) for each in found] == sorted(
        {(each.optimizer, each.data_type) for each in found}
    )
    assert all(each.agrees and each.outputs > 0 for each in found if each.data_type == "fp16")
    assert all(each.agrees for each in found)


@pytest.mark.parametrize(("outputs", "weights", "agrees"), [(1e-4, 0.0, True), (2e-4, 0.0, False), (0.0, 2e-4, False)])
def test_both_outputs_and_weights_must_agree(outputs: float, weights: float, agrees: bool):
    room = import_module("recsmith.measuring.compute.correctness")
    found = room.Agreement(optimizer="sgd", data_type="fp32", cases=1, outputs=outputs, weights=weights)
    assert found.agrees == agrees
