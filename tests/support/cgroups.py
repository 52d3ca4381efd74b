"""Processes under a limit of memory, by a cgroup of version 1; tests that want one are skipped elsewhere."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MEMORY = Path("/sys/fs/cgroup/memory")


@contextmanager
def memory_group() -> Iterator[Path]:
    """The folder of a new memory cgroup; it is gone afterwards."""
    group = MEMORY / f"recsmith-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").read_text()
    except OSError as error:
        pytest.skip(f"no memory cgroup of version 1 can be made here ({error}); it takes root")
    try:
        yield group
    finally:
        until = time.monotonic() + 10
        while (group / "cgroup.procs").read_text() and time.monotonic() < until:
            time.sleep(0.05)
        group.rmdir()


def run_in(group: Path, *words: str, timeout: float = 300) -> tuple[int, str, int]:
    """(exit code, what was said, most bytes that its processes held but for pages of files) of Python in a cgroup."""
    enter = f'echo $$ > {group}/cgroup.procs; exec {sys.executable} "$@"'
    process = subprocess.Popen(
        ["sh", "-c", enter, "sh", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )  # fmt: skip
    most, until = 0, time.monotonic() + timeout
    while process.poll() is None and time.monotonic() < until:
        stated = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        most = max(most, int(stated["total_rss"]))
        time.sleep(0.05)
    process.kill()
    return process.wait(), process.communicate()[0], most
