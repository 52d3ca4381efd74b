"""Deduplicated features: real jobs whose losses and exported weights are those of plain ones."""

import json
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.unsharded import unsharded_losses

import recsmith
from recsmith.errors import UsageError
from recsmith.training import Checkpointing, Run, RunData, RunMetrics, RunModel, RunOptimizers, SparseOptimizer, train

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
KINDS = {
    "a": "table_wise",
    "b": "row_wise",
    "c": "column_wise",
    "d": "data_parallel",
    "e": "row_wise",
    "f": "table_wise",
}
REPEATED = {"a": 0.97, "b": 0.97, "c": 0.6, "d": 0.97, "e": 0.0, "f": 0.5}  # chance of the bag of the sample before
FEATURES = [
    {"name": name, "num_embeddings": 50 + 7 * i, "pooling_factor": 3, "lengths": "poisson", "duplication": chance}
    for i, (name, chance) in enumerate(REPEATED.items())
]
STEPS, DIM, BATCH = 8, 8, 64


def data(first: int, samples: int) -> dict[str, Any]:
    words = {"format": "generator", "seed": 1, "dense": 2, "features": FEATURES, "sessions": {"size": 16}}
    return {**words, "first_sample": first, "num_samples": samples}


def a_run(folder: Path, **words: Any) -> Run:
    settings: dict[str, Any] = {"train": data(0, 20_000), "test": data(20_000, 101), "keep_together": 16, **words}
    return Run(
        data=RunData(global_batch_size=BATCH, **settings),
        model=RunModel(embedding_dim=DIM, bottom=(8,), top=(8,)),
        output=str(folder / "out"), plan=plan_for_two(folder), ranks=2, steps=STEPS,
        optimizers=RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=0.05)),
        checkpoint=Checkpointing(every=4, keep=3), metrics=RunMetrics(every=1),
    )  # fmt: skip


def plan_for_two(folder: Path) -> str:
    """Each table by one of the sharding types."""
    tables = [
        {"name": each["name"], "num_embeddings": each["num_embeddings"], "embedding_dim": DIM, "pooling_factor": 3}
        for each in FEATURES
    ]
    workload = {"schema": "recsmith/workload/1", "batch_size": BATCH // 2, "optimizer": "adagrad", "tables": tables}
    rules = [{"tables": name, "sharding_types": [kind]} for name, kind in KINDS.items()]
    (folder / "tables.json").write_text(json.dumps(workload))
    (folder / "rules.json").write_text(json.dumps({"schema": "recsmith/constraints/1", "rules": rules}))
    made = recsmith.plan(folder / "tables.json", "cpu:2", constraints=folder / "rules.json", planner="size_greedy").plan
    recsmith.save_plan(made, folder / "plan.json")
    return str(folder / "plan.json")


def losses(folder: str) -> list[float]:
    lines = [json.loads(line) for line in Path(folder, "log.jsonl").read_text().splitlines()]
    return [line["logloss"] for line in lines if line["event"] == "train"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, Any]]:
    run = a_run(tmp_path_factory.mktemp("dedup"), deduplicate=tuple((name,) for name in "abdcf"))
    return run, train(run)


def test_losses_and_scores_are_those_of_plain_features(trained: tuple[Run, dict[str, Any]]) -> None:
    from recsmith.training import load_model

    run, result = trained
    plain = replace(run, data=replace(run.data, deduplicate="off"))
    assert losses(run.output) == pytest.approx(unsharded_losses(plain, STEPS), rel=1e-6)
    assert result["test"]["samples"] == 101
    said = re.fullmatch(
        r"deduplicate: (\d+)% of the bags of 5 features were looked up; (\d+)% were predicted",
        result["brought"]["data.deduplicate"],
    )
    assert said is not None
    assert 0 < int(said[1]) < 100
    assert int(said[2]) == pytest.approx(int(said[1]), abs=15)
    model = load_model(Path(run.output) / "model")  # a model without deduplication, as any serving job has it
    bags = {name: [[1, 2]] for name in KINDS}
    assert np.isfinite(model(bags, [[0.0, 0.0]])).all()


RAY = pytest.param(("data.engine=ray",), marks=pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray"))


@pytest.mark.parametrize("engine", [(), RAY])
def test_a_resumed_job_that_is_fed_by_processes_ends_with_the_same_bits(
    engine: tuple[str, ...], trained: tuple[Run, dict[str, Any]], tmp_path: Path
) -> None:
    import shutil

    run, _ = trained
    again = tmp_path / "again"
    shutil.copytree(run.output, again)
    shutil.rmtree(again / "checkpoints" / f"step-{STEPS:08d}")
    shutil.rmtree(again / "model")
    train(run, settings=(f"output={again}", "data.feed=1", *engine))
    weights = "model/weights.safetensors"
    assert (again / weights).read_bytes() == Path(run.output, weights).read_bytes()


def test_what_gains_is_chosen_and_counted_in_the_plan(trained: tuple[Run, dict[str, Any]]) -> None:
    from recsmith.training.job.models import unsharded
    from recsmith.training.job.plan import plan_here
    from recsmith.training.sources import open_source
    from recsmith.training.systems.dedup.groups import deduplication_of

    run, _ = trained
    source = open_source(run)
    found = deduplication_of(run, source)
    assert sorted(found.factors) == ["a", "b", "c", "d", "f"]
    assert len(found.parts) == 2  # those that repeat ten times apart from those that repeat twice
    assert all(1.4 < found.factors[name][0] <= found.factors[name][1] < 3.1 for name in "cf")
    assert all(5 < found.factors[name][0] <= found.factors[name][1] <= 16 for name in "abd")
    plan = plan_here(unsharded(replace(run, plan="auto")), 2, 2)
    batches = {table.name: table.features[0].batch_size for table in plan.workload.tables}
    assert batches["e"] is None
    assert (batches["a"] or 99) < 10
    assert 10 < (batches["f"] or 0) < 24


def test_wrong_groups_are_refused(tmp_path: Path) -> None:
    from recsmith.embeddings import CompressionRule
    from recsmith.training.sources import open_source
    from recsmith.training.systems.dedup.groups import deduplication_of

    run = a_run(tmp_path, deduplicate=(("a", "b"), ("c",)))
    source = open_source(run)
    assert deduplication_of(run, source).groups == (("a", "b"), ("c",))

    def refused(match: str, **words: Any) -> None:
        with pytest.raises(UsageError, match=match):
            deduplication_of(replace(run, **words), source)

    refused("names 'zz', which the data does not have", data=replace(run.data, deduplicate=(("zz",),)))
    refused("names 'a' twice", data=replace(run.data, deduplicate=(("a",), ("a",))))
    rule = CompressionRule(method="hash", tables="a", factor=2)
    refused("both say how tables are built", model=replace(run.model, compression=(rule,)))


def test_tensors_expand_to_what_they_were() -> None:
    import torch
    from torchrec import KeyedJaggedTensor

    from recsmith.training.systems.dedup.tables import InverseKeyedJaggedTensor

    plain = KeyedJaggedTensor(
        keys=["x", "y"], values=torch.tensor([1, 2, 1, 2, 3, 5, 5, 6]), lengths=torch.tensor([2, 2, 1, 1, 1, 1])
    )
    for groups, rows in ((None, [2, 2]), ([("x", "y")], [2, 2])):
        found = InverseKeyedJaggedTensor.from_keyed_jagged_tensor(plain, groups)
        assert found.distinct.stride() == max(rows)
        again = found.to_keyed_jagged_tensor()
        assert again.values().tolist() == plain.values().tolist()
        assert again.lengths().tolist() == plain.lengths().tolist()


def test_auto_is_settled_in_the_run_and_stays_where_a_job_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The model has other collections, so a checkpoint could not be loaded after another choice."""
    from recsmith.training.job.models import unsharded
    from recsmith.training.systems.dedup import SYSTEM, groups
    from recsmith.training.systems.dedup.deciding import AskedGain

    run = a_run(tmp_path, deduplicate="auto")
    off = unsharded(run)
    assert (off.run.data.deduplicate, off.features.repeats) == ("off", {})  # finding rows of three ids is not worth it
    monkeypatch.setattr(groups, "dedup_price", lambda *_: groups.DedupPrice(saved_s=2.0, added_s=1.0))
    for seconds, pays in ((0.97, True), (0.99, False)):
        asked = AskedGain(plain_s=1.0, distinct_s=seconds)
        monkeypatch.setattr(groups, "asked_gain", lambda *_, asked=asked: asked)
        found = unsharded(run)
        (told,) = (each.said for each in found.lines if each.key == "data.deduplicate")
        assert bool(found.features.repeats) == (found.run.data.deduplicate != "off") == pays
        assert f"{asked}; so data.deduplicate, which is auto, is {'on' if pays else 'off'}" in told
        assert SYSTEM.as_before(found.run, run).data.deduplicate == found.run.data.deduplicate
        assert SYSTEM.as_before(run, run) is run
        again = unsharded(SYSTEM.as_before(found.run, run))
        assert again.features.repeats == found.features.repeats
