"""Planners and cost models of other packages: installed as entry points, seen by name, refused with one clear error."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import recsmith
from recsmith import _plugins
from recsmith._plugins import OwnNames, plugin_names
from recsmith.costs import COST_MODELS, CostModel, cost_model
from recsmith.costs.weight_files import shipped_models
from recsmith.errors import MissingExtra, UsageError
from recsmith.planners import Planner
from recsmith.planning import PLANNERS, find_planner

EXAMPLE = Path(__file__).parents[1] / "examples" / "own_planner.py"
POINTS = """\
[recsmith.planners]
restarts = own_package:Restarts
broken = no_such_module:Planner
called_otherwise = own_package:Restarts
auto = own_package:Restarts
counted = own_package:Counted
unnamed = own_package:Unnamed

[recsmith.cost_models]
read_bytes = own_package:ReadBytes
"""
OFFERED = ("auto", "broken", "called_otherwise", "counted", "restarts", "unnamed")
COUNTED = """

class Counted(Restarts):
    name = "counted"

    def with_options(self, text):
        made = type(self)()
        made.name, made.orders = text, int(text.partition("?orders=")[2])
        return made


class Unnamed(Counted):
    name = "unnamed"

    def with_options(self, text):
        return Restarts()
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example as an installed package: its module, and the metadata that pip writes."""
    (tmp_path / "own_package.py").write_text(EXAMPLE.read_text("utf-8") + COUNTED, "utf-8")
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
        package,
        "plan",
        "criteo-kaggle",
        "-c",
        "h100:2",
        "--planner",
        "restarts",
        "--cost-model",
        "read_bytes",
        "-v",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "cost model read_bytes" in done.stdout
    assert "planner restarts" in done.stdout
    told = " ".join(recsmith_says(package, "plan", "--help").stdout.split())
    assert "Of other packages: " + ", ".join(sorted({*OFFERED, *plugin_names("recsmith.planners")})) + "." in told
    assert "Of other packages: read_bytes." in told
    listed = json.loads(recsmith_says(package, "planners", "--format", "json").stdout)
    named = [each["name"] for each in listed["planners"]]
    assert [named.count(name) for name in ("auto", "restarts", "broken")] == [1, 1, 1]
    assert {each["about"] for each in listed["planners"] if each["name"] in ("restarts", "broken")} == {
        "Of package 'own-package'."
    }


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
def test_a_planner_reads_the_options_behind_its_name():
    found: Any = find_planner("counted?orders=7")
    assert (found.name, found.orders) == ("counted?orders=7", 7)
    assert recsmith.plan("criteo-kaggle", "h100:2", planner="counted?orders=1").plan.planner == "counted?orders=1"


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("restarts?orders=7", r"planner restarts takes no options; write restarts instead of 'restarts\?orders=7'"),
        ("auto?quick", "planner auto takes no options; write auto instead of"),
        (
            "unnamed?orders=7",
            r"planner unnamed makes of 'unnamed\?orders=7' one that is called 'restarts'; its",
        ),
        ("nobody?orders=7", "no planner is called"),
    ],
)
def test_options_that_nobody_reads_are_refused(name: str, words: str):
    with pytest.raises(UsageError, match=words):
        find_planner(name)


@pytest.mark.parametrize("name", ["surco", "rnn", "surco?steps=3", "rnn?episodes=3"])
def test_a_planner_whose_package_is_missing_is_one_sentence_with_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_plugins, "plugins", lambda group: {})
    words = f"planner {name.partition('?')[0]} needs the package recsmith-per-problem: pip install ./packages/recsmith-"
    with pytest.raises(MissingExtra, match=re.escape(words)) as caught:
        find_planner(name)
    assert (Path(__file__).parents[1] / re.findall(r"install \./(\S+),", str(caught.value))[0]).is_dir()


@pytest.mark.usefixtures("package")
def test_own_names_are_never_shadowed():
    assert find_planner("auto") is PLANNERS["auto"]


@pytest.mark.parametrize(("own", "protocol"), [(PLANNERS, Planner), (COST_MODELS, CostModel)])
def test_own_names_lead_to_what_is_called_so(own: OwnNames[Any], protocol: type[Any]):
    assert own
    for name in own:
        assert name in own
        assert isinstance(own[name], protocol)
        assert own[name].name == name
        assert own[name] is own[name]
    assert "nobody" not in own
    with pytest.raises(KeyError):
        own["nobody"]


def test_own_names_are_listed_without_importing_what_they_lead_to():
    code = """
import sys
from recsmith.costs import COST_MODELS
from recsmith.planning import PLANNERS
print(len(PLANNERS), len(COST_MODELS), "auto" in PLANNERS, "recsmith.planners.auto.planner" in sys.modules)
PLANNERS["auto"]
print("recsmith.planners.auto.planner" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [str(len(PLANNERS)), str(len(COST_MODELS)), "True", "False", "True"], done.stderr


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
    assert compared.judges == ("best", "read_bytes")
    swept = recsmith.sweep("criteo-kaggle", devices=[2], device="h100", planner=mine, cost_model=bytes_, iterations=1)
    assert (swept.planner, swept.cost_model) == ("restarts", "read_bytes")
    assert recsmith.explain(next(iter(swept.plans.values())), cost_model=bytes_).cost_model == "read_bytes"


def test_an_unknown_cost_model_is_told_the_learned_ones_too():
    with pytest.raises(UsageError, match="no cost model is called 'astrology'") as caught:
        cost_model("astrology")
    assert all(f"neural:{name}" in str(caught.value) for name in shipped_models())
