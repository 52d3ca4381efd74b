"""What docs/extending.md and docs/files.md show is run as it stands there."""

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import recsmith
from recsmith.planners import TakesOptions

ROOT = Path(__file__).parents[1]


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page of the docs."""
    return re.findall(
        rf"^```{language}\n(.*?)^```$", (ROOT / "docs" / page).read_text("utf-8"), re.MULTILINE | re.DOTALL
    )


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The names that the page's Python defines, from its planner to its tests."""
    uses, *code = (each for each in blocks("extending.md", "python") if "TrainedSystemContract" not in each)
    assert uses.startswith("recsmith.plan(")
    file = tmp_path_factory.mktemp("docs") / "shown.py"
    file.write_text("\n".join(code), "utf-8")
    return runpy.run_path(str(file))


def test_the_planner_and_the_cost_model_of_the_page_plan(shown: dict[str, Any]):
    made = recsmith.plan("criteo-kaggle", "h100:2", planner=shown["Restarts"](), cost_model=shown["ReadBytes"]()).plan
    assert (made.planner, made.cost_model) == ("restarts", "read_bytes")


def test_the_planner_with_options_of_the_page_reads_them(shown: dict[str, Any]):
    made = shown["RestartsByName"]().with_options("restarts?orders=3")
    assert isinstance(made, TakesOptions)
    assert recsmith.plan("criteo-kaggle", "h100:2", planner=made).iterations == 3
    with pytest.raises(recsmith.UsageError, match="write restarts, or restarts"):
        made.with_options("restarts?orders=many")


@pytest.mark.parametrize(
    ("contract", "law"),
    [
        ("TestRestarts", "test_plans_are_complete_legal_and_within_memory"),
        ("TestReadBytes", "test_loads_and_compute_say_what_head_says"),
    ],
)
def test_the_contracts_of_the_page_ask_their_laws(shown: dict[str, Any], contract: str, law: str):
    getattr(shown[contract](), law)()


def test_the_contract_of_a_system_on_the_page_is_that_of_the_example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    pytest.importorskip("torchrec")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    (code,) = (each for each in blocks("extending.md", "python") if "TrainedSystemContract" in each)
    (tmp_path / "shown.py").write_text(code.replace("my_package.restarts:", "own_system:"))
    runpy.run_path(str(tmp_path / "shown.py"))["TestWarmRestarts"]().test_its_settings_are_a_noun_that_is_read_strictly(
        tmp_path
    )


def test_contracts_need_no_pytest():
    code = "import sys, recsmith.testing; print('pytest' in sys.modules, 'torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60) == "False False\n"


def test_the_plan_by_hand_of_the_page_is_priced(tmp_path: Path):
    (shown,) = blocks("files.md", "json")
    (tmp_path / "plan.json").write_text(shown)
    assert recsmith.simulate(tmp_path / "plan.json").gap is not None
