"""What a rank's process does before it trains."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recsmith.training import Run, RunData

FAULTS = """
import resource
import sys
from recsmith.training import Run, RunData, rank
from recsmith.training.run import run_to_raw

def faults(system, *_):
    for _ in range(3):
        del [bytearray(b"x") * 2**20 for _ in range(64)][:]  # the first fills what is kept
        begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        del [bytearray(b"x") * 2**20 for _ in range(64)][:]
    return {"faults": resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun}

rank.memory_limit = rank.Agreement = lambda: None
rank.first_of = lambda asked: faults(None)
for rows in sys.argv[2:]:
    print(rank.train_on_rank(run_to_raw(Run(data=RunData(train="x"), output=sys.argv[1], rows=rows)))["faults"])
"""
PAGES = 8 * 64 * 2**20 // 4096  # of all blocks


def test_memory_is_spare_where_nothing_limits_it_and_rows_lie_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchrec")
    from recsmith.training import rank

    run = Run(data=RunData(train="x"), output="out")
    monkeypatch.setattr(rank, "memory_limit", lambda: None)
    assert rank.has_memory_to_spare(run)
    assert not rank.has_memory_to_spare(Run(data=RunData(train="x"), output="out", rows="stashed"))
    monkeypatch.setattr(rank, "memory_limit", lambda: 2**30)
    assert not rank.has_memory_to_spare(run)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts page faults")
def test_pages_of_a_step_are_kept_for_the_next_where_memory_is_spare(tmp_path: Path) -> None:
    """In one process, which keeps pages from the first run on that has memory to spare."""
    pytest.importorskip("torchrec")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FAULTS, str(tmp_path), "stashed", "device"],
        capture_output=True, text=True, check=False, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    given_back, kept = map(int, done.stdout.splitlines()[-2:])
    assert kept < PAGES / 10 <= given_back
