"""The public face, and who may import whom: guarded, so that neither grows by accident."""

import ast
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import recsmith
from recsmith.training.listed import SYSTEMS

PACKAGE = Path(recsmith.__file__).parent
BASE = (
    "_compiled",
    "_components",
    "elementary",
    "_fields",
    "_install",
    "_late",
    "_random",
    "_plugins",
    "_process",
    "_types",
    "_version",
    "errors",
    "files",
    "units",
)  # no rooms: they may be imported from everywhere
ROOMS = (
    ("workloads", "clusters"),  # neither knows the other
    ("sharding",),
    ("plans",),
    ("problems",),
    ("costs",),
    ("bounds",),
    ("planners",),
    ("planning",),
    ("analyses",),
    ("data",),
    ("embeddings",),
    ("streaming",),
    ("scoring",),
    ("adapters",),
    ("jobs",),
    ("torchrec",),  # recsmith.torchrec: the public name of adapters and jobs
    ("hardware",),
    ("measuring",),
    ("verifying",),
    ("prediction",),
    ("learning",),
    ("bench",),
    ("feeding",),
    ("searching",),
    ("training",),
    ("advising",),
    ("testing",),
    ("reports",),
    ("web",),
    ("cli",),
)
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
CORE = {"numpy", "pydantic", "pydantic_core", "yaml", "click", "rich", "safetensors"}  # what pyproject.toml names
TORCH = {"torch", "torchrec", "fbgemm_gpu", "tensordict", "torchmetrics"}
TORCH_ROOMS = {
    *("embeddings", "adapters", "jobs", "hardware", "measuring", "learning", "prediction", "verifying", "training"),
    *("testing", "scoring"),
}
# imported when a planner solves, when towers are balanced, and when a bound is proved on request
SOLVER_FILES = ("cp_sat*.py", "tower_groups.py", "filling_prices.py")
WATCH = {"river", "datasketches"}  # of streaming, imported when a detector or a sketch needs them
LISTED = "training/listed.py"  # names all systems
WEB = {"starlette", "uvicorn", "anyio"}  # of web/serving, imported when a page is served
FOR_PEOPLE = {"click": {"cli", "reports"}, "rich": {"cli", "reports", "adapters", "verifying"}}


def room_of(path: Path) -> str:
    """The room of a file; commands of systems are part of the command line, which alone loads them."""
    if path.name == "command.py" and path.is_relative_to(PACKAGE / "training" / "systems"):
        return "cli"
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def import_graph() -> ModuleType:
    """The script that draws the graph of imports, as a module: one for all tests, for it keeps what it has read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PACKAGE.parents[1] / "benchmarks")
        return import_module("import_graph")


@pytest.fixture(scope="module", autouse=True)
def forgotten_trees() -> Iterator[None]:
    """A million nodes, which every later look for garbage would go through."""
    yield
    import_graph().nodes.cache_clear()


@cache
def imports(path: Path) -> list[str]:
    """Full names of the modules that a file imports, wherever in it they are imported."""
    return sorted(set(_imports(path)))


def _imports(path: Path) -> Iterator[str]:
    for node in import_graph().nodes(path):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield node.module or ""
            if node.module == "recsmith":
                yield from (f"recsmith.{name.name}" for name in node.names)


FILES = sorted(path for path in PACKAGE.rglob("*.py"))


# --- the public face ----------------------------------------------------------------------------------------------


def test_the_public_names_are_frozen():
    assert recsmith.__all__ == [
        "AccessProfile",
        "Apart",
        "Bound",
        "Cluster",
        "Constraints",
        "CorruptFile",
        "Device",
        "Feature",
        "Infeasible",
        "Links",
        "MissingExtra",
        "NoPlanFound",
        "PerRank",
        "Pin",
        "Placement",
        "Plan",
        "PlanMismatch",
        "RecSmithError",
        "Result",
        "Space",
        "StepCost",
        "Table",
        "TableRule",
        "Together",
        "UsageError",
        "Workload",
        "__version__",
        "compare",
        "diff",
        "explain",
        "load_cluster",
        "load_constraints",
        "load_plan",
        "load_workload",
        "pins_of",
        "plan",
        "price",
        "replan",
        "replan_curve",
        "report",
        "sample_workload",
        "save_plan",
        "save_workload",
        "simulate",
        "sweep",
    ]


def test_every_public_name_is_there_and_listed():
    assert dir(recsmith) == sorted(recsmith.__all__)
    for name in recsmith.__all__:
        assert getattr(recsmith, name) is not None


@pytest.mark.parametrize("name", [name for name in recsmith.__all__ if name != "__version__"])
def test_every_public_name_has_a_docstring_and_no_room_shadows_it(name: str):
    assert callable(getattr(recsmith, name))
    assert getattr(recsmith, name).__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'recsmith' has no attribute 'paln'"):
        recsmith.paln  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_errors_are_one_tree_with_exit_codes():
    codes = {
        recsmith.RecSmithError: 1,
        recsmith.UsageError: 2,
        recsmith.CorruptFile: 2,
        recsmith.PlanMismatch: 2,
        recsmith.MissingExtra: 2,
        recsmith.Infeasible: 3,
        recsmith.NoPlanFound: 1,
    }
    for error, code in codes.items():
        assert issubclass(error, recsmith.RecSmithError)
        assert error("x").exit_code == code
    for error in (recsmith.CorruptFile, recsmith.PlanMismatch, recsmith.MissingExtra):
        assert issubclass(error, recsmith.UsageError)
    for error in (recsmith.Infeasible, recsmith.NoPlanFound):
        assert not issubclass(error, recsmith.UsageError)


# --- who may import whom ------------------------------------------------------------------------------------------


def test_a_system_is_named_in_one_file_outside_its_folder(monkeypatch: pytest.MonkeyPatch):
    """Its folder, its keys of a run and its components, so that it can be deleted."""
    scripts = PACKAGE.parents[1] / "benchmarks"
    monkeypatch.syspath_prepend(str(scripts))
    names = runpy.run_path(str(scripts / "delete_systems.py"))["names"]
    assert {name: names(PACKAGE.parents[1], name) for name in SYSTEMS} == {name: {LISTED} for name in SYSTEMS}


def test_every_file_lies_in_a_known_room():
    assert {room_of(path) for path in FILES} == {*LEVEL, *BASE, "__init__", "__main__"}


def may_import(room: str, other: str) -> bool:
    """Whether files of a room may import another room, or one of the private modules."""
    if room in BASE:
        return other in BASE
    return other in (*BASE, "__version__", room) or LEVEL[other] < LEVEL[room]


def test_rooms_import_only_what_comes_before_them():
    asked, wrong = 0, list[str]()
    for path in FILES:
        if room_of(path) not in ("__init__", "__main__"):
            others = [name for name in imports(path) if name.startswith("recsmith.")]
            asked += len(others)
            wrong += [f"{path} imports {name}" for name in others if not may_import(room_of(path), name.split(".")[1])]
    assert asked > len(FILES)
    assert wrong == []


def foreign_allowed(path: Path) -> set[str]:
    """The packages of others that a file may import."""
    room = room_of(path)
    allowed = CORE | TORCH if room in TORCH_ROOMS else CORE
    if any(path.match(pattern) for pattern in SOLVER_FILES):
        return allowed | {"ortools"}
    if path.name == "torchx_component.py":  # which TorchX alone imports
        return allowed | {"torchx"}
    watches = WATCH if room == "streaming" else set[str]()
    return allowed | watches | (WEB if path.is_relative_to(PACKAGE / "web" / "serving") else set[str]())


def test_only_the_core_is_imported_and_torch_only_where_it_belongs():
    found, wrong = set[str](), list[str]()
    for path in FILES:
        foreign = {name.split(".")[0] for name in imports(path)} - set(sys.stdlib_module_names) - {"recsmith", ""}
        found |= foreign
        for_others = {name for name in foreign & FOR_PEOPLE.keys() if room_of(path) not in FOR_PEOPLE[name]}
        wrong += [f"{path} imports {name}" for name in (foreign - foreign_allowed(path)) | for_others]
    assert found >= CORE | WEB | {"torch", "ortools"}
    assert wrong == []


@cache
def own_graph() -> dict[str, set[str]]:
    """Who imports whom in this package; what type checkers alone import may name what comes later."""
    return import_graph().module_graph(PACKAGE.parent, typing=False)


def test_no_module_imports_another_in_a_circle():
    script = import_graph()
    assert script.circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c"]]
    assert script.circles(own_graph()) == []


def test_files_and_folders_of_a_room_do_not_import_each_other_in_a_circle():
    script = import_graph()
    graph = {
        "recsmith.room.a": {"recsmith.room.folder.inner"}, "recsmith.room.folder.inner": set[str](),
        "recsmith.room.folder.other": {"recsmith.room.a"},
    }  # fmt: skip
    assert script.circles(graph) == []
    assert script.knots(graph) == {"room": [["a", "folder"]]}
    assert script.knots(own_graph()) == {}


def test_a_class_name_stands_once():
    assert import_graph().sizes(PACKAGE.parent).twins == {}


def test_sizes_are_counted_as_the_script_says(tmp_path: Path):
    package = tmp_path / "recsmith"
    for name, text in {
        "__init__.py": "",
        "a/__init__.py": "from recsmith.b import B\n",
        "a/one.py": "import os\nfrom typing import (\n    TYPE_CHECKING,\n)\n\n"
        "if TYPE_CHECKING:\n    from recsmith.c import C\n",
        "b.py": "class B:\n    def f(self):\n        from recsmith import d\n\n        return d\n",
        "c.py": "class C:\n    class B: ...\n",
        "d.py": "from recsmith.a import one\n",
    }.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    script = import_graph()
    found = script.sizes(tmp_path)
    assert (found.lines, found.modules, found.functions) == (16, 6, [4])
    assert found.import_share == 8 / 16
    assert found.twins == {"B": ["recsmith.b", "recsmith.c"]}
    assert found.single == ["recsmith.a.one", "recsmith.b", "recsmith.c", "recsmith.d"]
    graph = script.module_graph(tmp_path, typing=False)
    assert script.closure(graph, "recsmith.a.one") == {
        "recsmith",
        *(f"recsmith.{name}" for name in ("a", "a.one", "b", "d")),
    }
    assert "functions          1; median 4 lines, 90th percentile 4" in list(script.size_lines(found))


def test_the_map_of_the_rooms_is_complete():
    text = (PACKAGE.parents[1] / "CONTRIBUTING.md").read_text("utf-8")
    told = set(
        re.findall(r"`(\w+)/`", "".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `")))
    )
    assert told == {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}


# --- what an import costs -----------------------------------------------------------------------------------------

HEAVY = {"numpy", "pydantic", "yaml", "rich", "torch", "torchrec", "pandas", "fbgemm_gpu", "ortools", "safetensors",
         "pyarrow", "starlette", "uvicorn"}  # fmt: skip


def heavy_after(code: str) -> set[str]:
    """Heavy modules that a fresh Python holds after running code."""
    script = f"import sys\nsys.path.insert(0, {str(PACKAGE.parent)!r})\n{code}\nprint('LOADED', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return HEAVY & set(done.stdout.rpartition("LOADED")[2].split())


def command(*words: str) -> str:
    return (
        f"from recsmith.cli import main\nsys.argv = {['recsmith', *words]!r}\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert stop.code == 0, stop.code"
    )


def test_importing_recsmith_imports_nothing_heavy():
    assert heavy_after("import recsmith\ndir(recsmith)\nrecsmith.__version__\nrecsmith.UsageError") == set()


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("plan", "--help"), ("diff", "-h")])
def test_help_imports_nothing_heavy(words: tuple[str, ...]):
    assert heavy_after(command(*words)) == set()


def test_drawing_and_keeping_samples_needs_numpy_alone():
    used = heavy_after(
        "from recsmith.hardware import SCALES\nfrom recsmith.measuring.cases import Cases\n"
        "assert Cases(seed=0, scale=SCALES['gpu']).case(7).tables"
    )
    assert used == {"numpy"}


def test_planning_never_imports_torch_or_pandas():
    used = heavy_after(command("plan", "criteo-kaggle", "--cluster", "h100:2"))  # safetensors: the weights of its model
    assert used <= {"numpy", "pydantic", "yaml", "rich", "safetensors"}
