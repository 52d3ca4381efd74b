"""The measurements that ship with the package: as many and as steady as docs/measurements.md says."""

import json
from pathlib import Path

import numpy as np
import pytest

from recsmith.errors import CorruptFile, UsageError
from recsmith.measuring import about as abouts
from recsmith.measuring.about import About, folders_in, load_about, locate, write_about
from recsmith.measuring.samples import read_samples
from recsmith.measuring.summary import summarize

ABOUT = About(kind="compute", hardware="cpu", seed=3, scale="check", optimizers=("sgd",), data_types=("fp32",))


def test_what_is_written_is_read(tmp_path: Path):
    write_about(tmp_path, ABOUT)
    assert load_about(tmp_path) == ABOUT
    write_about(tmp_path, ABOUT)


def test_another_run_and_strange_files_are_refused(tmp_path: Path):
    other = About(kind="comm", hardware="local ranks", seed=0, ranks=2)
    write_about(tmp_path, ABOUT)
    with pytest.raises(
        UsageError, match="holds compute measurements of cpu, seed 3, scale check, sgd, fp32; to add comm"
    ):
        write_about(tmp_path, other)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds 'notes.txt' and no about.json"):
        write_about(tmp_path / "b", other)


@pytest.mark.parametrize("change", [{"schema": "recsmith/measurements/0"}, {"kind": None, "seed": None}])
def test_damage_is_named(tmp_path: Path, change: dict[str, str | None]):
    write_about(tmp_path, ABOUT)
    raw = json.loads((tmp_path / "about.json").read_text()) | change
    raw = {key: value for key, value in raw.items() if value is not None}
    (tmp_path / "about.json").write_text(json.dumps(raw))
    with pytest.raises(CorruptFile, match=r"about.json"):
        load_about(tmp_path)


@pytest.fixture(autouse=True)
def parquet() -> None:
    pytest.importorskip("pyarrow")


def test_enough_cpu_samples_ship_and_two_of_one_case_are_close():
    found = summarize(locate("shipped:cpu"))
    assert found.samples >= 16_000
    assert found.counts["ok"] >= 11_000
    assert found.noise.pairs > 500
    assert found.noise.median is not None
    assert found.noise.mean is not None
    assert found.noise.median <= 0.05
    assert found.noise.mean <= 0.10
    assert not found.failures


@pytest.mark.parametrize("name", ["cpu", "cpu-drawn", "cpu-planned"])
def test_shipped_samples_are_whole(name: str):
    samples = read_samples(locate(f"shipped:{name}"))
    assert (samples.forward_s > 0).all()
    assert (samples.backward_s > 0).all()
    assert (samples.dim % 4 == 0).all()
    assert np.array_equal(samples.reuse_bins.sum(axis=1), samples.unique_rows)
    assert (samples.unique_rows <= np.minimum(samples.lookups, samples.rows)).all()
    assert set(samples.optimizer.tolist()) == {"sgd", "adagrad", "rowwise_adagrad"}
    assert set(samples.data_type.tolist()) == {"fp16", "fp32"}


def test_a_path_is_itself_and_shipped_sets_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert locate("a/b") == Path("a/b")
    monkeypatch.setattr(abouts, "SAMPLES", tmp_path / "samples")
    with pytest.raises(
        UsageError, match=r"stand in RecSmith's repository and not in this installation; .* samples/cpu"
    ):
        locate("shipped:cpu")
    (tmp_path / "samples" / "cpu").mkdir(parents=True)
    assert locate("shipped:cpu") == tmp_path / "samples" / "cpu"
    with pytest.raises(UsageError, match="there are cpu"):
        locate("shipped:gpu")


def test_a_folder_may_hold_several(tmp_path: Path):
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        write_about(tmp_path / name, ABOUT)
    assert folders_in(tmp_path) == [tmp_path / "a", tmp_path / "b"]
    assert folders_in(tmp_path / "a") == [tmp_path / "a"]
    assert folders_in(tmp_path / "none") == [tmp_path / "none"]
