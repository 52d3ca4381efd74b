"""Optimizers of tables by pattern: those of torch, one a table, on sharded and copied tables, resumed and planned."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from training.tables.test_shared_features import a_plan, a_run, tables
from training.test_jobs import from_step, losses
from training.unsharded import unsharded_losses

from recsmith.errors import CorruptFile, UsageError
from recsmith.training import OptimizerRule, Run, RunModel, RunOptimizers, SparseOptimizer, train

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
STEPS, EVERY = 6, 3
RULES = (
    OptimizerRule(tables="item_wide", name="sgd", learning_rate=0.1),
    OptimizerRule(tables="item*", eps=1e-4),
    OptimizerRule(tables="user", name="rowwise_adagrad", learning_rate=0.01),
)
MIXED = RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=0.05, tables=RULES))


def run_of(folder: Path, **words: Any) -> Run:
    return a_run(folder, RunModel(name="wide_deep", tables=tables(4)), **{"optimizers": MIXED, "ranks": 2, **words})


@pytest.mark.parametrize("copied", [False, True])
def test_each_table_learns_by_its_own_optimizer_under_any_plan(tmp_path: Path, copied: bool):
    kinds = {"user": "data_parallel", "item_wide": "data_parallel", "item": "data_parallel"} if copied else {}
    run = run_of(tmp_path, plan=a_plan(tmp_path, **kinds))
    result = train(run)
    assert losses(tmp_path / "out") == pytest.approx(unsharded_losses(run, STEPS), rel=1e-6)
    one = replace(run, optimizers=RunOptimizers(sparse=replace(MIXED.sparse, tables=())))
    assert losses(tmp_path / "out") != pytest.approx(unsharded_losses(one, STEPS), rel=1e-6)
    again = from_step(run, EVERY, tmp_path / "again")
    assert train(run, settings=(f"output={again}",))["test"] == result["test"]
    weights = "model/weights.safetensors"
    assert (again / weights).read_bytes() == (tmp_path / "out" / weights).read_bytes()


def test_a_plan_counts_the_state_of_each_table_and_a_resume_refuses_another_one(tmp_path: Path):
    import recsmith

    run = run_of(tmp_path)
    train(run)
    workload = recsmith.load_plan(tmp_path / "out/plan.json").workload
    assert {table.name: workload.optimizer_of(table) for table in workload.tables} == {
        "user": "rowwise_adagrad", "user_wide": "adagrad", "item": "adagrad", "item_wide": "sgd",
    }  # fmt: skip
    rules = (replace(RULES[0], name="rowwise_adagrad"), *RULES[1:])
    other = replace(run, optimizers=RunOptimizers(sparse=replace(MIXED.sparse, tables=rules)), steps=STEPS + 1)
    with pytest.raises(CorruptFile, match="sparse is sgd for table 'item_wide' there and rowwise_adagrad here"):
        train(other)


def test_rules_are_of_the_first_pattern_that_fits_and_have_defaults_of_their_optimizer():
    sparse = SparseOptimizer(name="adagrad", learning_rate=0.05, eps=0.5, tables=RULES)
    assert sparse.of("user") == SparseOptimizer(name="rowwise_adagrad", learning_rate=0.01)
    assert sparse.of("item") == SparseOptimizer(name="adagrad", learning_rate=0.05, eps=1e-4)
    assert sparse.of("item_wide") == SparseOptimizer(name="sgd", learning_rate=0.1)
    assert sparse.of("user_wide") == SparseOptimizer(name="adagrad", learning_rate=0.05, eps=0.5)
    assert sparse.names == ("adagrad", "sgd", "rowwise_adagrad")
    assert SparseOptimizer(name="adam", tables=(OptimizerRule(tables="*", name="sgd"),)).names == ("sgd",)
    with pytest.raises(UsageError, match=r"tables of 'a': eps is 0\.1, and sgd has none; leave it out"):
        SparseOptimizer(tables=(OptimizerRule(tables="a", name="sgd", eps=0.1),))
    with pytest.raises(UsageError, match="tables of 'a' says nothing but the tables"):
        OptimizerRule(tables="a")


def test_an_optimizer_that_a_cpu_does_not_have_is_refused_for_one_table_too(tmp_path: Path):
    from recsmith.training.launch.launching import dry_run

    rules = (OptimizerRule(tables="user", name="adam"),)
    run = run_of(tmp_path, optimizers=RunOptimizers(sparse=SparseOptimizer(name="sgd", tables=rules)))
    with pytest.raises(UsageError, match=r"optimizers.sparse.name: adam needs ranks on GPUs"):
        dry_run(run)
