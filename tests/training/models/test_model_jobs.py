"""Jobs of the models of histories: losses of the unsharded model on 1, 2 and 4 ranks, resumed to the bit, served."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.systems import needs_systems
from training.test_jobs import from_step, losses
from training.unsharded import unsharded_losses

from recsmith.data import open_dataset, spec_from_raw
from recsmith.embeddings import CompressionRule
from recsmith.errors import UsageError
from recsmith.training import (
    Checkpointing,
    DenseOptimizer,
    Run,
    RunData,
    RunMetrics,
    RunModel,
    RunOptimizers,
    SparseOptimizer,
    evaluate,
    train,
)

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
STEPS, EVERY, BATCH = 8, 4, 48
EVENTS = {"users": 60, "items": 150, "kinds": 5, "events": 20}
DATA = {"format": "sequences", "generated": EVENTS, "longest": 8, "negatives": 1}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "hstu": {"times": "times", "target_time": "target_time", "context": ["user"], "longest": 8, "dropout": 0.0},
    "sasrec": {"longest": 8, "dropout": 0.0},
    "din": {"longest": 8},
}


def a_run(output: Path, name: str = "hstu", **words: Any) -> Run:
    values: dict[str, Any] = {
        "data": RunData(train={**DATA, "split": "train"}, test={**DATA, "split": "test"}, global_batch_size=BATCH),
        "model": RunModel(name=name, embedding_dim=8, arguments=ARGUMENTS[name]),
        "output": str(output),
        "steps": STEPS,
        "optimizers": RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=0.05)),
        "checkpoint": Checkpointing(every=EVERY, keep=3),
        "metrics": RunMetrics(every=1),
    }
    return Run(**{**values, **words})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, Any]]:
    run = a_run(tmp_path_factory.mktemp("hstu") / "out", ranks=2, metrics=RunMetrics(every=1, at=(1,)))
    return run, train(run)


def test_losses_are_those_of_the_unsharded_model(trained: tuple[Run, dict[str, Any]]):
    expected = unsharded_losses(trained[0], STEPS)
    assert losses(Path(trained[0].output)) == pytest.approx(expected, rel=1e-6)
    assert len(set(expected)) == STEPS


def test_a_job_that_goes_on_ends_with_the_same_bits(trained: tuple[Run, dict[str, Any]], tmp_path: Path):
    run, result = trained
    again = from_step(run, EVERY, tmp_path / "again")
    assert train(run, settings=(f"output={again}",))["test"] == result["test"]
    weights = "model/weights.safetensors"
    assert (again / weights).read_bytes() == Path(run.output, weights).read_bytes()
    assert losses(again) == losses(Path(run.output))


def test_other_numbers_of_ranks_go_on_with_the_same_losses(trained: tuple[Run, dict[str, Any]], tmp_path: Path):
    elsewhere = from_step(trained[0], EVERY, tmp_path / "elsewhere")
    train(trained[0], settings=(f"output={elsewhere}", "ranks=1"))
    assert losses(elsewhere) == pytest.approx(losses(Path(trained[0].output)), rel=1e-6)


def test_a_softmax_over_candidates_is_that_of_the_unsharded_model_and_ranks_the_test(tmp_path: Path):
    from recsmith.training.job.card import read_card
    from recsmith.training.results.copies import batches_like

    data = RunData(
        train={**DATA, "negatives": 0, "candidates": 7, "split": "train"},
        test={**DATA, "negatives": 9, "split": "test"}, global_batch_size=BATCH,
    )  # fmt: skip
    model = RunModel(name="sasrec", embedding_dim=8, arguments=ARGUMENTS["sasrec"], loss="softmax")
    run = a_run(tmp_path / "out", data=data, model=model, ranks=2, metrics=RunMetrics(every=1, at=(1, 5)))
    result = train(run)
    assert losses(Path(run.output)) == pytest.approx(unsharded_losses(run, STEPS), rel=1e-5)
    assert result["test"]["ranking"]["groups"] == result["test"]["samples"] // 10
    assert result["test"]["ranking"]["at"]["5"]["hit_rate"] > result["test"]["ranking"]["at"]["1"]["hit_rate"] > 0
    again = from_step(run, EVERY, tmp_path / "again")
    assert train(run, settings=(f"output={again}",))["test"] == result["test"]
    with pytest.raises(UsageError, match=r"by model\.loss: softmax, and a copy is fitted to binary cross entropy"):
        next(batches_like(read_card(Path(run.output, "model")), open_dataset(spec_from_raw(data.test or {}, "x")), "x"))


@needs_systems("tiers")
def test_rows_of_histories_are_fetched_from_a_file_ahead_of_their_batch(
    trained: tuple[Run, dict[str, Any]], tmp_path: Path
):
    rows = {"name": "tiered", "folder": str(tmp_path / "rows"), "cache": 0.2}
    run = a_run(tmp_path / "out", ranks=2, rows=rows, pipeline="prefetch_sparse_dist")
    assert 0 <= train(run)["hit_share"] <= 1
    weights = "model/weights.safetensors"
    assert Path(run.output, weights).read_bytes() == Path(trained[0].output, weights).read_bytes()


@needs_systems("stored")
def test_tables_of_histories_are_stored_smaller(tmp_path: Path):
    from recsmith.training import load_model
    from recsmith.training.launch.dry_run import described

    rules = (
        CompressionRule(method="quotient_remainder", tables="user", above_rows=0, factor=4),
        CompressionRule(method="path_based", tables="target", above_rows=0, factor=5, hidden=7),  # ids are parted
    )
    model = RunModel(name="hstu", embedding_dim=8, arguments=ARGUMENTS["hstu"], compression=rules)
    run = a_run(tmp_path / "out", model=model, ranks=2)
    plain = described(a_run(tmp_path / "out", model=replace(model, compression=()), ranks=2))
    assert described(run).memory[0].layers >= plain.memory[0].layers
    result = train(run)
    assert losses(Path(run.output)) == pytest.approx(unsharded_losses(run, STEPS), rel=1e-6)
    again = from_step(run, EVERY, tmp_path / "again")
    train(run, settings=(f"output={again}",))
    assert losses(again) == pytest.approx(losses(Path(run.output)), rel=1e-6)
    assert load_model(Path(run.output, "model")).table("target").shape == (EVENTS["items"], 8)
    assert evaluate(run.output, ranks=1).logloss == pytest.approx(result["test"]["logloss"], rel=1e-6)


@needs_systems("remote")
def test_pooled_tables_and_others_are_on_servers_together(tmp_path: Path):
    from recsmith.training.systems.remote.settings import RunRemote

    run = a_run(tmp_path / "out", "din", ranks=2, remote=RunRemote(servers=2))
    train(run)
    assert losses(Path(run.output)) == pytest.approx(unsharded_losses(run, STEPS), rel=1e-6)


@needs_systems("remote")
def test_a_softmax_trains_on_servers(tmp_path: Path):
    from recsmith.training.systems.remote.settings import RunRemote

    data = RunData(train={**DATA, "negatives": 0, "candidates": 7, "split": "train"}, global_batch_size=BATCH)
    model = RunModel(name="sasrec", embedding_dim=8, arguments=ARGUMENTS["sasrec"], loss="softmax")
    run = a_run(tmp_path / "out", data=data, model=model, ranks=1, remote=RunRemote(servers=1))
    train(run)
    assert losses(Path(run.output)) == pytest.approx(unsharded_losses(run, STEPS), rel=1e-6)


MEMBERS = {"one": (), "two": ("optimizers.sparse.learning_rate=0.2", "seed=3")}


@needs_systems("arrays")
@pytest.mark.parametrize(
    ("name", "loss", "other"),
    [("hstu", "binary", "blocks=1"), ("din", "binary", "attention=[16]"), ("sasrec", "softmax", "blocks=1")],
)
def test_models_of_histories_are_trained_together(name: str, loss: Any, other: str, tmp_path: Path):
    from recsmith.training.systems.arrays.members import members_of
    from recsmith.training.systems.arrays.settings import RunArray

    soft = {"candidates": 7, "negatives": 0} if loss == "softmax" else {}
    data = RunData(
        train={**DATA, **soft, "split": "train"}, test={**DATA, "split": "test"}, global_batch_size=BATCH
    )  # fmt: skip
    model = RunModel(name=name, embedding_dim=8, arguments=ARGUMENTS[name], loss=loss)
    members = {**MEMBERS, "two": (*MEMBERS["two"], f"model.arguments.{other}")}
    run = a_run(tmp_path / "out", name, data=data, model=model, ranks=2,
                array=RunArray(members=members, together="always"))  # fmt: skip
    result = train(run)
    for each, own in members_of(run).items():
        assert losses(Path(own.output)) == pytest.approx(unsharded_losses(own, STEPS), rel=1e-6), each
    for each in MEMBERS:
        again = from_step(members_of(run)[each], EVERY, tmp_path / "again" / each)
        assert again.is_dir()
    found = train(run, settings=(f"output={tmp_path / 'again'}",))
    for each in MEMBERS:
        wanted = result["members"][each]["test"]["logloss"]
        assert found["members"][each]["test"]["logloss"] == pytest.approx(wanted, rel=1e-6)


@needs_systems("arrays")
def test_a_limit_of_memory_needs_steps_of_one_shape(tmp_path: Path):
    from recsmith.training.systems.arrays.settings import RunArray

    array = RunArray(members=MEMBERS, together="always", layer_memory="64MiB")
    with pytest.raises(UsageError, match="plans a step whose shapes are always the same"):
        train(a_run(tmp_path / "out", array=array, ranks=1))


@needs_systems("shampoo", "halves", "narrow", "second_order", "thresholds")
@pytest.mark.parametrize("how", ["shampoo", "split", "dance", "narrow", "thresholded"])
def test_layers_of_histories_are_trained_in_other_ways(how: str, tmp_path: Path):
    from recsmith.training.systems.narrow.settings import NarrowSettings

    wide, tables = {**ARGUMENTS["sasrec"], "hidden": 64}, SparseOptimizer(name="adagrad", learning_rate=0.05)
    often = {"precondition_frequency": 2, "statistics_frequency": 1}
    narrow = NarrowSettings(cycles=1, dense_at_start=1 / 2, dense_at_end=1 / 3)  # after steps 10 to 20 of 30
    words: dict[str, dict[str, Any]] = {
        "shampoo": {"optimizers": RunOptimizers(sparse=tables, dense=DenseOptimizer(name="shampoo", arguments=often))},
        "split": {
            "optimizers": RunOptimizers(sparse=tables, dense=DenseOptimizer(name="split")),
            "model": RunModel(name="sasrec", embedding_dim=8, arguments=wide, precision="bf16"),
        },
        "dance": {
            "pipeline": {"name": "dance", "samples": 96, "most": 4, "newton": 2, "inner": 4},
            "optimizers": RunOptimizers(), "steps": 2, "checkpoint": Checkpointing(every=1, keep=3),
        },
        "narrow": {
            "model": RunModel(name="sasrec", embedding_dim=8, arguments=wide, narrow=narrow), "steps": 30,
            "checkpoint": Checkpointing(every=15, keep=3),
        },
        "thresholded": {"comms": {"name": "thresholded", "dense": 0.05}},
    }  # fmt: skip
    run = a_run(tmp_path / "out", "sasrec", ranks=2, **words[how])
    result = train(run)
    step = {"dance": 1, "narrow": 15}.get(how, EVERY)
    again = from_step(run, step, tmp_path / "again")
    assert train(run, settings=(f"output={again}",))["test"] == result["test"]
    weights = "model/weights.safetensors"
    assert (again / weights).read_bytes() == Path(run.output, weights).read_bytes()


@pytest.mark.soak
@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("kind", ["table_wise", "row_wise"])
def test_every_model_is_the_unsharded_one_on_any_ranks(name: str, ranks: int, kind: str, tmp_path: Path):
    import recsmith

    run = a_run(tmp_path / "out", name, ranks=ranks)
    train(run)
    assert losses(Path(run.output)) == pytest.approx(unsharded_losses(run, STEPS), rel=1e-6)
    plan = recsmith.load_plan(Path(run.output, "plan.json"))
    tables = {"schema": "recsmith/constraints/1", "rules": [{"tables": "*", "sharding_types": [kind]}]}
    (tmp_path / "rules.json").write_text(json.dumps(tables))
    split = recsmith.plan(plan.workload, plan.cluster, constraints=tmp_path / "rules.json", planner="size_greedy").plan
    recsmith.save_plan(split, tmp_path / "plan.json")
    other = a_run(tmp_path / "other", name, ranks=ranks, plan=str(tmp_path / "plan.json"))
    train(other)
    assert losses(Path(other.output)) == pytest.approx(losses(Path(run.output)), rel=1e-6)


def test_the_exported_model_serves_raw_histories(trained: tuple[Run, dict[str, Any]]):
    from recsmith.training import load_model

    run, result = trained
    scores = evaluate(run.output, ranks=1)
    assert scores.logloss == pytest.approx(result["test"]["logloss"], rel=1e-6)
    assert scores.ranking is not None
    assert scores.ranking.groups == result["test"]["ranking"]["groups"] == scores.samples // 2
    assert scores.ranking.at["1"].ndcg == result["test"]["ranking"]["at"]["1"]["ndcg"] == scores.ranking.auc
    model = load_model(Path(run.output) / "model")
    test = open_dataset(spec_from_raw(dict(run.data.test), "test"))
    with test.batches(rank=0, world_size=1, batch_size=20, seed=0, shuffle=False) as batches:
        batch = next(batches)
    ends = {name: np.cumsum(bags.lengths) for name, bags in batch.ids.items()}
    lists = {
        name: [bags.values[end - length : end].tolist() for end, length in zip(ends[name], bags.lengths, strict=True)]
        for name, bags in batch.ids.items()
    }
    np.testing.assert_allclose(model(lists), model.predict(batch), rtol=1e-6)
    none = {name: [[]] if name in ("history", "times") else each[:1] for name, each in lists.items()}
    assert 0 < float(model(none)[0, 0]) < 1  # a user of whom nothing is known


@pytest.mark.parametrize(
    ("times", "asked", "words"),
    [
        ([5, 9, 7], 10, "feature 'times' of a sample goes from 9 back to 7"),
        ([5, 7, 9], 8, "a history has an event at 9, after its target at 8"),
    ],
)
def test_times_that_go_back_or_tell_the_future_are_refused(
    trained: tuple[Run, dict[str, Any]], times: list[int], asked: int, words: str
):
    from recsmith.training import load_model

    model = load_model(Path(trained[0].output) / "model")
    with pytest.raises(UsageError, match=words):
        model({"user": [[0]], "history": [[1, 2, 3]], "times": [times], "target": [[4]], "target_time": [[asked]]})


def test_a_dry_run_prices_attention_and_counts_its_memory(tmp_path: Path):
    from recsmith.training.launch.dry_run import described

    def of(longest: int) -> Any:
        data = RunData(
            train={**DATA, "generated": {**EVENTS, "events": 4 * longest}, "longest": longest}, global_batch_size=BATCH
        )
        arguments = {**ARGUMENTS["hstu"], "longest": longest}
        model = RunModel(name="hstu", embedding_dim=8, arguments=arguments)
        return described(a_run(tmp_path / "out", data=data, model=model, ranks=1))

    short, long = of(10), of(100)
    assert short.step is not None
    assert long.step is not None
    assert long.step.layers_s > 2 * short.step.layers_s
    assert long.memory[0].layers > 10 * short.memory[0].layers
