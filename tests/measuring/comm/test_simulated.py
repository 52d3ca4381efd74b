"""Simulated exchanges in a folder: until the limit, the same for a seed, and going on where a run ended."""

from pathlib import Path

import pytest

from recsmith.errors import UsageError
from recsmith.measuring.comm.rank_counts import oversubscribed
from recsmith.measuring.comm.simulated import simulate_comm
from recsmith.measuring.limit import Limit
from recsmith.measuring.rows import read_columns

NAMES = ["position", "number", "visit", "ranks", "width", "skew_s", "median_s"]


def test_a_run_in_two_parts_is_a_run_in_one(tmp_path: Path):
    pytest.importorskip("pyarrow")
    assert simulate_comm("simulated:h100?noise=0.1", tmp_path / "a", 3, Limit(samples=12), seed=4) == 12
    assert simulate_comm("simulated:h100?noise=0.1", tmp_path / "b", 3, Limit(samples=5), seed=4) == 5
    assert simulate_comm("simulated:h100?noise=0.1", tmp_path / "b", 3, Limit(samples=12), seed=4) == 7
    found = read_columns(tmp_path / "a", NAMES)
    assert found == read_columns(tmp_path / "b", NAMES)
    assert (found["position"], found["visit"]) == (list(range(12)), [0] * 9 + [1, 0, 0])


def test_one_rank_and_hardware_without_links_are_refused(tmp_path: Path):
    for hardware, ranks, rule in (("simulated:h100", 1, "1 ranks exchange nothing"), ("cpu", 2, "no simulated links")):
        with pytest.raises(UsageError, match=rule):
            simulate_comm(hardware, tmp_path / "a", ranks, Limit(samples=1))
    assert not (tmp_path / "a").exists()


def test_more_ranks_than_cores_are_told():
    assert not oversubscribed(1)
    assert oversubscribed(100_000)
