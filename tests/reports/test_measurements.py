"""What people and programs read of measured exchanges and of checked kernels. Of measured ones: tests/measuring."""

from pathlib import Path

import pytest
from support.exchanged import exchanged

from recsmith.measuring.correctness import KernelAgreement
from recsmith.reports.measurements import kernel_check_lines, summary_lines, summary_to_raw

pytest.importorskip("pyarrow")


def test_exchanges_are_counted_and_their_ranks_told(tmp_path: Path):
    folder = exchanged(tmp_path, 4, samples=7)
    lines = summary_lines(folder)
    assert lines[:2] == ["what     all-to-all of 4 simulated ranks, seed 0", "samples  7"]
    assert lines[2].startswith("device   h100, simulated")
    raw = summary_to_raw(folder)
    assert (raw["schema"], raw["ranks"], raw["samples"]) == ("recsmith/measurements-summary/1", 4, 7)
    assert ("none: it takes some" in lines[-1]) == (raw["alpha_beta"] is None)


def test_differences_beyond_rounding_are_called_wrong():
    fine = KernelAgreement(optimizer="sgd", data_type="fp32", cases=12, outputs=1e-6, weights=2e-5)
    wrong = KernelAgreement(optimizer="adagrad", data_type="fp16", cases=3, outputs=1e-4, weights=0.5)
    head, first, second = kernel_check_lines([fine, wrong])
    assert head.split()[:3] == ["optimizer", "weights", "cases"]
    assert first.split() == ["sgd", "fp32", "12", "1.0e-06", "2.0e-05"]
    assert second.split() == ["adagrad", "fp16", "3", "1.0e-04", "5.0e-01", "WRONG"]
