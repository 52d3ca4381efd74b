"""What people and programs read of a folder of measured exchanges. Of kernels: tests/measuring/test_summary.py."""

from pathlib import Path

import pytest
from support.exchanged import exchanged

from recsmith.reports.measurements import summary_lines, summary_to_raw

pytest.importorskip("pyarrow")


def test_exchanges_are_counted_and_their_ranks_told(tmp_path: Path):
    folder = exchanged(tmp_path, 4, samples=7)
    lines = summary_lines(folder)
    assert lines[:2] == ["what     all-to-all of 4 simulated ranks, seed 0", "samples  7"]
    assert lines[2].startswith("device   h100, simulated")
    raw = summary_to_raw(folder)
    assert (raw["schema"], raw["ranks"], raw["samples"]) == ("recsmith/measurements-summary/1", 4, 7)
    assert ("none: it takes some" in lines[-1]) == (raw["alpha_beta"] is None)
