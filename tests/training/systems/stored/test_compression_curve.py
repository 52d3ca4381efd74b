"""Curves of AUC against bytes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import recsmith.training.systems.stored.curve as module
from recsmith.errors import UsageError
from recsmith.reports.compressions import curve_lines, curve_picture
from recsmith.training import Run, RunData
from recsmith.training.systems.stored.curve import compression_curve, read_trainings

SPEC = {"format": "generator", "num_samples": 200, "features": [{"name": "item", "num_embeddings": 5000}]}


def a_run() -> Run:
    return Run(data=RunData(train=SPEC, test=SPEC), output="unused")


def trained_by(calls: list[Run], ends_at: int | None = None) -> Any:
    """In place of a job: an AUC that says method, size and seed; it is killed at one of its calls."""

    def train(run: Run) -> Any:
        if len(calls) == ends_at:
            raise KeyboardInterrupt
        calls.append(run)
        return {"complete": True, "test": {"auc": 0.7 + 0.01 * run.seed - 0.1 * len(run.model.compression)}}

    return train


def test_a_curve_goes_on_where_it_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls: list[Run] = []
    folder = str(tmp_path / "curve")
    monkeypatch.setattr(module, "train", trained_by(calls, ends_at=3))
    with pytest.raises(KeyboardInterrupt):
        compression_curve(a_run(), ["hash", "mixed_dimension"], [4.0, 2.0], 2, folder)
    lines = tmp_path / "curve" / "trainings.jsonl"
    with lines.open("a") as cut:
        cut.write('{"method": "ha')
    monkeypatch.setattr(module, "train", trained_by(calls))
    said: list[str] = []
    curve = compression_curve(a_run(), ["hash", "mixed_dimension"], [4.0, 2.0], 2, folder, said.append)
    assert len(calls) == 10
    assert len(said) == 7
    assert len({(each.method, each.factor, each.seed) for each in read_trainings(lines)}) == 10
    assert [(point.method, point.factor) for point in curve] == [
        ("full", 1.0), ("hash", 2.0), ("hash", 4.0), ("mixed_dimension", 2.0), ("mixed_dimension", 4.0),
    ]  # fmt: skip
    assert curve[0].weight_bytes == 4 * 16 * 5000
    assert curve[0].bytes / curve[2].bytes == pytest.approx(4, rel=0.01)
    assert curve[3].map_bytes == 4 * 5000
    assert curve[0].auc == pytest.approx(0.705)
    assert curve[0].auc_within == pytest.approx(12.706 * 0.005, rel=1e-3)  # t at 95 %, two values 0.01 apart
    assert len(curve_lines(curve)) == 6
    drawn = ElementTree.fromstring(curve_picture(curve))
    assert len(drawn.findall(".//{*}circle")) == 5
    assert len(drawn.findall(".//{*}polyline")) == 3


def test_another_run_is_not_mixed_into_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "train", trained_by([]))
    compression_curve(a_run(), ["hash"], [2.0], 1, str(tmp_path))
    assert json.loads((tmp_path / "trainings.jsonl").read_text().splitlines()[0])["method"] == "full"
    with pytest.raises(UsageError, match="holds trainings of another run"):
        compression_curve(replace(a_run(), steps=3), ["hash"], [2.0], 1, str(tmp_path))
    without = replace(a_run(), data=RunData(train=SPEC))
    with pytest.raises(UsageError, match=r"has no data\.test"):
        compression_curve(without, ["hash"], [2.0], 1, str(tmp_path))


def test_a_factor_out_of_reach_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "train", trained_by([]))
    said: list[str] = []
    curve = compression_curve(a_run(), ["quotient_remainder"], [1e6], 1, str(tmp_path), said.append)
    assert [point.method for point in curve] == ["full"]
    assert "is left out" in said[-1]
