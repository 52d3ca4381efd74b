"""Planners and cost models of other packages: installed as entry points, seen by name, refused with one clear error."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import recsmith
from recsmith.costs import cost_model
from recsmith.costs.neural.files import shipped_models
from recsmith.errors import UsageError
from recsmith.planning import PLANNERS, find_planner

EXAMPLE = Path(__file__).parents[1] / "examples" / "own_planner.py"
POINTS = """\
[recsmith.planners]
restarts = own_package:Restarts
broken = no_such_module:Planner
called_otherwise = own_package:Restarts
auto = own_package:Restarts

[recsmith.cost_models]
read_bytes = own_package:ReadBytes
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example as an installed package: its module, and the metadata that pip writes."""
    (tmp_path / "own_package.py").write_text(EXAMPLE.read_text("utf-8"), "utf-8")
    metadata = tmp_path / "own_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: own-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def recsmith_says(package: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path[:0] = {[str(package), *sys.path]!r}\nfrom recsmith.cli import main\nmain()"
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=120)


def test_the_command_line_plans_with_them_and_lists_them(package: Path):
    done = recsmith_says(
        package, "plan", "criteo-kaggle", "-c", "h100:2", "--planner", "restarts", "--cost-model", "read_bytes"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "cost model read_bytes" in done.stdout
    assert "planner restarts" in done.stdout
    told = " ".join(recsmith_says(package, "plan", "--help").stdout.split())
    assert "Of other packages: auto, broken, called_otherwise, restarts." in told
    assert "Of other packages: read_bytes." in told
    listed = json.loads(recsmith_says(package, "planners", "--format", "json").stdout)
    named = [each["name"] for each in listed["planners"]]
    assert [named.count(name) for name in ("auto", "restarts", "broken")] == [1, 1, 1]


@pytest.mark.usefixtures("package")
def test_python_finds_them_by_name():
    made = recsmith.plan("criteo-kaggle", "h100:2", planner="restarts", cost_model="read_bytes", iterations=1).plan
    assert (made.planner, made.cost_model) == ("restarts", "read_bytes")
    assert recsmith.simulate(made).cost == made.cost


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("broken", "planner 'broken' of package 'own-package' cannot be loaded .ModuleNotFoundError: No module named"),
        ("called_otherwise", "'called_otherwise' of package 'own-package' makes a planner that is called 'restarts'"),
        ("restart", "no planner is called 'restart'; did you mean 'restarts'?"),
    ],
)
def test_what_cannot_be_used_is_one_clear_error(name: str, words: str):
    with pytest.raises(UsageError, match=words):
        find_planner(name)


@pytest.mark.usefixtures("package")
def test_own_names_are_never_shadowed():
    assert find_planner("auto") is PLANNERS["auto"]


class Shadow:
    name = "auto"

    def plan(self, *_: Any, **__: Any) -> Any:
        raise AssertionError

    compile = plan


class Analytic(Shadow):
    name = "analytic"


@pytest.mark.parametrize(
    ("find", "given", "words"),
    [
        (find_planner, 3, "a int is no planner; give a name, or an object with a `name` and a method `plan`"),
        (find_planner, Shadow, "the class Shadow is no planner; give a name, or an object"),
        (find_planner, Shadow(), "a planner of your own is called 'auto' as RecSmith's is; give it another name"),
        (cost_model, 3, "a int is no cost model; give a name, or an object with a `name` and a method `compile`"),
        (cost_model, Analytic(), "a cost model of your own is called 'analytic' as RecSmith's is"),
    ],
)
def test_what_is_no_planner_or_cost_model_is_refused(find: Any, given: Any, words: str):
    with pytest.raises(UsageError, match=words):
        find(given)


def test_objects_of_ones_own_go_everywhere(package: Path):
    import importlib

    own = importlib.import_module("own_package")
    mine, bytes_ = own.Restarts(), own.ReadBytes()
    compared = recsmith.compare(
        "criteo-kaggle", "h100:2", planners=[mine, "size_greedy"], judges=[bytes_], iterations=2
    )
    assert {row.name for row in compared.rows} == {"restarts", "size_greedy"}
    assert compared.judges == ("analytic", "read_bytes")
    swept = recsmith.sweep("criteo-kaggle", devices=[2], device="h100", planner=mine, cost_model=bytes_, iterations=1)
    assert (swept.planner, swept.cost_model) == ("restarts", "read_bytes")
    assert recsmith.explain(next(iter(swept.plans.values())), cost_model=bytes_).cost_model == "read_bytes"


def test_an_unknown_cost_model_is_told_the_learned_ones_too():
    with pytest.raises(UsageError, match="no cost model is called 'astrology'") as caught:
        cost_model("astrology")
    assert all(f"neural:{name}" in str(caught.value) for name in shipped_models())
