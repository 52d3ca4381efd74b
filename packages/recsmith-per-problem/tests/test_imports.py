"""The package reaches RecSmith through its public names alone, and is found by its entry points."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import recsmith_per_problem
from recsmith.planning import PLANNERS, find_planner

HERE = Path(__file__).parent
SOURCES = sorted(Path(recsmith_per_problem.__file__).parent.glob("*.py"))
REFERENCE = HERE.parents[2] / "docs" / "reference"


def used(path: Path) -> Iterator[tuple[str, str]]:
    """Modules of RecSmith that a file imports, and the name that it takes from each; no name for a whole module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names if each.name.split(".")[0] == "recsmith")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "recsmith":
            yield from ((str(node.module), each.name) for each in node.names)


def test_only_public_names_are_imported() -> None:
    """A public name is in the `__all__` of a module without underscores."""
    seen = [(path.name, *each) for path in (*SOURCES, *HERE.glob("*.py")) for each in used(path)]
    assert len(seen) > 30
    wrong = [each for each in seen if "_" in {word[0] for word in each[1].split(".")} or not is_public(*each[1:])]
    assert wrong == []


def is_public(module: str, name: str) -> bool:
    return name in getattr(import_module(module), "__all__", ())


def test_a_private_name_would_be_noticed() -> None:
    assert not is_public("recsmith.planners.search.device_state", "Assignment")
    assert not is_public("recsmith.costs", "AnalyticCostModel")
    assert is_public("recsmith.costs", "Evaluator")


def test_what_the_sources_import_stands_in_the_reference() -> None:
    pages = "".join(page.read_text("utf-8") for page in REFERENCE.glob("*.md"))
    documented = set(re.findall(r"automodule:: (\S+)", pages))
    modules = {module for path in SOURCES for module, _ in used(path)}
    assert len(modules) > 4
    assert modules <= documented


@pytest.mark.parametrize("name", ["rnn", "surco"])
def test_a_planner_is_that_of_its_entry_point(name: str) -> None:
    points = entry_points(group="recsmith.planners", name=name)
    assert {point.load() for point in points} == {type(find_planner(name))}
    assert name not in PLANNERS
