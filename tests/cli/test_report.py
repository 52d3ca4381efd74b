"""`recsmith report`: what it writes, and what it refuses in one sentence, leaving nothing behind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.build import made_plan

from recsmith.plans import save_plan

Run = Callable[..., Any]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Plans, and files that are none."""
    made = {name: tmp_path / f"{name}.json" for name in ("plan", "moved", "foreign", "thesis")}
    save_plan(made_plan(), str(made["plan"]))
    save_plan(made_plan(rank=1), str(made["moved"]))
    save_plan(made_plan(name="b"), str(made["foreign"]))
    made["thesis"].write_text("mine")
    return made


def test_the_command_writes_a_report(run: Run, files: dict[str, Path], tmp_path: Path):
    target = tmp_path / "plan.html"
    done = run("report", files["plan"], "--against", files["moved"], "-o", target)
    assert (done.code, done.out) == (0, "")
    assert f"written to {target}" in done.err
    first = target.read_bytes()
    assert b'"against":{"other":{"name":"moved.json"' in first
    assert run("report", files["plan"], "--against", files["moved"], "-o", target).code == 0  # over one of its kind
    assert target.read_bytes() == first
    assert run("report", files["plan"], "-o", "-").out.startswith("<!doctype html>\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("thesis", "-o", "new.html"), "is not"),
        (("plan", "--against", "foreign", "-o", "new.html"), "is of another workload"),
        (("plan", "--against", "thesis", "-o", "new.html"), "is not"),
        (("plan", "-o", "none/new.html"), "does not exist; create it first"),
        (("plan", "-o", "thesis"), "a file of another kind is there and would be lost; give another path, or --force"),
        (("plan", "--force", "-o", "plan"), "this command reads it"),
        (("-", "--against", "-", "-o", "new.html"), "stdin holds one plan"),
    ],
)
def test_bad_words_are_one_sentence_and_write_nothing(
    run: Run, files: dict[str, Path], tmp_path: Path, words: tuple[str, ...], says: str
):
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    line = [files.get(word, tmp_path / word if word.endswith(".html") else word) for word in words]
    done = run("report", *line)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert done.err.count("\n") == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
