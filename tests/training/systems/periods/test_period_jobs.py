"""Real jobs in periods: each is scored before it is trained, watchers hear of it, and what is resumed ends the same."""

import json
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from recsmith.training import Checkpointing, Run, RunData, RunMetrics, RunModel, evaluate, train
from recsmith.training.systems.periods.settings import Periods

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
WATCHER = """
from recsmith.training.watchers.protocol import Watcher, Wish


class Last(Watcher):
    def look(self, seen):
        return None

    def look_at_period(self, seen):
        if seen.period == 2 and seen.ahead == 1:
            return Wish("stop", f"period {seen.period} has NE {seen.scores.ne:.3f}")
"""


def data(first: int, samples: int) -> dict[str, Any]:
    features = [{"name": name, "num_embeddings": rows} for name, rows in (("a", 100), ("b", 40))]
    return {
        "format": "generator", "seed": 1, "dense": 2, "features": features, "first_sample": first,
        "num_samples": samples,
    }  # fmt: skip


def a_run(output: Path, *, update: Any = "incremental", **words: Any) -> Run:
    periods = Periods(samples=240, update=update, score_ahead=(1, 2))
    values: dict[str, Any] = {
        "data": RunData(train=data(0, 1000), global_batch_size=48, periods=periods),
        "model": RunModel(embedding_dim=8, bottom=(8,), top=(8,)),
        "output": str(output),
        "checkpoint": Checkpointing(every=7, keep=9),
        "metrics": RunMetrics(every=10),
    }
    return Run(**{**values, **words})


def events(folder: Path | str, kind: str) -> list[dict[str, Any]]:
    """Lines of a log of a kind."""
    lines = [json.loads(line) for line in (Path(folder) / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == kind]


def of_periods(folder: Path | str) -> dict[tuple[int, int], float]:
    """Log losses of periods, by their number and how far ahead they were scored."""
    return {(line["period"], line["ahead"]): line["logloss"] for line in events(folder, "period")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, Any]]:
    """A run of four periods on two ranks, and what came of it."""
    run = a_run(tmp_path_factory.mktemp("trained") / "out", ranks=2)
    return run, train(run)


def test_each_period_is_scored_before_it_is_trained(trained: tuple[Run, dict[str, Any]], tmp_path: Path) -> None:
    run, result = trained
    assert (result["step"], result["complete"]) == (20, True)
    said = "periods: 4 periods scored before training on them: log loss 0."
    assert result["brought"]["data.periods"].startswith(said)
    assert set(of_periods(run.output)) == {(0, 1), (1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (3, 2)}
    assert [line["step"] for line in events(run.output, "period") if line["ahead"] == 1] == [0, 5, 10, 15]
    assert [(line["step"], line["period"]) for line in events(run.output, "trained")] == [
        (5, 0),
        (10, 1),
        (15, 2),
        (20, 3),
    ]
    assert {line["samples"] for line in events(run.output, "period")} == {240}
    cut = a_run(tmp_path / "cut", ranks=2, steps=10)
    train(cut)
    scores = evaluate(cut.output, data=data(480, 240), ranks=2)
    assert scores.logloss == pytest.approx(of_periods(run.output)[2, 1], rel=1e-6), "as the model before it scores it"


@pytest.mark.parametrize("update", ["incremental", {"name": "window", "periods": 2}])
def test_a_resumed_job_ends_with_the_same_bits(tmp_path: Path, update: Any) -> None:
    run = a_run(tmp_path / "out", update=update, checkpoint=Checkpointing(every=1, keep=99))
    result = train(run)
    assert result["step"] == (20 if update == "incremental" else 35)
    for step in (5, 7, 14):  # 5: between two periods
        again = tmp_path / f"from-{step}"
        shutil.copytree(run.output, again)
        shutil.rmtree(again / "model")
        for folder in (again / "checkpoints").iterdir():
            if int(folder.name.removeprefix("step-")) > step:
                shutil.rmtree(folder)
        train(run, settings=(f"output={again}",))
        weights = "model/weights.safetensors"
        assert (again / weights).read_bytes() == Path(run.output, weights).read_bytes(), step
        assert of_periods(again) == of_periods(run.output), step
        for kind in ("period", "trained"):
            assert len(events(again, kind)) == len(events(run.output, kind)), "none is told twice"


def test_one_rank_and_two_see_the_same_periods(trained: tuple[Run, dict[str, Any]], tmp_path: Path) -> None:
    run, _ = trained
    train(alone := a_run(tmp_path / "alone"))
    one, two = of_periods(alone.output), of_periods(run.output)
    assert one.keys() == two.keys()
    assert list(one.values()) == pytest.approx(list(two.values()), rel=1e-5)


def test_a_watcher_hears_of_periods_and_may_end_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_periods.py").write_text(WATCHER)
    monkeypatch.syspath_prepend(tmp_path)
    run = a_run(tmp_path / "out", watchers=("of_periods:Last",), data=RunData(
        train=data(0, 1000), batch_size=10, periods=Periods(samples=240)))  # fmt: skip
    result = train(run)
    (told,) = events(run.output, "watcher")
    assert told["what"] == "stop"
    assert told["because"].startswith("period 2 has NE ")
    assert 48 < result["step"] <= 48 + 16, "within 16 steps after the period was scored"


FIXED = """
from recsmith.training.systems.periods.updates.future_gradient import FutureGradient
from recsmith.training.systems.periods.updates.protocol import Update


class Fixed(Update):
    def __init__(self, *, weights: list[float]) -> None:
        self.mixed, self.fixed = len(weights), tuple(weights)

    def weights(self, job, period):
        return self.fixed[: period + 1]


class Asked(FutureGradient):
    def weights(self, job, period):
        super().weights(job, period)
        return (1.0, 0.0, 0.0)
"""


@pytest.fixture
def updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with updates of one's own."""
    (tmp_path / "own_updates.py").write_text(FIXED)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("name", ["Fixed", "Asked"])
@pytest.mark.usefixtures("updates")
def test_weights_of_the_newest_period_alone_are_incremental_bit_for_bit(
    trained: tuple[Run, dict[str, Any]], tmp_path: Path, name: str
) -> None:
    """Also where the gradients that weights are fitted to were looked at: they change nothing."""
    run, _ = trained
    update = {"name": f"own_updates:{name}", **({"weights": [1.0, 0.0, 0.0]} if name == "Fixed" else {})}
    other = a_run(tmp_path / "out", update=update, ranks=2, plan=str(Path(run.output) / "plan.json"))
    train(other)
    weights = "model/weights.safetensors"
    assert Path(other.output, weights).read_bytes() == Path(run.output, weights).read_bytes()
    assert of_periods(other.output) == of_periods(run.output)


def test_a_weighted_loss_has_the_sum_of_the_weighted_gradients() -> None:
    import numpy as np
    import torch

    from recsmith.training.batches import training_batches
    from recsmith.training.job.models import build_task
    from recsmith.training.run.data import BatchSizes
    from recsmith.training.sources import open_source
    from recsmith.training.systems.periods.source import PeriodSource
    from recsmith.training.tables.plain import features_of

    run = a_run(Path("x"), data=RunData(train=data(0, 1000), batch_size=24, periods=Periods(samples=240)))
    source, weights = open_source(run), (1.5, -0.25, 0.75)
    assert isinstance(source, PeriodSource)
    task = build_task(run.model, source.schema, 0, tables_on="cpu")

    def gradients(made: PeriodSource) -> list[torch.Tensor]:
        batch = next(iter(training_batches(made, BatchSizes(((0, 24),)), features_of(task), rank=0, ranks=1)))
        task.zero_grad()
        loss, _ = task(batch)
        loss.backward()
        return [torch.zeros(1) if each.grad is None else each.grad.clone() for each in task.parameters()]

    together = gradients(replace(source, only=2, weights=weights))
    parts = [gradients(replace(source, only=2, weights=tuple(float(at == one) for at in range(3)))) for one in range(3)]
    newest = gradients(replace(source, only=2, weights=(1.0,)))
    for at, found in enumerate(together):
        apart = sum(weight * part[at] for weight, part in zip(weights, parts, strict=True))
        np.testing.assert_allclose(found, apart, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(parts[0][at], newest[at], rtol=1e-6, atol=1e-7)
    assert any(float(each.abs().max()) > 1e-3 for each in together)


def test_a_job_by_future_gradient_ends_with_the_same_bits_when_it_is_resumed(tmp_path: Path) -> None:
    update = {"name": "future_gradient", "periods": 2}
    run, again = a_run(tmp_path / "out", update=update, ranks=2), tmp_path / "again"
    train(run)
    fitted = [line["weights"] for line in events(run.output, "trained")]
    assert [len(each) for each in fitted] == [1, 1, 2, 2]
    assert all(abs(weight) < 3 for each in fitted for weight in each)
    shutil.copytree(run.output, again)
    shutil.rmtree(again / "model")
    shutil.rmtree(again / "checkpoints/step-00000020")
    train(run, settings=(f"output={again}",))  # from step 14, within period 2
    weights = "model/weights.safetensors"
    assert (again / weights).read_bytes() == Path(run.output, weights).read_bytes()
    assert [line["weights"] for line in events(again, "trained")] == fitted
    alone = a_run(tmp_path / "alone", update=update)
    train(alone)
    for one, two in zip(events(alone.output, "trained"), events(run.output, "trained"), strict=True):
        assert one["weights"] == pytest.approx(two["weights"], rel=1e-3), "ranks agree on their samples' gradients"
