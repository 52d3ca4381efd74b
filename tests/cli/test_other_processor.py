"""What `recsmith plan` says where a learned model knows another processor than this machine's."""

from pathlib import Path

import pytest
from support.learned import write_model

from recsmith.cli.plan import note_other_processor
from recsmith.jobs import machine


def _notes(cost_model: str, capsys: pytest.CaptureFixture[str]) -> str:
    note_other_processor(cost_model)
    return capsys.readouterr().err


def test_another_processor_is_named_with_the_commands_that_adapt_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "describe_cpu", lambda: "Chip B, 8 cores, last cache 9K")
    name = write_model(tmp_path / "m.safetensors", device="Chip A, 2 cores, last cache 9K")
    said = _notes(name, capsys)
    assert "measured on Chip A, 2 cores, last cache 9K; this machine is Chip B, 8 cores" in said
    assert f"recsmith learn cost --data here -o here.safetensors --start {tmp_path / 'm.safetensors'}" in said


def test_the_same_processor_other_models_and_gpus_are_not_spoken_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "describe_cpu", lambda: "Chip A, 8 cores, last cache 9K")
    same = write_model(tmp_path / "cpu.safetensors", device="Chip A, 2 cores, last cache 9K")
    gpu = write_model(tmp_path / "gpu.safetensors", hardware="cuda", device="GPU, 132 SMs")
    assert [_notes(name, capsys) for name in (same, gpu, "analytic")] == ["", "", ""]
