"""The scripts of benchmarks/: each is told in its README, with the pages that it serves, and these show it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
ROWS = [line.split("|") for line in README.splitlines() if line.startswith("| `")]


def test_every_script_is_told_and_every_told_one_is_there():
    there = {path.name for path in (ROOT / "benchmarks").rglob("*") if path.suffix in (".py", ".sh")}
    told = set(re.findall(r"[\w]+\.(?:py|sh)\b", README))
    assert told == there


def test_every_page_of_a_row_shows_one_of_its_scripts():
    for _, scripts, pages, *_ in ROWS:
        names = re.findall(r"[\w*]+(?:\.\w+|/)", scripts)
        for page in re.findall(r"`([\w./-]+\.md)`", pages):
            text = (ROOT / page).read_text("utf-8")
            targets = re.findall(r"`make (\w+)`", pages)
            assert any(name.replace("*", "").split(".")[0] in text for name in (*names, *targets)), f"{page}: {names}"
