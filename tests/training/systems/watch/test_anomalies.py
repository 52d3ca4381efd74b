"""`watch` of a run: faults are named, on any ranks and after a restart at the same step; actions; bad input."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

import pytest

pytest.importorskip("torchrec")
pytest.importorskip("river")
pytest.importorskip("datasketches")

import numpy as np
import torch
import torch.distributed as dist
from training.test_jobs import from_step

from recsmith.data import Batch, DataFeature, DataSchema, JaggedIds
from recsmith.errors import UsageError
from recsmith.streaming.column_levels import LEVELS
from recsmith.streaming.sketch_files import read_sketches
from recsmith.testing import watchers as contract
from recsmith.testing.watchers import WatcherContract
from recsmith.training import Checkpointing, Run, RunData, RunMetrics, RunModel, train
from recsmith.training.batches import Place
from recsmith.training.launch.launching import dry_run
from recsmith.training.steps.protocol import StepOutcome
from recsmith.training.systems.watch.anomalies import AnomalyWatcher
from recsmith.training.watchers.protocol import Seen

BENCHMARKS = Path(__file__).parents[4] / "benchmarks"
pytestmark = pytest.mark.usefixtures("torchrec")
BATCH, STEPS = 128, 336
FAULTS = {
    "zeros": [201, 240], "no_labels": [241, 264], "flipped": [273, STEPS],
    **{fault: [289, STEPS] for fault in ("shifted", "scaled", "missing", "one_id", "no_ids")},
}  # fmt: skip


@pytest.fixture(autouse=True)
def jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources that break are on the path, of ranks too."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv("PYTHONPATH", str(BENCHMARKS), prepend=":")


def a_run(output: Path, **fields: Any) -> Run:
    features = [{"name": name, "num_embeddings": 500, "zipf": 1.05} for name in ("f0", "f1", "f2")]
    generator = {
        "num_samples": BATCH * (STEPS + 10),
        "features": features,
        "dense": 3,
        "seed": 3,
        "teacher": {"signal": 3.0},
    }
    values: dict[str, Any] = {
        "data": RunData(train={"source": "watching_jobs:Disturbed", "generator": generator, "faults": FAULTS},
                        global_batch_size=BATCH),
        "model": RunModel(embedding_dim=8, bottom=(8,), top=(8,)), "output": str(output), "steps": STEPS, "ranks": 1,
        "watch": {"sketch_every": 96, "cooldown": 200,
                  "kinds": ["constant_feature", "flipped_labels", "hot_set", "frequent_id", *LEVELS],
                  "actions": {"constant_feature": "save", "flipped_labels": "save"}},
        "checkpoint": Checkpointing(every=1000), "metrics": RunMetrics(every=64), "plan": "auto",
    }  # fmt: skip
    return Run(**{**values, **fields})


def alarms(folder: Path) -> list[tuple[int, str, str]]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [(each["step"], each["kind"], each["because"]) for each in lines if each["event"] == "alarm"]


def test_faults_are_named_at_the_same_step_on_ranks_and_after_a_restart(tmp_path: Path) -> None:
    one = a_run(tmp_path / "one", checkpoint=Checkpointing(every=267))
    brought = train(one)["brought"]["watch"]
    assert brought.startswith("watch: 8 alarms: 2 of missing_values, 2 of dense_mean, 1 of constant_feature, ")
    assert brought.endswith("; the last one at step 328")
    found = alarms(tmp_path / "one")
    lines = [json.loads(line) for line in (tmp_path / "one/log.jsonl").read_text().splitlines()]
    told = [(each["step"], each["kind"], each["of"]) for each in lines if each["event"] == "alarm"]
    assert told == [
        (216, "constant_feature", "f0"), (264, "label_rate", "label"), (288, "flipped_labels", ""),
        (312, "missing_values", "dense_2"), (312, "dense_mean", "dense_0"), (312, "dense_mean", "dense_1"),
        (312, "missing_values", "f2"), (328, "frequent_id", "f1"),
    ]  # fmt: skip
    assert found[0][2].startswith("all ids of feature 'f0' are 0: it may not be filled")
    assert "of the ids of feature 'f1' than before are 7: " in found[-1][2]
    assert found[4][2].startswith("the mean of dense column 'dense_0' is ")
    assert " since step 296, and was " in found[4][2]

    done = [(each["what"], each["because"], each["done"]) for each in lines if each["event"] == "watcher"]
    assert done == [("save", found[0][2], "saved")]  # once in 200 steps
    assert [each["action"] for each in lines if each["event"] == "alarm"] == ["save", *[None] * 7]

    train(a_run(from_step(one, 267, tmp_path / "cut"), ranks=2))
    assert alarms(tmp_path / "cut") == found
    step, sketches = read_sketches(tmp_path / "cut")
    _, of_one = read_sketches(tmp_path / "one")
    assert step == 288
    for name in ("f0", "f1"):  # of the steps after the restart, on both ranks
        assert sketches[name].bags == pytest.approx(of_one[name].bags * (288 - 267) / 96, rel=0.15)


def test_samples_that_come_again_after_going_back_or_in_the_next_epoch_are_no_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3])
    features = [{"name": "f0", "num_embeddings": 500}]
    data = {"format": "generator", "num_samples": 64 * 100, "features": features, "dense": 1, "seed": 3}
    run = a_run(tmp_path / "out", data=RunData(train=data, global_batch_size=64, epochs=3), steps=None,
                watch={"kinds": ["repeated_samples"]}, checkpoint=Checkpointing(every=80),
                watchers=({"name": "training.watchers.test_watchers:Asks", "wishes": {"140": "roll_back"}, "rank": 0},),
                )  # fmt: skip
    assert train(run)["step"] == 300
    lines = [json.loads(line) for line in (tmp_path / "out/log.jsonl").read_text().splitlines()]
    assert [each["what"] for each in lines if each["event"] == "watcher"] == ["roll_back"]
    assert alarms(tmp_path / "out") == []


class TestAnomalies(WatcherContract):
    """Of one rank in this process."""

    @pytest.fixture(autouse=True)
    def jobs_to_look_at(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Jobs that have what the watcher looks at."""
        own = not dist.is_initialized()  # a job before, of one rank in this process, may have left one
        if own:
            dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
        self.said = list[str]()
        monkeypatch.setattr(contract, "seen", with_a_job(contract.seen, self.said))
        yield
        if own:
            dist.destroy_process_group()

    def make(self, folder: Path) -> Any:
        """A busy one."""
        return AnomalyWatcher(every=2, sketch_every=4)

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"version": 1}, "begins anew: its state is of version 1, not 4"),
            ({"features": ["f7"]}, "begins anew: its state is of other features"),
            ({"labels": ["sold"]}, "begins anew: its state is of other labels"),
            ({"every": 8}, "begins anew: its state is of looks every 8 steps, not 2"),
            ({"signals": {}}, "begins anew: state of JobSignals holds nothing instead of"),
            ({"samples": [{}]}, "begins anew: state of SeenSamples holds nothing instead of"),
        ],
    )
    def test_a_state_of_something_else_is_left_out_and_that_is_said(
        self, tmp_path: Path, change: dict[str, Any], said: str
    ) -> None:
        watcher, other = self.make(tmp_path), self.make(tmp_path)
        for step in range(1, 20):
            watcher.look(contract.seen(step, tmp_path))
        other.from_raw({**watcher.to_raw(), **change})
        other.look(contract.seen(20, tmp_path))
        assert self.said.pop().startswith(f"watch: {said}")
        assert {text.split(";")[0] for text in self.said} == {"watch: a look every 2 steps"}

    def test_the_state_of_the_day_before_is_begun_with_in_part(self, tmp_path: Path) -> None:
        watcher, other, strange = (self.make(tmp_path) for _ in range(3))
        for step in range(1, 20):
            watcher.look(contract.seen(step, tmp_path))
        raw = watcher.to_raw()
        del self.said[:]
        other.begin_after(raw, "monday")
        other.look(contract.seen(1, tmp_path))
        assert self.said == ["watch: a look every 2 steps; what is usual is known from 8 looks of 'monday'"]
        strange.begin_after({**raw, "features": ["f7"]}, "monday")
        strange.look(contract.seen(1, tmp_path))
        assert self.said[1:] == [*self.said[:1], "watch: is new, and learned first: 'f'; is gone: 'f7'"]
        del raw["signals"]["hot"]
        strange = self.make(tmp_path)
        strange.begin_after({**raw, "features": ["f7"]}, "monday")
        strange.look(contract.seen(1, tmp_path))
        assert self.said[-1].startswith("watch: begins anew: state of JobSignals holds")

    def test_the_end_of_a_short_day_is_judged_and_a_good_one_is_calm(self, tmp_path: Path) -> None:
        chance, yesterday = np.random.default_rng(0), AnomalyWatcher(sketch_every=0)

        def judged(watcher: AnomalyWatcher, steps: int, *, lost: bool = False) -> Any:
            for step in range(1, steps + 1):
                watcher.look(of_64(contract.seen(step, tmp_path), chance, lost=lost))
            return watcher.look_at_end(of_64(contract.seen(steps, tmp_path), chance, lost=lost))

        def today() -> AnomalyWatcher:
            made = AnomalyWatcher(sketch_every=0, actions={"label_rate": "fail"})
            made.begin_after(raw, "yesterday")
            return made

        judged(yesterday, 240)
        raw: Any = yesterday.to_raw()
        assert [judged(today(), steps) for steps in range(5, 41)] == [None] * 36
        assert not [text for text in self.said if "ALARM" in text]
        for steps in (10, 13, 16):
            wish = judged(today(), steps, lost=True)
            assert (wish.what, wish.because[:24]) == ("fail", "label 'label' is 0 on av")

    def test_a_job_that_is_too_short_hears_so(self, tmp_path: Path) -> None:
        job: Any = contract.seen(2, tmp_path).job
        job.total_steps = 16
        self.make(tmp_path).look(contract.seen(2, tmp_path))
        told = "watch: 16 steps are too few to watch, for what is usual is known after 16; runs that begin"
        assert [each[: len(told)] for each in self.said] == [told]

    def test_a_job_shorter_than_a_file_of_sketches_writes_one_at_its_end(self, tmp_path: Path) -> None:
        for error, last, kept in ((None, 2, 2), (RuntimeError("stopped"), 2, None), (None, 6, 4)):
            folder = tmp_path / f"{last}-{kept}"
            watcher = self.make(folder)
            for step in range(1, last + 1):
                watcher.look(contract.seen(step, folder))
            watcher.close(error)
            if kept is None:
                with pytest.raises(UsageError, match="has no sketches"):
                    read_sketches(folder)
            else:
                assert read_sketches(folder)[0] == kept  # of 6 steps, the whole period of 4


def of_64(seen: Seen, chance: np.random.Generator, *, lost: bool) -> Seen:
    """A step of 64 samples, whose labels may be lost."""
    labels = (chance.random((64, 1)) < (0 if lost else 0.4)).astype(np.float32)
    ids = JaggedIds(values=chance.integers(0, 5, 64), lengths=np.ones(64, np.int32))
    batch = Batch(dense=chance.normal(size=(64, 1)).astype(np.float32), ids={"f": ids}, labels=labels,
                  label_names=("label",), sample_ids=64 * seen.step + np.arange(64))  # fmt: skip
    outcome = StepOutcome(torch.tensor(0.5), torch.zeros(64, 1), torch.from_numpy(labels), (Place(batch, 64),))
    return replace(seen, outcome=outcome)


class _Job(SimpleNamespace):
    """A job that weak references can point to."""


def with_a_job(seen: Any, said: list[str]) -> Any:
    """`seen`, with one job that lasts as long as somebody holds it."""
    jobs = WeakValueDictionary[str, Any]()

    def made(step: int, folder: Path, loss: float = 0.5) -> Seen:
        job = jobs.setdefault("it", jobs.get("it") or _job(said))
        job.output = folder
        return replace(seen(step, folder, loss), job=job)

    return made


def _job(said: list[str]) -> Any:
    layer = torch.nn.Linear(1, 1)
    schema = DataSchema(features=(DataFeature(name="f", num_embeddings=5),), dense=("d0",), labels=("label",))
    plan = SimpleNamespace(workload=SimpleNamespace(tables=()), placements=())
    return _Job(
        total_steps=None, batch_size=2, plan=plan, attached={}, source=SimpleNamespace(schema=schema, length=None),
        sharded=SimpleNamespace(model=layer, device=torch.device("cpu"), optimizer=SimpleNamespace(optimizers=[])),
        agreement=SimpleNamespace(group=None), run=SimpleNamespace(metrics=RunMetrics(every=4), model=RunModel()),
        log=SimpleNamespace(say=lambda told: said.append(told["note"]), write=lambda *_: None, show=lambda *_: None),
    )  # fmt: skip


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    for watch, message in (
        ("on", "watch is 'on'; it is auto, none, or a mapping"),
        ({"every": 0}, "watch.every is 0; it must be at least 1"),
        ({"kinds": ["los"]}, "watch.kinds names 'los'; did you mean 'loss'"),
        ({"kinds": []}, "watch.kinds is empty; name some, or leave it out"),
        ({"features": []}, "watch.features is empty; name some, or leave it out"),
        ({"actions": {"hot_sets": "save"}}, "watch.actions names 'hot_sets'; did you mean 'hot_set'"),
        ({"actions": {"loss": "sve"}}, "save"),
        ({"kinds": ["loss"], "actions": {"ne": "save"}}, "which watch.kinds does not"),
        ({"evry": 3}, "every"),
    ):
        with pytest.raises(UsageError, match=message):
            a_run(tmp_path, watch=watch)
    with pytest.raises(UsageError, match=r"plan is the file 'p.json'.* write plan: auto"):
        a_run(tmp_path, watch={"actions": {"hot_set": "replan"}}, plan="p.json")
    for start in (train, dry_run):
        with pytest.raises(UsageError, match=r"watch.features names 'f9', which the data does not have"):
            start(a_run(tmp_path / "out", watch={"features": ["f9"]}))
    assert "watch: a look every 4 steps; what is usual is known after 32 steps, of hot sets after 256" in dry_run(
        a_run(tmp_path / "out", watch={"every": 4})
    )


def test_a_watch_without_its_packages_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from recsmith.streaming.job_signals import JobSignals
    from recsmith.streaming.job_sums import JobLayout

    monkeypatch.setitem(sys.modules, "river.drift", None)
    signals = JobSignals(JobLayout(("f",), (), 1, ((1.0,),)))
    assert signals.missing is not None
    assert "needs river: pip install" in signals.missing
    assert not signals.hot
    assert "loss" in signals.series
