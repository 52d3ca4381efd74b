"""Steady samples as arrays: the same from parquet, journal or both; nothing of samples that are not steady."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.measured import Stub, answer

from recsmith.errors import MissingExtra, UsageError
from recsmith.hardware import SCALES, Case, Measurement, load_hardware
from recsmith.measuring import folder as folders
from recsmith.measuring import parquet_parts
from recsmith.measuring.about import About, load_about
from recsmith.measuring.compute.cases import Cases
from recsmith.measuring.compute.run import measure_compute
from recsmith.measuring.compute.samples import BLOCK_SAMPLES
from recsmith.measuring.compute.steady_samples import Samples, read_samples
from recsmith.measuring.folder import open_folder
from recsmith.measuring.limit import Limit
from recsmith.measuring.revisits import case_of

CASES = Cases(seed=0, scale=SCALES["check"])
FIELDS = tuple(Samples.__dataclass_fields__)


def say(case: Case, visit: int) -> Measurement:
    """Cases 3, 4 and 5 fail, never agree, and get faster in forward, slower in backward."""
    if case.number == 3:
        return Measurement(status="failed", message="odd")
    if case.number == 4:
        return answer(case, seconds=1 + visit)
    if case.number == 5:
        return answer(case, forward_s=1 - 0.01 * visit, backward_s=2 + 0.01 * visit)
    return answer(case, seconds=1 + case.number)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal: samples 3 and 4 failed and unsteady, 18 of the first block steady, 1 of the next, the others open."""
    monkeypatch.setattr(folders, "has_pyarrow", lambda: False)
    measure_compute(Stub(say), CASES, tmp_path, Limit(samples=BLOCK_SAMPLES - 1))
    return tmp_path


def fold(path: Path) -> None:
    with open_folder(path, load_about(path)) as opened:
        opened.fold()


def test_steady_samples_have_the_figures_of_their_cases(folder: Path):
    found = read_samples(folder)
    assert found.sample.tolist() == [sample for sample in range(BLOCK_SAMPLES + 1) if sample not in (3, 4)]
    assert found.number.tolist() == [case_of(sample)[0] for sample in found.sample.tolist()]
    assert (found.start[0], found.start[-1], len(found)) == (0, len(found.rows), 19)
    for i, number in enumerate(found.number.tolist()):
        case, tables = CASES.case(number), slice(*found.start[i : i + 2].tolist())
        assert (found.optimizer[i], found.data_type[i]) == (case.workload.optimizer, case.data_type)
        assert found.batch_size[i] == case.workload.batch_size
        assert found.rows[tables].tolist() == [table.num_embeddings for table in case.tables]
        assert found.dim[tables].tolist() == [table.embedding_dim for table in case.tables]
        assert found.pooling_factor[tables].tolist() == [table.features[0].pooling_factor for table in case.tables]
        assert found.zipf[tables].tolist() == [table.access and table.access.zipf for table in case.tables]
        assert found.lookups[tables].tolist() == found.unique_rows[tables].tolist() == list(case.lookups)
        assert (found.owner[tables] == i).all()


def test_a_sample_takes_its_fastest_forward_and_backward(folder: Path):
    found = read_samples(folder)
    assert (found.forward_s[3], found.backward_s[3]) == (0.99, 2.0)
    others = np.delete(np.arange(len(found)), 3)
    assert found.forward_s[others].tolist() == (1 + found.number[others]).tolist()
    assert found.backward_s[others].tolist() == (2 + 2 * found.number[others]).tolist()


def test_parts_and_journal_say_the_same(folder: Path):
    pytest.importorskip("pyarrow")
    before = read_samples(folder)
    fold(folder)
    after = read_samples(folder)
    measure_compute(Stub(say), CASES, folder, Limit(samples=BLOCK_SAMPLES + 10))
    both = read_samples(folder)
    assert len(both) == BLOCK_SAMPLES + 10
    for name in FIELDS:
        first, again, more = (getattr(each, name) for each in (before, after, both))
        assert (first.dtype, first.shape) == (again.dtype, again.shape)
        np.testing.assert_array_equal(first, again)
        np.testing.assert_array_equal(first, more[: len(first)])


def test_reuse_bins_are_of_each_table(tmp_path: Path):
    hardware = load_hardware("simulated:h100", "check")
    measure_compute(hardware, CASES, tmp_path, Limit(samples=5))
    found = read_samples(tmp_path)
    assert found.reuse_bins.shape == (len(found.rows), 17)
    assert found.reuse_bins.sum(axis=1).tolist() == found.unique_rows.tolist()


@pytest.mark.parametrize("folded", [False, True])
def test_a_folder_without_steady_samples_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folded: bool):
    def odd(case: Case, visit: int) -> Measurement:
        if case.number:
            raise KeyboardInterrupt
        return Measurement(status="failed")

    monkeypatch.setattr(folders, "has_pyarrow", lambda: False)
    measure_compute(Stub(odd), CASES, tmp_path, Limit(samples=1))
    if folded:
        pytest.importorskip("pyarrow")
        fold(tmp_path)
    found = read_samples(tmp_path)
    assert (len(found), found.start.tolist(), found.reuse_bins.shape) == (0, [0], (0, 17))


def test_exchanges_are_no_samples(tmp_path: Path):
    with open_folder(tmp_path, About(kind="comm", hardware="local ranks", seed=0, ranks=2)):
        pass
    with pytest.raises(UsageError, match="holds comm measurements of local ranks, seed 0, 2 ranks; samples are of"):
        read_samples(tmp_path)


def test_parts_need_pyarrow_and_a_journal_does_not(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> Any:
        return None

    with monkeypatch.context() as patch:
        patch.setattr(parquet_parts, "find_spec", missing)
        assert len(read_samples(folder)) == BLOCK_SAMPLES - 1
    pytest.importorskip("pyarrow")
    fold(folder)
    monkeypatch.setattr(parquet_parts, "find_spec", missing)
    with pytest.raises(MissingExtra, match=r"pip install 'pyarrow>=20'"):
        read_samples(folder)
