"""Watchers: each keeps the contract; what one rank asks for, all do at the same step, and say why."""

import json
import os
import signal
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec")

from recsmith.errors import RecSmithError, UsageError
from recsmith.testing.watchers import WatcherContract, seen
from recsmith.training import (
    Checkpointing,
    DenseOptimizer,
    Run,
    RunData,
    RunMetrics,
    RunModel,
    RunOptimizers,
    SparseOptimizer,
    train,
)
from recsmith.training.job.agreement import Wish
from recsmith.training.launch.dry_run import described
from recsmith.training.watchers import Watchers, loss_guard, watcher_of
from recsmith.training.watchers.capture import CaptureWatcher
from recsmith.training.watchers.functions import FunctionWatcher
from recsmith.training.watchers.loss_guard import LossGuard
from recsmith.training.watchers.protocol import Seen, Watcher

EXAMPLES = Path(__file__).parents[3] / "examples"
HERE = "training.watchers.test_watchers"
pytestmark = pytest.mark.usefixtures("torchrec")


class TestCapture(WatcherContract):
    """Of a trace, which no optimizer's step begins here."""

    @pytest.fixture(autouse=True)
    def quiet(self) -> Any:
        """It warns that nothing was captured."""
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield

    def make(self, folder: Path) -> Any:
        """Into the folder."""
        return CaptureWatcher(folder=str(folder / "trace"))


class TestFunction(WatcherContract):
    """A function that asks for something at one step."""

    def make(self, folder: Path) -> Any:
        """The one below."""
        return watcher_of(f"{HERE}:saves")


class TestLossGuard(WatcherContract):
    """Of losses that are finite; those that are not need ranks."""

    def make(self, folder: Path) -> Any:
        """As a run has it."""
        return LossGuard()


class TestEarlyStopping(WatcherContract):
    """Of scores, which steps do not tell."""

    def make(self, folder: Path) -> Any:
        """With its usual settings."""
        return watcher_of("early_stopping")


class TestPeriodDeltas(WatcherContract):
    """Of a job without periods."""

    def make(self, folder: Path) -> Any:
        """With its usual settings."""
        return watcher_of("period_deltas")


class TestExample(WatcherContract):
    """examples/own_watcher.py: a watcher in one file, which nothing else knows of."""

    @pytest.fixture(autouse=True)
    def examples(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Examples are on the path."""
        monkeypatch.syspath_prepend(EXAMPLES)

    def make(self, folder: Path) -> Any:
        """As the example has it."""
        return watcher_of({"name": "own_watcher:SlowerSteps", "factor": 0.1})


def saves(step: int, loss: float, samples: object) -> Wish | None:
    """A function as a watcher; the answers of others are no wishes."""
    return Wish("save", "it is step 3") if step == 3 else None


def goes_back(step: int, loss: float, samples: object) -> Wish | None:
    """A function that asks for the same again and again."""
    return Wish("roll_back", "it is step 20") if step == 20 else None


def raises(step: int, loss: float, samples: object) -> None:
    """A function with a mistake."""
    raise KeyError("gone")


def answers(step: int, loss: float, samples: object) -> str:
    """A function whose answers are no wishes."""
    return "stop"


class Answers(Watcher):
    """A watcher whose answers are no wishes."""

    def look(self, seen: Seen) -> Any:
        """Answer something else."""
        return "stop"


class Raises(Watcher):
    """A watcher with a mistake."""

    def look(self, seen: Seen) -> Wish | None:
        """Make it."""
        raise KeyError("gone")


class Asks(Watcher):
    """Asks for something at some steps, on one rank."""

    def __init__(self, *, wishes: dict[str, str], rank: int) -> None:
        self.wishes, self.rank, self.asked, self.refreshed = wishes, rank, list[int](), 0

    def look(self, seen: Seen) -> Wish | None:
        """Ask once at each of the steps."""
        import torch.distributed as dist

        what: Any = self.wishes.get(str(seen.step))
        if what is None or dist.get_rank() != self.rank or seen.step in self.asked:
            return None
        self.asked.append(seen.step)
        return Wish(what, f"it is step {seen.step}")

    def refresh(self) -> None:
        """Count it."""
        self.refreshed += 1

    def to_raw(self) -> dict[str, Any]:
        """How often it was refreshed."""
        return {"refreshed": self.refreshed}

    def from_raw(self, raw: dict[str, Any]) -> None:
        """Go on counting."""
        self.refreshed = raw["refreshed"]


class CountsModels(Watcher):
    """Asks to go back once, and writes whether the model that it saw is still in memory when the next one is made."""

    def __init__(self) -> None:
        self.model: weakref.ref[Any] | None = None

    def look(self, seen: Seen) -> Wish | None:
        """Ask at step 9, after the first checkpoint."""
        from recsmith.training import rank

        if seen.step != 9 or self.model is not None:
            return None
        self.model, made, file = weakref.ref(seen.job.sharded.model), rank.prepared, seen.job.output / "in-memory"

        def prepared(*args: Any, **options: Any) -> Any:
            file.write_text(str(self.model is not None and self.model() is not None))
            return made(*args, **options)

        rank.prepared = prepared
        return Wish("roll_back", "it is step 9")


class FailsToWrite(Watcher):
    """Has the first checkpoint fail after training goes on."""

    def look(self, seen: Seen) -> None:
        """Do so at step 1."""
        from concurrent.futures import Future

        from recsmith.training.job import checkpoints

        def fails(*_: Any, **__: Any) -> Any:
            checkpoints.async_save = made
            failed = Future[Any]()
            failed.set_exception(OSError("No space left on device"))
            return failed

        if seen.step == 1:
            made, checkpoints.async_save = checkpoints.async_save, fails


class Fails(Watcher):
    """Refuses all that was trained, at the end. ended: the step at which the job is asked to end, too."""

    def __init__(self, *, ended: int | None = None) -> None:
        self.ended = ended

    def look(self, seen: Seen) -> None:
        """Ask this process to end."""
        if seen.step == self.ended:
            os.kill(os.getpid(), signal.SIGTERM)

    def look_at_end(self, seen: Seen) -> Wish:
        """Refuse it."""
        return Wish("fail", "no")


def a_run(output: Path, *watchers: Any, **fields: Any) -> Run:
    features = [{"name": name, "num_embeddings": size} for name, size in (("a", 100), ("b", 503))]
    data = {"format": "generator", "seed": 1, "dense": 2, "features": features, "num_samples": 20_000}
    values: dict[str, Any] = {
        "data": RunData(train=data, test={**data, "first_sample": 20_000, "num_samples": 50}, global_batch_size=24),
        "model": RunModel(embedding_dim=8, bottom=(8,), top=(8,)),
        "output": str(output), "steps": 48, "ranks": 2, "plan": "torchrec", "watchers": watchers,
        "checkpoint": Checkpointing(every=1000), "metrics": RunMetrics(every=1),
    }  # fmt: skip
    return Run(**{**values, **fields})


def events(folder: Path, *kinds: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [each for each in found if each["event"] in kinds]


def test_what_one_rank_asks_for_all_ranks_do_at_the_same_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    wishes = {"2": "refresh", "3": "evaluate", "9": "save", "17": "replan", "33": "roll_back", "49": "fail"}
    watcher = {"name": f"{HERE}:Asks", "wishes": wishes, "rank": 1}
    with pytest.raises(RecSmithError, match=r"\Ait is step 49\Z"):
        train(a_run(tmp_path / "asked", watcher, steps=200))
    lines = events(tmp_path / "asked", "watcher")
    heard = [("evaluate", 16, 3), ("refresh", 16, 2), ("save", 24, 9), ("replan", 24, 17), ("roll_back", 24, 33),
             ("fail", 64, 49)]  # fmt: skip
    assert [(each["what"], each["step"], each["because"]) for each in lines] == [
        (what, step, f"it is step {asked}") for what, step, asked in heard
    ]  # a checkpoint is written after step 24, so what was told there is heard there
    assert [each["done"] for each in lines[:3]] == ["evaluated", "refreshed Asks", "saved"]
    assert all(each["done"].startswith("training goes on after step 24") for each in lines[3:5])
    assert lines[5]["done"] == "training ends with this error"
    assert [each["step"] for each in events(tmp_path / "asked", "test")] == [16]
    assert [each["step"] for each in events(tmp_path / "asked", "checkpoint")] == [24]
    progress = json.loads((tmp_path / "asked/checkpoints/step-00000024/progress.json").read_text())
    assert progress["watchers"] == {f"{HERE}:Asks": {"refreshed": 1}}

    train(a_run(tmp_path / "plain", watchers=()))
    steps = [(each["step"], each["logloss"]) for each in events(tmp_path / "asked", "train")]
    plain = [(each["step"], each["logloss"]) for each in events(tmp_path / "plain", "train")]
    assert [step for step, _ in steps] == list(range(1, len(steps) + 1))  # each once, those after the step gone back to
    assert [loss for _, loss in steps[:48]] == pytest.approx([loss for _, loss in plain], rel=1e-6)


def test_a_watcher_that_fails_at_the_end_makes_no_model_nor_does_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    run = a_run(tmp_path / "out", {"name": f"{HERE}:Fails"}, checkpoint=Checkpointing(every=4), steps=6, ranks=1)
    for each in (run, longer := replace(run, steps=8)):  # the last checkpoint is after step 4; after step 8, its last
        with pytest.raises(RecSmithError, match=r"\Ano\Z"):
            train(each)
        if each is run:
            said = "\n".join(described(run).notes)
            assert "a watcher ended the job before after step 6 (fail): no; what is saved has learned" in said
    with pytest.raises(UsageError, match=r"after step 8 \(fail\): no; no model is made of that; once the"):
        train(longer)
    assert not (tmp_path / "out/model").exists()
    assert train(replace(longer, watchers=()))["complete"]


def test_a_job_that_a_signal_ends_at_its_last_step_is_judged_and_before_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    watcher = {"name": f"{HERE}:Fails", "ended": 4}
    run = a_run(tmp_path / "out", watcher, checkpoint=Checkpointing(every=4), steps=8, ranks=1)
    assert not train(run)["complete"]
    with pytest.raises(RecSmithError, match=r"\Ano\Z"):
        train(replace(run, watchers=({**watcher, "ended": 8},)))


def test_training_stops_well_where_a_watcher_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    watcher = {"name": f"{HERE}:Asks", "wishes": {"1": "stop", "2": "replan"}, "rank": 0}
    result = train(a_run(tmp_path / "out", watcher, checkpoint=None))
    assert (result["step"], result["complete"]) == (16, True)
    assert (tmp_path / "out/model/card.json").exists()
    assert [each["done"] for each in events(tmp_path / "out", "watcher")] == ["training ends"] * 2


def test_each_loss_that_is_not_finite_is_told_with_its_own_step_after_a_roll_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_guard, "keep", lambda step, *_: f"step {step}")  # pyright: ignore
    guard, told = LossGuard(then="roll_back"), list[str]()
    for step in (7, 12):
        at = seen(step, tmp_path)
        at.outcome.loss.fill_(float("nan"))
        told += [wish.because for wish in (guard.look(at), guard.look(at)) if wish]
        guard.leave()
    assert told == ["step 7"] * 2 + ["step 12"] * 2


class OnGpu(float):
    """A loss that says of itself that it is on a GPU."""

    is_cuda = True


def on_gpu(step: int, folder: Path, loss: float) -> Seen:
    """A step of a job on a GPU."""
    here: Any = seen(step, folder)
    return replace(here, outcome=replace(here.outcome, loss=OnGpu(loss)))


def test_on_a_gpu_no_state_is_saved_before_its_loss_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_guard, "keep", lambda step, *_: f"step {step}")  # pyright: ignore
    guard, broken = LossGuard(then="roll_back"), on_gpu(2, tmp_path, float("nan"))
    assert [guard.look(each) for each in (on_gpu(1, tmp_path, 0.5), broken)] == [None, None]  # one step late
    assert guard.look_before_saving(broken) == Wish("roll_back", "step 2")
    assert guard.look(on_gpu(3, tmp_path, float("nan"))) == Wish("roll_back", "step 2")
    guard.leave()
    assert guard.look(on_gpu(1, tmp_path, 0.5)) is None  # of a job that went back


def test_no_model_is_made_whose_last_loss_is_not_finite(tmp_path: Path) -> None:
    rates = RunOptimizers(
        dense=DenseOptimizer(name="sgd", learning_rate=1e30), sparse=SparseOptimizer(learning_rate=1e30)
    )
    guard = {"name": "loss_guard", "then": "roll_back"}
    with pytest.raises(RecSmithError, match=r"the loss of step [1-5] is not finite; its batch is in"):
        train(a_run(tmp_path / "out", guard, ranks=1, steps=5, optimizers=rates))
    assert not (tmp_path / "out/model").exists()


def test_what_is_refreshed_after_an_evaluation_is_scored_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    for wishes, scored in ({"1": "evaluate"}, [16]), ({"1": "evaluate", "2": "refresh"}, [16, 16]):
        watcher = {"name": f"{HERE}:Asks", "wishes": wishes, "rank": 0}
        train(a_run(tmp_path / f"{len(wishes)}", watcher, checkpoint=None, ranks=1, steps=16))
        assert [each["step"] for each in events(tmp_path / f"{len(wishes)}", "test")] == scored


def test_what_cannot_be_done_is_said_and_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    wishes = {"1": "save", "2": "roll_back", "3": "evaluate", "4": "replan"}
    run = a_run(tmp_path / "out", {"name": f"{HERE}:Asks", "wishes": wishes, "rank": 1}, checkpoint=None, steps=20)
    assert train(run, settings=("data.test=null",))["step"] == 20
    done = {each["what"]: each["done"] for each in events(tmp_path / "out", "watcher")}
    assert done.pop("replan").startswith("training goes on after step 16, plan ")  # from memory
    assert done == {
        "save": "the run has no checkpoint",
        "roll_back": "there is no checkpoint to go back to; training goes on",
        "evaluate": "the run names no data.test",
    }


def test_going_back_for_ever_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    run = a_run(tmp_path / "out", f"{HERE}:goes_back", ranks=1, checkpoint=Checkpointing(every=8))
    with pytest.raises(RecSmithError, match=r"went back to step 16 3 times, and again .* asks for it: it is step 20"):
        train(run)


def test_a_model_has_left_memory_when_the_next_one_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    train(a_run(tmp_path / "out", f"{HERE}:CountsModels", ranks=1, steps=24, checkpoint=Checkpointing(every=8)))
    assert (tmp_path / "out/in-memory").read_text() == "False"


def test_a_checkpoint_that_fails_later_does_not_keep_the_next_one_from_being_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    background = Checkpointing(every=4, background=True, keep=9)
    train(a_run(tmp_path / "out", f"{HERE}:FailsToWrite", ranks=1, steps=12, checkpoint=background))
    assert sorted(each.name for each in (tmp_path / "out/checkpoints").iterdir()) == ["step-00000008", "step-00000012"]
    problems = {each["step"]: each.get("problem", "") for each in events(tmp_path / "out", "checkpoint")}
    assert (problems[4], problems[12]) == ("", "")
    assert problems[8].startswith("the checkpoint before that of step 8 failed: the disk of ")


def test_a_mistake_of_a_watcher_is_told_with_its_name(tmp_path: Path) -> None:
    watchers = Watchers(a_run(tmp_path, f"{HERE}:Raises").watched)
    watchers.begin({})
    with pytest.raises(RecSmithError, match=r"watcher '.*:Raises' raised KeyError: 'gone' at step 7"):
        watchers.look(seen(7, tmp_path))


def test_an_answer_that_is_no_wish_is_told_with_its_name(tmp_path: Path) -> None:
    watchers = Watchers(a_run(tmp_path, f"{HERE}:Answers").watched)
    watchers.begin({})
    with pytest.raises(RecSmithError, match=r"watcher '.*:Answers' returned str; return a Wish or None"):
        watchers.look(seen(7, tmp_path))


def test_training_goes_on_without_a_function_that_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    notes = list[str]()
    run = a_run(tmp_path / "out", f"{HERE}:raises", f"{HERE}:answers", ranks=1, steps=5)
    result = train(run, on_progress=lambda message: notes.append(message.get("note", "")))
    assert result["step"] == 5
    told = f"watcher '{HERE}:raises' raised KeyError: 'gone' at step 1; it is not called any more, and training goes on"
    assert notes.count(told) == 1
    assert notes.count(f"watcher '{HERE}:answers' returned str; only a Wish is heard") == 1


def test_names_and_settings_are_checked() -> None:
    for spec, message in (
        ("los_guard", "did you mean 'loss_guard'"),
        ({"name": "loss_guard", "than": "fail"}, "did you mean 'then'"),
        ({"name": f"{HERE}:saves", "every": "often"}, "whole number"),
        ("json:JSONDecoder", "no look and no to_raw"),
        ({"steps": 3}, "watchers has no `name`"),
    ):
        with pytest.raises(UsageError, match=message):
            watcher_of(spec)
    assert isinstance(watcher_of({"name": f"{HERE}:saves", "every": 3}), FunctionWatcher)


def test_twins_have_names_of_their_own_and_states_find_them(tmp_path: Path) -> None:
    asks = {"name": f"{HERE}:Asks", "wishes": {}, "rank": 0}
    watchers = Watchers(a_run(tmp_path, asks, asks).watched)
    watchers.begin({f"{HERE}:Asks#2": {"refreshed": 5}, "gone": {}})
    assert list(watchers.named) == [f"{HERE}:Asks", f"{HERE}:Asks#2", "loss_guard"]
    assert watchers.states() == {f"{HERE}:Asks": {"refreshed": 0}, f"{HERE}:Asks#2": {"refreshed": 5}}
