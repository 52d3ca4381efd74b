"""The measurements that ship with the package: as many and as steady as docs/measurements.md says."""

from pathlib import Path

import numpy as np
import pytest

from recsmith.errors import UsageError
from recsmith.measuring import shipped_folders
from recsmith.measuring.compute.steady_samples import read_samples
from recsmith.measuring.compute.summary import summarize
from recsmith.measuring.shipped_folders import locate


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
    monkeypatch.setattr(shipped_folders.resources, "files", lambda _: tmp_path)
    with pytest.raises(UsageError, match="no measurements 'cpu' ship with this version; none do"):
        locate("shipped:cpu")
    (tmp_path / "shipped" / "cpu").mkdir(parents=True)
    assert locate("shipped:cpu") == tmp_path / "shipped" / "cpu"
    with pytest.raises(UsageError, match="there are cpu"):
        locate("shipped:gpu")
