"""What docs/extending.md and docs/files.md show is run as it stands there."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import recsmith
from recsmith.planners import TakesOptions
from recsmith.reports.run_reference import run_schema

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


def linked(example: str) -> str:
    """An example that the page links, which is one file."""
    page = (ROOT / "docs" / "extending.md").read_text("utf-8")
    (path,) = set(re.findall(rf"\]\(\.\./(examples/{example}\.py)\)", page))
    return (ROOT / path).read_text("utf-8")


def test_parts_of_a_stranger_are_in_dry_run_schema_checkpoint_and_card(
    shown: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """A collective and a system, each a file beside the run as the page links it, and a planner that plans the job."""
    pytest.importorskip("torchrec")
    from recsmith.training import load_run, train
    from recsmith.training.job.card import read_card
    from recsmith.training.launch.launching import dry_run

    for example, module in (("own_collective", "rounding"), ("own_system", "restarts")):
        (tmp_path / f"{module}.py").write_text(linked(example).replace(f"{example}:", f"{module}:"), "utf-8")
    (named,) = (yaml.safe_load(each) for each in blocks("extending.md", "yaml"))
    assert list(named["systems"]) == ["my_package.restarts:WarmRestarts"]
    features = [{"name": name, "num_embeddings": 50} for name in ("a", "b")]
    raw = {
        "data": {"train": {"format": "generator", "num_samples": 640, "features": features}, "batch_size": 64},
        "output": "out", "comms": {"name": "rounding:Rounded", "bits": 6}, "checkpoint": {"every": 4}, "ranks": 1,
        "steps": 8, "systems": {"restarts:WarmRestarts": {"first": 4}},
    }  # fmt: skip
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"schema": "recsmith/run/1", **raw}), "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("recsmith.training.seams.registry._others", {})  # of tests before
    properties = run_schema()["properties"]
    named_by_class = {"name": {"type": "string", "pattern": ":"}}
    assert {"type": "object", "required": ["name"], "properties": named_by_class} in properties["comms"]["anyOf"]
    assert properties["systems"]["additionalProperties"]["type"] == "object"

    run = load_run("run.yaml")
    told = "\n".join(dry_run(run))
    assert "learning rates fall for 4 steps at first" in told
    train(run)
    step = max((tmp_path / "out" / "checkpoints").glob("step-*"))
    assert json.loads((step / "progress.json").read_text("utf-8"))["warm_restarts"] == {"begun": 4, "length": 8}
    assert json.loads((step / "run.json").read_text("utf-8"))["comms"] == raw["comms"]
    assert read_card(tmp_path / "out" / "model").systems == {"restarts:WarmRestarts": {"first": 4, "growth": 2}}
    made = recsmith.load_plan("out/plan.json")
    assert made.workload.comm_bytes == (15 / 8, 15 / 8)  # as the collective says
    planned = recsmith.plan(made.workload, made.cluster, planner=shown["Restarts"](), cost_model=made.cost_model).plan
    recsmith.save_plan(planned, "planned.json")
    assert planned.digest[:12] in "\n".join(dry_run(load_run("run.yaml", ("plan=planned.json", "output=other"))))


def test_contracts_need_no_pytest():
    code = "import sys, recsmith.testing; print('pytest' in sys.modules, 'torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60) == "False False\n"


def test_the_plan_by_hand_of_the_page_is_priced(tmp_path: Path):
    (shown,) = blocks("files.md", "json")
    (tmp_path / "plan.json").write_text(shown)
    assert recsmith.simulate(tmp_path / "plan.json").gap is not None
