"""A system of another package: one file, and it is in dry runs, checkpoints, the card and the schema of a run."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec")

from support.systems import needing

pytestmark = pytest.mark.usefixtures("torchrec")

from recsmith.errors import RecSmithError, UsageError  # noqa: E402
from recsmith.training import (  # noqa: E402
    Checkpointing,
    Run,
    RunData,
    RunMetrics,
    RunModel,
    RunOptimizers,
    evaluate,
    load_model,
    load_run,
    run_from_raw,
    run_to_raw,
    train,
)
from recsmith.training.launch.launching import dry_run  # noqa: E402

EXAMPLES = Path(__file__).parents[3] / "examples"
NAME = "own_system:WarmRestarts"
CLICKS = {"format": "generator", "num_samples": 1280, "features": [{"name": "item", "num_embeddings": 100}]}


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example's module is found."""
    monkeypatch.syspath_prepend(str(EXAMPLES))


def a_run(output: Path, steps: int | None = None, **settings: Any) -> Run:
    return Run(
        data=RunData(train=CLICKS, batch_size=64), output=str(output), steps=steps,
        model=RunModel(embedding_dim=4, bottom=(4,), top=(4,)), checkpoint=Checkpointing(every=5),
        metrics=RunMetrics(every=5), systems={NAME: {"first": 4, **settings}},
    )  # fmt: skip


def test_it_is_told_and_kept_and_stands_in_the_card(tmp_path: Path) -> None:
    run = a_run(tmp_path / "own", steps=10)
    assert any("learning rates fall for 4 steps" in line for line in dry_run(run))
    said = "warm restarts: the last cycle began after step 4, of 8 steps"
    assert train(run)["brought"] == {f"systems.{NAME}": said}
    told = (tmp_path / "own" / "log.jsonl").read_text().splitlines()[-1]
    assert json.loads(told) == {"event": "brought", "step": 10, "said": {f"systems.{NAME}": said}}
    progress = json.loads((tmp_path / "own" / "checkpoints" / "step-00000010" / "progress.json").read_text())
    assert progress["warm_restarts"] == {"begun": 4, "length": 8}
    assert load_model(tmp_path / "own" / "model").card.systems == {NAME: {"first": 4, "growth": 2}}


def test_its_state_is_checked_when_a_checkpoint_is_read(tmp_path: Path) -> None:
    train(a_run(tmp_path, steps=5))
    file = tmp_path / "checkpoints" / "step-00000005" / "progress.json"
    progress = json.loads(file.read_text())
    file.write_text(json.dumps({**progress, "warm_restarts": {"begun": "four", "length": 8}}))
    with pytest.raises(RecSmithError, match=r"warm_restarts.*begun"):
        dry_run(a_run(tmp_path, steps=10))


def test_it_is_found_beside_the_file_of_the_run_and_read_without_being_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_it.py").write_text((EXAMPLES / "own_system.py").read_text().replace("warm_restarts", "beside"))
    raw = {**run_to_raw(a_run(tmp_path / "out")), "systems": {"beside_it:WarmRestarts": {"first": 7}}}
    (tmp_path / "run.json").write_text(json.dumps(raw))
    monkeypatch.chdir(tmp_path.parent)
    load_run(tmp_path / "run.json")
    assert "beside_it" not in sys.modules
    assert any("learning rates fall for 7 steps" in line for line in dry_run(tmp_path / "run.json"))


def test_a_package_offers_it_by_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "offered.py").write_text((EXAMPLES / "own_system.py").read_text().replace("warm_restarts", "offered"))
    metadata = tmp_path / "offered-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[recsmith.systems]\noffered = offered:WarmRestarts\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    run = replace(a_run(tmp_path / "out"), systems={"offered": {"first": 9}})
    assert any("learning rates fall for 9 steps" in line for line in dry_run(run))
    with pytest.raises(UsageError, match=r"systems\.ofered: no installed package .*did you mean 'offered'"):
        dry_run(replace(run, systems={"ofered": {}}))


def test_its_settings_are_those_of_any_part_of_a_run(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    assert run_from_raw(run_to_raw(run), "the run") == run
    for systems, said in (
        ({NAME: {}}, r"systems\.own_system:WarmRestarts\.first is missing"),
        ({NAME: {"first": 4, "growths": 3}}, "growths is not a known field.*growth"),
        ({"warm": {}}, r"systems\.warm: no installed package offers a system of this name"),
        ({"own_watcher:SlowerSteps": {}}, "it is no System"),
    ):
        with pytest.raises(RecSmithError, match=said):
            dry_run(replace(run, systems=systems))
    with pytest.raises(UsageError, match="optimizers has warm-up or decay, too"):
        dry_run(replace(run, optimizers=RunOptimizers(warmup_steps=3)))


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        needing("arrays", "array", {"members": {"x": [], "y": ["seed=1"]}, "together": "always"}),
        needing("remote", "remote", {}),
    ],
)
def test_what_is_not_tried_with_it_is_refused(tmp_path: Path, key: str, settings: dict[str, Any]) -> None:
    said = f"own_system:WarmRestarts changes what is done between steps, which does not go with {key}"
    with pytest.raises(UsageError, match=said):
        dry_run(run_from_raw({**run_to_raw(a_run(tmp_path)), key: settings}, "the run"))


TELLS = """
    def line(self, job, steps):
        return {"told_after": steps}, "told"

    def result(self, job):
        return {"told": "at the end"}

"""


SHIFT = """
from recsmith.training import System, noun

@noun
class By:
    by: float

class Shift(System):
    settings = By

    def exported(self, run, model):
        settings = self.settings_in(run)
        return {} if settings is None else {"by": settings.by}

    def before_serving(self, model, card):
        said = self.said_in(card)
        for module in model.modules() if said else ():
            if type(module).__name__ == "DLRM":
                module.register_forward_hook(lambda *given: given[-1] + said["by"])
"""


def test_evaluate_and_load_model_ask_what_said_something_in_the_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shift_logits.py").write_text(SHIFT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    data = RunData(train=CLICKS, test={**CLICKS, "num_samples": 128}, batch_size=64)
    run = replace(a_run(tmp_path / "out", steps=3), data=data, systems={"shift_logits:Shift": {"by": 9.0}})
    trained = train(run)["test"]["logloss"]
    assert evaluate(tmp_path / "out").logloss > trained + 2
    assert load_model(tmp_path / "out" / "model")({"item": [[1], [2]]}).min() > 0.95
    card = tmp_path / "out" / "model" / "card.json"
    raw = json.loads(card.read_text())
    card.write_text(json.dumps({**raw, "systems": {"shift_logit:Shift": {"by": 9.0}}}))
    for score in (evaluate, lambda folder: load_model(folder / "model")):
        with pytest.raises(UsageError, match=r"'shift_logit:Shift' cannot be loaded.*take it out of `systems` there"):
            score(tmp_path / "out")
    card.write_text(json.dumps({key: each for key, each in raw.items() if key != "systems"}))
    assert evaluate(tmp_path / "out").logloss == pytest.approx(trained, rel=1e-6)


def test_it_may_keep_nothing_and_tell_of_steps(tmp_path: Path) -> None:
    (tmp_path / "keeps_nothing.py").write_text(
        (EXAMPLES / "own_system.py")
        .read_text()
        .replace('settings, kept, state = Cycles, "warm_restarts", CycleState', "settings = Cycles")
        .replace("    def exported(", f"{TELLS}    def exported(")
    )
    raw = {**run_to_raw(a_run(tmp_path / "out", steps=5)), "systems": {"keeps_nothing:WarmRestarts": {"first": 2}}}
    (tmp_path / "run.json").write_text(json.dumps(raw))
    assert train(tmp_path / "run.json")["told"] == "at the end"
    log = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert [line["told_after"] for line in log if line["event"] == "train"] == [5]
    train(replace(a_run(tmp_path / "plain", steps=5), systems={}))
    weights = [(tmp_path / name / "model" / "weights.safetensors").read_bytes() for name in ("out", "plain")]
    assert weights[0] != weights[1]
