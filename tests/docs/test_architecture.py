"""The walks of docs/architecture.md are true: their files are there, and the first of each reaches all others."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WALKS = {"From `recsmith plan` to a plan": 13, "From `recsmith train` to a trained step": 25}  # files at most


@pytest.mark.parametrize("title", WALKS)
def test_the_files_of_a_walk_are_there_and_reached(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    imports = import_module("import_graph")  # which keeps what it has read of each file
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8").split(f"## {title}")[1].split("\n## ")[0]
    files = [name for row in re.findall(r"^\| (`.*?`) \|", text, re.M) for name in re.findall(r"`([\w/]+\.py)`", row)]
    assert 10 < len(files) <= WALKS[title]
    graph = imports.module_graph(ROOT / "src")
    names = ["recsmith." + name.removesuffix(".py").replace("/", ".") for name in files]
    late = {
        "recsmith.costs.analytic",
        "recsmith.planners.auto.planner",
        "recsmith.training.steps.pipelines",
        "recsmith.training.stores.device",
    } & set(names)  # loaded by name
    reached = late.union(*(imports.reach(graph, name) for name in {names[0], *late}))
    assert [name for name in names[1:] if name not in reached] == []
    assert all(name in graph for name in names)
