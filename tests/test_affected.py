"""benchmarks/affected.py: which tests a change can affect, of a small tree of modules and tests."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
TREE = {
    "src/recsmith/__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
    "    from recsmith.plans import Plan\n    from recsmith.workloads import read\n",
    "src/recsmith/plans/__init__.py": "from recsmith.plans.plan import Plan\nfrom recsmith.plans.diff import diff\n",
    "src/recsmith/plans/plan.py": "from recsmith.units import text\nclass Plan: ...\n",
    "src/recsmith/plans/diff.py": "def diff(): ...\n",
    "src/recsmith/units.py": "def text(): ...\n",
    "src/recsmith/workloads/__init__.py": "from recsmith.parts import register\n"
    "from recsmith.workloads.files import read\nregister('recsmith.workloads.late:Late')\n",
    "src/recsmith/workloads/files.py": "def read(): ...\n",
    "src/recsmith/workloads/late.py": "class Late: ...\n",
    "src/recsmith/workloads/known.yaml": "{}\n",
    "src/recsmith/parts.py": "def register(name): ...\n",
    "src/recsmith/cli/__init__.py": "",
    "src/recsmith/cli/app.py": "from importlib import import_module\nimport_module(f'recsmith.cli.{1}')\n",
    "src/recsmith/cli/plan.py": "",
    "tests/support/__init__.py": "",
    "tests/support/build.py": "import recsmith\nmade = recsmith.Plan\n",
    "tests/plans/conftest.py": "from recsmith.parts import register\n",
    "tests/plans/test_plan.py": "from support.build import made\n",
    "tests/plans/test_diff.py": "from recsmith.plans import diff\n",
    "tests/test_read.py": "from recsmith import read\n",
    "tests/test_program.py": "import subprocess\n"
    "subprocess.run(['python', '-c', '''\nfrom recsmith.cli.app import x\n'''])\n",
    "tests/docs/test_pages.py": "",
    "tests/web/test_page.py": "PAGE = 'examples/first.py'\n",
    "src/recsmith/public.py": "name = 1\n",
    "packages/own/pyproject.toml": "",
    "packages/own/src/own/__init__.py": "from own.planner import Own\n",
    "packages/own/src/own/planner.py": "from recsmith.public import name\nclass Own: ...\n",
    "packages/own/tests/test_own.py": "from own import Own\n",
}  # fmt: skip


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, and the modules of the tree."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    affected = import_module("affected")
    for name, text in TREE.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return affected, affected.Modules(tmp_path)


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("src/recsmith/units.py", ["plans/test_plan.py"]),  # by a name that recsmith passes on, used in support
        ("src/recsmith/plans/diff.py", ["plans/test_diff.py"]),  # what a package passes on beside it does not count
        ("src/recsmith/plans/__init__.py", ["plans/test_diff.py", "plans/test_plan.py"]),
        ("src/recsmith/workloads/late.py", ["test_read.py"]),  # a component that its package registers
        ("src/recsmith/workloads/known.yaml", ["test_read.py"]),
        ("src/recsmith/parts.py", ["plans/test_diff.py", "plans/test_plan.py", "test_read.py"]),  # by a conftest, too
        ("src/recsmith/cli/plan.py", ["test_program.py"]),  # found by its name, in a process of its own
        ("tests/support/build.py", ["plans/test_plan.py"]),
        ("tests/test_read.py", ["test_read.py"]),
        ("docs/plan.md", ["docs/test_pages.py"]),
        ("examples/first.py", ["docs/test_pages.py", "web/test_page.py"]),
        ("web/src/page.ts", ["web/test_page.py"]),
        ("tests/conftest.py", [name.removeprefix("tests/") for name in sorted(TREE) if "/test_" in name]),
        ("packages/own/pyproject.toml", ["packages/own/tests/test_own.py"]),
        ("packages/own/src/own/planner.py", ["packages/own/tests/test_own.py"]),
        ("src/recsmith/public.py", ["packages/own/tests/test_own.py"]),
        ("LICENSE", []),
    ],
)
def test_what_can_notice_a_change_is_found_and_nothing_else(changed: str, tests: list[str], made: Any) -> None:
    script, modules = made
    assert [each.removeprefix("tests/") for each in script.affected([changed], modules)] == tests
