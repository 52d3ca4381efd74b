"""Blocks of pages say what they are, and hold: files, parts of files, code, and lists of commands that run.

`# NAME.yaml` begins a whole file, `# in NAME.yaml` a part of one, `# in your code` Python around which a job is.
A block of `sh` is a list that runs from top to bottom with the files that its page shows; a block without a
language shows commands on files of the reader's own.
"""

import ast
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.schema import problems

from recsmith.files.parsing import parse
from recsmith.reports.schemas import schema_of

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w-]+\.yaml)\b")
PART = re.compile(r"# in ([\w-]+\.yaml)\b")
BESIDE = "extending.md"  # whose Python tests/test_extending.py runs
BASE: dict[str, Any] = {
    "schema": "recsmith/run/1", "output": "runs/first", "data": {"train": "clicks", "batch_size": 256}, "model": {},
    "optimizers": {}, "checkpoint": {}, "metrics": {},
}  # fmt: skip
BY_SCHEMA = {"workload", "cluster", "run", "train-bench", "model"}


def blocks(page: Path, language: str) -> list[str]:
    return [body for found, body in BLOCK.findall(page.read_text("utf-8")) if found == language]


def test_each_block_of_yaml_is_a_file_or_a_part_of_one() -> None:
    shown = [(page.name, body) for page in PAGES for body in blocks(page, "yaml")]
    assert len(shown) > 50
    assert [(name, body[:40]) for name, body in shown if not (FILE.match(body) or PART.match(body))] == []


def test_whole_files_are_read() -> None:
    read = 0
    for page in PAGES:
        for body in blocks(page, "yaml"):
            raw = parse(body, page.name)
            kind = str(raw.get("schema", "")).split("/")[1:2]
            if FILE.match(body) and kind and kind[0] in BY_SCHEMA and "misspelt" not in body:
                assert problems(raw, schema_of(kind[0])) == [], f"{page.name}: {body[:60]}"
                read += 1
    assert read > 10


def variants(body: str) -> Iterator[dict[str, Any]]:
    """A part as it stands, and with each line `# or key: value` in the place of the line of that key."""
    yield yaml.safe_load(body)
    for other in re.findall(r"^# or (.*)", body, re.MULTILINE):
        yield {**yaml.safe_load(body), **yaml.safe_load(other)}


def test_parts_of_runs_are_what_a_run_takes() -> None:
    schema, read = schema_of("run"), 0
    for page in PAGES:
        for body in (each for each in blocks(page, "yaml") if each.startswith("# in run.yaml")):
            for part in variants(body):
                whole = {key: {**value, **part.get(key, {})} if isinstance(value, dict) else value
                         for key, value in BASE.items()}  # fmt: skip
                assert problems({**part, **whole}, schema) == [], f"{page.name}: {body}"
                read += 1
    assert read > 35


def test_python_is_run_or_says_that_it_is_a_part() -> None:
    checked = 0
    for page in (each for each in PAGES if each.name != BESIDE):
        for body in blocks(page, "python"):
            run = body.startswith(("import recsmith\n", "from recsmith import "))
            assert run or re.match(r"# (in your code|[\w-]+\.py\b)", body), f"{page.name}: {body[:60]}"
            ast.parse(body)
            checked += 1
    assert checked > 35


@pytest.mark.usefixtures("torchrec")
def test_what_python_imports_of_recsmith_is_there() -> None:
    checked = 0
    for page in PAGES:
        for body in blocks(page, "python"):
            for node in ast.walk(ast.parse(body)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("recsmith"):
                    module = import_module(node.module or "")
                    missing = [each.name for each in node.names if not hasattr(module, each.name)]
                    assert missing == [], f"{page.name}: {node.module}"
                    checked += 1
    assert checked > 30


WRITES = {"-o", "--output", "--certificate", "--run", "--write"}
NAMED = re.compile(r"[\w./-]+\.(?:yaml|json|csv|html|log|safetensors|parquet)")


def test_lists_that_run_have_their_files() -> None:
    lists = 0
    for page in PAGES:
        there: set[str] = set()
        for language, body in BLOCK.findall(page.read_text("utf-8")):
            if file := FILE.match(body):
                there.add(file[1])
            if language != "sh":
                continue
            lists += 1
            for line in body.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                written = {after for word, after in pairwise(words) if word in WRITES}
                read = {word for word in words if NAMED.fullmatch(word)} - written
                assert read <= there, f"{page.name}: {line}: {read - there} is nowhere before"
                there |= written
    assert lists > 6
