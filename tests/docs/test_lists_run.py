"""Lists of commands in blocks of `sh` run as they stand, in order, in a folder that holds the files of their page."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w-]+\.yaml)\b")
SKIPPED = "python benchmarks/"  # scripts of a checkout, which other tests run
PAGES = sorted(path.name for path in ROOT.glob("docs/*.md") if "\n```sh\n" in path.read_text("utf-8"))


def steps(page: str) -> list[tuple[str, str]]:
    """What a page does from top to bottom: ('file name', its text) or ('', a command)."""
    found: list[tuple[str, str]] = []
    for language, body in BLOCK.findall((ROOT / "docs" / page).read_text("utf-8")):
        if file := FILE.match(body):
            found.append((file[1], body))
        elif language == "sh":
            lines = body.replace("\\\n", " ").splitlines()
            found += [("", line) for line in lines if not line.startswith(SKIPPED)]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_the_list_is_of_commands(page: str):
    assert all(line.startswith("recsmith ") for name, line in steps(page) if not name)


def test_lists_are_found():
    assert len(PAGES) > 5


@pytest.mark.soak
@pytest.mark.parametrize("page", PAGES)
def test_it_runs(page: str, tmp_path: Path):
    pytest.importorskip("torch", reason="simulated kernels are learned ones")
    pytest.importorskip("ortools", reason="planner exact needs OR-Tools")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for name, text in steps(page):
        if name:
            (tmp_path / name).write_text(text, "utf-8")
            continue
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", text], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True,
            text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{text}: {done.stderr[-1000:]}"
