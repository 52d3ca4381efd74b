"""The walks of docs/architecture.md are true: their files are there, and the first of each reaches all others."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMPORTS = runpy.run_path(str(ROOT / "benchmarks" / "import_graph.py"))

WALKS = {"From `recsmith plan` to a plan": 13, "From `recsmith train` to a trained step": 25}  # files at most


@pytest.mark.parametrize("title", WALKS)
def test_the_files_of_a_walk_are_there_and_reached(title: str) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8").split(f"## {title}")[1].split("\n## ")[0]
    files = [name for row in re.findall(r"^\| (`.*?`) \|", text, re.M) for name in re.findall(r"`([\w/]+\.py)`", row)]
    assert 10 < len(files) <= WALKS[title]
    graph = IMPORTS["module_graph"](ROOT / "src")
    names = ["recsmith." + name.removesuffix(".py").replace("/", ".") for name in files]
    late = {
        "recsmith.costs.analytic",
        "recsmith.planners.auto.planner",
        "recsmith.training.steps.pipelines",
        "recsmith.training.stores.device",
    } & set(names)  # loaded by name
    reached = late.union(*(IMPORTS["reach"](graph, name) for name in {names[0], *late}))
    assert [name for name in names[1:] if name not in reached] == []
    assert all(name in graph for name in names)
