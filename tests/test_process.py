"""Freed memory is kept or given back, as asked, in a process of its own."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from recsmith._process import memory_held, memory_limit, proc_bytes

BLOCK = 64 * 2**20
LEFT = """
from recsmith import _process
getattr(_process, {name!r})()
before = _process.proc_bytes("self/status", "VmRSS")
block = bytearray(b"x") * {size}
del block
print(_process.proc_bytes("self/status", "VmRSS") - before)
"""
on_linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
new_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or tuple(map(int, platform.libc_ver()[1].split("."))) < (2, 35),
    reason="needs glibc 2.35",
)


def left(name: str) -> int:
    """Resident bytes that a freed block leaves behind."""
    code = LEFT.format(name=name, size=BLOCK)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    return int(done.stdout)


@on_linux
@new_glibc
def test_freed_memory_is_kept():
    assert left("keep_freed_memory") > BLOCK / 2


@on_linux
def test_freed_memory_is_returned():
    assert left("return_freed_memory") < BLOCK / 2


@on_linux
def test_proc_states_kilobytes():
    assert 2**20 < proc_bytes("self/status", "VmRSS") <= proc_bytes("self/status", "VmHWM")


@pytest.mark.parametrize(
    ("own", "file", "said"), [("4:memory:/a/b", "memory", "memory.limit_in_bytes"), ("0::/a/b", "", "memory.max")]
)
def test_the_memory_limit_is_the_least_of_a_cgroup_and_those_above(tmp_path: Path, own: str, file: str, said: str):
    proc, root = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    assert memory_limit(proc, root) is None
    (proc / "self" / "cgroup").write_text(f"9:name=systemd:/\n3:cpuset:/\n{own}\n")
    assert memory_limit(proc, root) is None
    (root / file / "a" / "b").mkdir(parents=True)
    for path, text in (("a/b", "max" if own.startswith("0") else str(2**63 - 4096)), ("a", "5000"), ("", "9000")):
        (root / file / path / said).write_text(f"{text}\n")
    assert memory_limit(proc, root) == 5000
    assert memory_held(proc, root) == pytest.approx(proc_bytes("self/status", "RssAnon"), rel=0.1)
    stated = "anon" if own.startswith("0") else "total_rss"
    (root / file / "a" / "memory.stat").write_text(f"file 7\n{stated} {2**50}\nrss 3\n")
    (root / file / "memory.stat").write_text(f"{stated} {2**55}\n")
    assert memory_held(proc, root) == 2**50  # of the group whose limit is the least, its other processes counted


@on_linux
def test_the_age_of_a_process_counts_from_its_start():
    code = "import time; time.sleep(0.4); from recsmith._process import age_s; print(age_s())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert 0.4 <= float(done.stdout) < 60
