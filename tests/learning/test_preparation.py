"""Before training: outputs that are none are refused, and a missing PyTorch is told from other errors."""

import sys
from pathlib import Path

import pytest

from recsmith.errors import MissingExtra, UsageError
from recsmith.learning.preparation import check_output, import_training


def test_outputs_are_safetensors_in_folders_that_exist(tmp_path: Path):
    check_output(str(tmp_path / "m.safetensors"))
    for output, rule in (
        ("m.bin", "give a name that ends with .safetensors"),
        ("none/m.safetensors", "does not exist"),
    ):
        with pytest.raises(UsageError, match=rule):
            check_output(str(tmp_path / output))


def test_only_a_missing_pytorch_is_an_extra(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        import_training("no_such_module")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match="training needs PyTorch"):
        import_training("torch")
