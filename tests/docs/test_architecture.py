"""The walks of docs/architecture.md are true: their files are there, and the first of each reaches all others."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
WALKS = {"From `recsmith plan` to a plan": 13, "From `recsmith train` to a trained step": 25}  # files at most


@pytest.fixture(scope="module")
def imports() -> Iterator[tuple[ModuleType, dict[str, set[str]]]]:
    """The script that draws the graph of imports, and the graph; the syntax trees are forgotten afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        script = import_module("import_graph")
    yield script, script.module_graph(ROOT / "src")
    script.nodes.cache_clear()


@pytest.mark.parametrize("title", WALKS)
def test_the_files_of_a_walk_are_there_and_reached(title: str, imports: tuple[ModuleType, dict[str, set[str]]]) -> None:
    script, graph = imports
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8").split(f"## {title}")[1].split("\n## ")[0]
    files = [name for row in re.findall(r"^\| (`.*?`) \|", text, re.M) for name in re.findall(r"`([\w/]+\.py)`", row)]
    assert 10 < len(files) <= WALKS[title]
    names = ["recsmith." + name.removesuffix(".py").replace("/", ".") for name in files]
    late = {
        "recsmith.costs.analytic",
        "recsmith.planners.auto.planner",
        "recsmith.training.steps.pipelines",
        "recsmith.training.stores.device",
    } & set(names)  # loaded by name
    reached = late.union(*(script.reach(graph, name) for name in {names[0], *late}))
    assert [name for name in names[1:] if name not in reached] == []
    assert all(name in graph for name in names)
