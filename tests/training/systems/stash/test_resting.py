"""Memory that rests in a file comes back as it was, is not in memory meanwhile, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsmith._process import proc_bytes
from recsmith.errors import UsageError
from recsmith.training.systems.stash.resting import PAGE, RestingMemory


def ranges(*arrays: np.ndarray) -> list[tuple[int, int]]:
    return [(each.ctypes.data, each.nbytes) for each in arrays]


@given(st.lists(st.integers(1, 5 * PAGE), min_size=1, max_size=4), st.integers(0, 100), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_bytes_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], seed: int, times: int
):
    draw = np.random.default_rng(seed)
    arrays = [draw.integers(0, 256, size, dtype=np.uint8) for size in sizes]
    memory = RestingMemory(str(tmp_path_factory.getbasetemp() / "rows"), ranges(*arrays))
    for _ in range(times):
        before = [each.copy() for each in arrays]
        memory.leave()
        memory.leave()
        assert memory.away == (memory.bytes > 0)
        memory.come_back()
        memory.come_back()
        assert not memory.away
        for was, now in zip(before, arrays, strict=True):
            np.testing.assert_array_equal(was, now)
        arrays[0][0] ^= 1


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux")
def test_what_rests_takes_no_memory(tmp_path: Path):
    array = np.ones(48 * 2**20, dtype=np.uint8)
    memory = RestingMemory(str(tmp_path), ranges(array))
    held = proc_bytes("self/status", "RssAnon")
    memory.leave()
    assert proc_bytes("self/status", "RssAnon") < held - 40 * 2**20
    memory.come_back()
    assert (array == 1).all()


def test_a_file_system_without_direct_access_does_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    opened = os.open

    def no_direct(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", no_direct)
    array = np.arange(100_000)
    memory = RestingMemory(str(tmp_path), ranges(array))
    memory.leave()
    memory.come_back()
    np.testing.assert_array_equal(array, np.arange(100_000))


KILLED = """
import sys, time
import numpy as np
from recsmith.training.systems.stash.resting import RestingMemory
array = np.ones(32 * 2**20, dtype=np.uint8)
memory = RestingMemory(sys.argv[1], [(array.ctypes.data, array.nbytes)])
memory.leave()
print("away", flush=True)
time.sleep(60)
"""


def test_a_killed_process_leaves_no_file(tmp_path: Path):
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "away\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path):
    (tmp_path / "rows").write_text("")
    with pytest.raises(UsageError, match="name a folder on a disk with more room"):
        RestingMemory(str(tmp_path / "rows"), ranges(np.ones(PAGE * 3)))
