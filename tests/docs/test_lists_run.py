"""Lists of commands that need nothing but what they make run as they stand, in order, in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SKIPPED = "python benchmarks/"  # scripts of a checkout, which other tests run
LISTS = {  # page: how its list begins
    "docs/bounds.md": "recsmith workload sample --tables 10",
    "docs/report.md": "recsmith workload sample --tables 2000",
    "docs/verification.md": "recsmith workload sample --tables 60",
    "docs/files.md": "recsmith workload sample --tables 856",
}


def lines_of(page: str) -> list[str]:
    """The commands of the one list that begins so."""
    (block,) = (text for text in BLOCK.findall((ROOT / page).read_text("utf-8")) if text.startswith(LISTS[page]))
    return [line for line in block.splitlines() if not line.startswith(SKIPPED)]


@pytest.mark.parametrize("page", LISTS)
def test_the_list_is_there(page: str):
    assert all(line.startswith("recsmith ") for line in lines_of(page))


@pytest.mark.soak
@pytest.mark.parametrize("page", LISTS)
def test_it_runs(page: str, tmp_path: Path):
    pytest.importorskip("torch", reason="simulated kernels are learned ones")
    pytest.importorskip("ortools", reason="planner exact needs OR-Tools")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for line in lines_of(page):
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True,
            text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}: {done.stderr[-1000:]}"
