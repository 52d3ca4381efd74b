"""Variants side by side: each pair of neighbours in turn, what is there already is not trained again."""

import json
from pathlib import Path
from typing import Any

import pytest

from recsmith.errors import CorruptFile, RecSmithError
from recsmith.files import dump_json
from recsmith.reports.benchmarks import variant_lines
from recsmith.training import Run, RunData, load_run, save_run
from recsmith.training.results import variants
from recsmith.training.results.variants import TrainBench, bench_train
from recsmith.training.run import run_to_raw

SPEED = {
    ("a", 0): 100.0,
    ("a", 1): 200.0,
    ("a", 2): 100.0,
    ("c", 0): 1.0,
    ("b", 0): 150.0,
    ("b", 1): 200.0,
    ("b", 2): 300.0,
}


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the folders of trainings, in order; a training writes its log and tells its scores."""
    order: list[str] = []

    def train(base: Run, *, settings: tuple[str, ...]) -> dict[str, Any]:
        run = load_run(base, settings)
        folder = Path(run.output)
        folder.mkdir(parents=True)
        order.append(folder.name)
        name, _, seed = folder.name.partition("-")
        words = {"event": "train", "data_s": 0.001, "forward_s": 0.002, "backward_s": 0.003}
        lines = [{**words, "samples_per_s": speed} for speed in (1.0, SPEED[name, int(seed)])]
        (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        if folder.name == "c-0":
            return {"complete": False, "sent_bytes": 1024, "peak_bytes": 2048}
        return {"complete": True, "sent_bytes": 1024, "peak_bytes": 2048, "test": {"auc": 0.7, "ne": 0.9}}

    monkeypatch.setattr(variants, "train", train)
    return order


def a_bench(folder: Path, **words: Any) -> TrainBench:
    save_run(Run(data=RunData(train="x", test="y"), output="out"), folder / "run.json")
    values: dict[str, Any] = {"variants": {"a": (), "b": ("data.batch_size=64",)}, "seeds": (0, 1, 2)}
    return TrainBench(run=str(folder / "run.json"), **{**values, **words})


def test_neighbours_change_places_and_speeds_are_compared_seed_by_seed(tmp_path: Path, trained: list[str]):
    rows = bench_train(a_bench(tmp_path), tmp_path / "bench")
    assert trained == ["a-0", "b-0", "b-1", "a-1", "a-2", "b-2"]
    assert rows[0].faster is None
    assert rows[1].faster == (1.0, 1.5, 3.0)
    assert rows[0].samples_per_s == 100.0  # the first line of a run, which counts what it sends, is left out
    head, first, second = variant_lines(rows)
    assert "beside first" in head
    assert "(" not in first
    assert "1.50 (1.00-3.00)" in second


def test_what_is_there_is_not_trained_again_and_other_settings_are_refused(tmp_path: Path, trained: list[str]):
    bench_train(a_bench(tmp_path, seeds=(0,)), tmp_path / "bench")
    bench_train(a_bench(tmp_path), tmp_path / "bench")
    assert sorted(trained) == ["a-0", "a-1", "a-2", "b-0", "b-1", "b-2"]
    with pytest.raises(CorruptFile, match="was measured with other settings; give another folder"):
        bench_train(a_bench(tmp_path, variants={"a": ("seed=3",)}), tmp_path / "bench")


def test_what_was_reached_before_its_run_was_changed_is_refused(tmp_path: Path, trained: list[str]):
    bench = a_bench(tmp_path, seeds=(0,))
    bench_train(bench, tmp_path / "bench")
    run = Path(bench.run)
    run.write_text(dump_json(run_to_raw(load_run(run, ("metrics.every=7",)))))
    with pytest.raises(CorruptFile, match="was measured with other settings; give another folder"):
        bench_train(bench, tmp_path / "bench")


def test_a_training_that_a_signal_ended_is_no_row(tmp_path: Path, trained: list[str]):
    with pytest.raises(RecSmithError, match="was asked to end; trainings that are done are kept"):
        bench_train(a_bench(tmp_path, variants={"a": (), "c": ()}, seeds=(0,)), tmp_path / "bench")
    assert (tmp_path / "bench" / "a-0" / "measured.json").exists()
    assert not (tmp_path / "bench" / "c-0" / "measured.json").exists()
