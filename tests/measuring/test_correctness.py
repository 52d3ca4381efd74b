"""The check that FBGEMM computes what PyTorch does: what it compares, and what it refuses."""

from importlib import import_module
from typing import Any

import pytest

from recsmith.errors import UsageError
from recsmith.hardware import Case

pytestmark = pytest.mark.usefixtures("fbgemm")


def test_a_gpu_that_is_not_there_is_not_checked(monkeypatch: pytest.MonkeyPatch):
    room = import_module("recsmith.measuring.correctness")
    monkeypatch.setattr(room, "require_fbgemm", lambda cuda: "")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for name in ("cuda", "cuda:h200"):
        with pytest.raises(UsageError, match="no CUDA device is visible to PyTorch"):
            room.check(name)


def test_hardware_that_computes_nothing_is_refused():
    room = import_module("recsmith.measuring.correctness")
    with pytest.raises(UsageError, match="hardware simulated:h100 computes no embeddings; check cpu or cuda"):
        room.check("simulated:h100")


def test_the_largest_differences_are_told_by_optimizer_and_data_type(monkeypatch: pytest.MonkeyPatch):
    """The comparison itself has its own tests (tests/hardware/test_pytorch_reference.py)."""
    room = import_module("recsmith.measuring.correctness")
    reference = import_module("recsmith.hardware.pytorch_reference")
    compared: list[Case] = []

    def compare(case: Case, _: Any) -> Any:
        compared.append(case)
        return reference.Difference(case=case, outputs=float(case.number), weights=float(-case.number))

    monkeypatch.setattr(reference, "compare", compare)
    found = room.check("cpu", count=20)
    assert sum(each.cases for each in found) == len(compared) == 20
    assert len(found) == len({(each.optimizer, each.data_type) for each in found})
    for each in found:
        same = [case.number for case in compared
                if (case.workload.optimizer, case.data_type) == (each.optimizer, each.data_type)]  # fmt: skip
        assert (each.cases, each.outputs, each.weights) == (len(same), max(same), -min(same))


@pytest.mark.parametrize(("outputs", "weights", "agrees"), [(1e-4, 0.0, True), (2e-4, 0.0, False), (0.0, 2e-4, False)])
def test_both_outputs_and_weights_must_agree(outputs: float, weights: float, agrees: bool):
    room = import_module("recsmith.measuring.correctness")
    found = room.KernelAgreement(optimizer="sgd", data_type="fp32", cases=1, outputs=outputs, weights=weights)
    assert found.agrees == agrees
