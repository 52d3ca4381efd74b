"""The commands that README lists run as they stand, from top to bottom, in an empty folder."""

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
LISTS = [block for block in BLOCKS if "-o tables.json" in block or "-o here.json" in block]


FIGURE = re.compile(r"(\d[\d,.]*) ?(%|ms\b|times\b|AUC\b)")


def paragraphs(text: str) -> list[str]:
    """What a page says in words: paragraphs, items of lists, and rows of tables with the sentence before them."""
    words = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    words = re.sub(r"\n\n(?=\|)", "\n", words)
    return [item for block in words.split("\n\n") for item in re.split(r"\n(?=- )", block)]


@pytest.mark.parametrize(("name", "least"), [("README.md", 12), ("docs/what-pays.md", 8)])
def test_figures_are_those_of_the_pages_that_they_link_to(name: str, least: int):
    page = ROOT / name
    text, checked = page.read_text("utf-8"), 0
    shown = re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for paragraph in paragraphs(text):
        found = FIGURE.findall(re.sub(r"\]\([^)]*\)", "]", paragraph))
        linked = sorted(set(re.findall(r"\(([\w/.-]+\.md)", paragraph)))
        told = "\n".join([*((page.parent / each).read_text("utf-8") for each in linked), *shown])
        assert set(found) <= set(FIGURE.findall(told)), f"{found} of {name} are not all on {linked}"
        checked += len(found)
    assert checked > least


def commands(block: str) -> list[list[str]]:
    """The words of each line."""
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def test_both_lists_are_found():
    assert [len(commands(block)) > 4 for block in LISTS] == [True, True]
    assert all(words[0] == "recsmith" for block in LISTS for words in commands(block))


@pytest.mark.soak
@pytest.mark.skipif(find_spec("torchrec") is None, reason="the second list needs TorchRec")
def test_they_run_in_order(tmp_path: Path):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for words in [each for block in LISTS for each in commands(block)]:
        done = subprocess.run(words, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr[-1000:]}"
