"""What pages show of RecSmith is what it prints."""

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from support.shared_problems import BuiltOnce

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
    if "\n$ recsmith " in path.read_text("utf-8")
)


def load_script() -> ModuleType:
    """benchmarks/shown_commands.py as a module."""
    spec = spec_from_file_location("shown_commands", ROOT / "benchmarks" / "shown_commands.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


script = load_script()


@pytest.fixture(scope="module")
def built_once() -> BuiltOnce:
    """Pages show plans of one workload on one cluster again and again."""
    return BuiltOnce()


@pytest.mark.parametrize("page", PAGES)
def test_pages_show_what_is_printed(
    page: str, built_once: BuiltOnce, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
):
    built_once.use_for_pages(monkeypatch)
    if re.search(r"^\$ recsmith (train|search) ", (ROOT / page).read_text("utf-8"), re.MULTILINE):
        request.getfixturevalue("torchrec")  # a dry run makes the model
    pytest.importorskip("recsmith.planners.annealing._kernel", reason="annealing is not compiled: plans may differ")
    with script.page_run(ROOT / page) as run:
        shown = list(run)
    assert shown
    wrong = [each for each in shown if not script.agrees(each)]
    assert [each.name for each in wrong] == [], f"python benchmarks/shown_commands.py {page} --write"


@pytest.mark.soak
@pytest.mark.parametrize("page", ["docs/advise.md", "docs/sweep.md"])
def test_what_takes_long_is_shown_as_it_is(page: str, built_once: BuiltOnce, monkeypatch: pytest.MonkeyPatch):
    built_once.use_for_pages(monkeypatch)
    with script.page_run(ROOT / page, dear=True) as run:
        shown = list(run)
    assert any(not each.name.startswith("python") for each in shown)
    assert [each.name for each in shown if not script.agrees(each)] == [], f"shown_commands.py {page} --dear --write"


def test_what_is_dear_is_run_where_that_is_asked(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("```text\nrecsmith --version\n\nanything\n```\n")
    for dear in (False, True):
        with script.page_run(page, dear=dear) as run:
            found = list(run)
        assert [each.name for each in found] == ["recsmith --version"] * dear
    assert (found[0].expected, script.agrees(found[0])) == ("anything\n", False)


def test_the_tutorial_is_among_the_pages():
    assert {"README.md", "docs/tutorial.md"} <= set(PAGES)


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("step 1.5 ms\n", "step   1.5 ms\n", True),
        ("step 1.5 ms\n", "step 1.6 ms\n", False),
        ("search 180 tries, 1.4 s\n", "search 180 tries, 2 s\n", True),
        ("search 180 tries, 1.4 s\n", "search 181 tries, 1.4 s\n", False),
        ("first\n...\nlast\n", "first\nmiddle\nlast\n", True),
        ("first\n...\nlast\n", "first\nmiddle\n", False),
        ("first\n", "first\nsecond\n", False),
    ],
)
def test_seconds_of_planning_and_spaces_do_not_count(expected: str, printed: str, same: bool):
    assert script.agrees(script.Shown("", 0, 0, expected, printed)) is same


def test_files_and_python_of_a_page_are_part_of_its_run(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "```yaml\n# tables.yaml\nschema: recsmith/workload/1\nbatch_size: 64\ntables: []\n```\n\n"
        "```console\n$ recsmith plan tables.yaml --cluster h100:2\nanything\n```\n\n"
        "```python\nimport recsmith\nprint(recsmith.Feature(name='a', pooling_factor=2).pooling_factor)\n```\n\n"
        "```text\n2.0\n```\n"
    )
    with script.page_run(page) as run:
        command, code = list(run)
    assert "tables" in command.printed
    assert not script.agrees(command)
    assert script.agrees(code)


def test_lines_that_a_page_leaves_out_stay_out_when_it_is_renewed():
    printed = "plan 1\nstep 2 ms\ntrust off by 9%\n      and more\nnote x\n"
    assert script.renewed(script.Shown("", 0, 0, "...\nstep 1 ms\ntrust off by 8%\n...\n", printed)) == (
        "...\nstep 2 ms\ntrust off by 9%\n      and more\n...\n"
    )
    assert script.renewed(script.Shown("", 0, 0, "plan 0\n", printed)) == printed
