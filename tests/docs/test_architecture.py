"""What docs/architecture.md says is true: the files of its walks are there, and reached, and who names a system."""

import re
import runpy
from pathlib import Path

import pytest

from recsmith.training.listed import SYSTEMS

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


def test_a_system_is_named_in_one_file_outside_of_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    names = runpy.run_path(str(ROOT / "benchmarks" / "delete_systems.py"))["names"]
    assert {name: names(ROOT, name) for name in SYSTEMS} == {name: {"training/listed.py"} for name in SYSTEMS}
