"""Schedules of torch.optim.lr_scheduler: the rates of torch's own, in jobs of dense layers and fused tables."""

import json
from pathlib import Path
from typing import Any

import pytest
from training.test_jobs import a_run, from_step, losses, plan_for_two

from recsmith.errors import UsageError
from recsmith.training import DenseOptimizer, OptimizerRule, RunOptimizers, SparseOptimizer, train

pytestmark = pytest.mark.usefixtures("torchrec")
WARM = {"name": "LinearLR", "start_factor": 0.25, "total_iters": 3, "steps": 3}
COSINE = {"name": "cosineannealinglr", "T_max": 8}


def rates(stages: tuple[dict[str, Any], ...], steps: int) -> list[float]:
    from recsmith.training.optimizers.schedules import Rates

    made = Rates(0.1, stages, "optimizers.dense.schedule")
    return [made.at(step) for step in range(steps)]


def test_rates_are_those_of_torch():
    import torch
    from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

    plain = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    both = [LinearLR(plain, start_factor=0.25, total_iters=3), CosineAnnealingLR(plain, T_max=8)]
    expected, schedule = [], SequentialLR(plain, both, milestones=[3])
    for _ in range(10):
        expected.append(plain.param_groups[0]["lr"])
        plain.step()
        schedule.step()
    assert rates((WARM, COSINE), 10) == expected
    assert len(set(expected)) > 5


def test_a_job_with_schedules_goes_on_with_the_same_bits(tmp_path: Path):
    optimizers = RunOptimizers(
        sparse=SparseOptimizer(name="adagrad", learning_rate=0.05, schedule=(WARM, COSINE)),
        dense=DenseOptimizer(schedule=({"name": "StepLR", "step_size": 2, "gamma": 0.5},)),
    )
    run = a_run(tmp_path / "out", ranks=2, optimizers=optimizers)
    result = train(run)
    again = from_step(run, 4, tmp_path / "again")
    assert train(run, settings=(f"output={again}",))["test"] == result["test"]
    weights = "model/weights.safetensors"
    assert (again / weights).read_bytes() == (tmp_path / "out" / weights).read_bytes()
    plain = RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=0.05))
    train(a_run(tmp_path / "plain", ranks=1, optimizers=plain))
    assert losses(tmp_path / "plain")[1:] != losses(tmp_path / "out")[1:]
    card = json.loads((tmp_path / "out/run.json").read_text())
    assert card["optimizers"]["sparse"]["schedule"] == [WARM, COSINE]


def test_a_table_learns_at_the_rate_of_its_step(tmp_path: Path):
    """At a rate of 0 from the third step on, tables stay as they are, though layers learn."""
    import numpy as np
    from safetensors.numpy import load_file

    still = {"name": "ConstantLR", "factor": 0.0, "total_iters": 10**6}
    stages = ({"name": "ConstantLR", "factor": 1.0, "total_iters": 1, "steps": 2}, still)
    optimizers = RunOptimizers(sparse=SparseOptimizer(name="sgd", learning_rate=0.5, schedule=stages))
    weights: dict[int, Any] = {}
    for steps in (2, 4):
        train(a_run(tmp_path / str(steps), ranks=2, steps=steps, optimizers=optimizers))
        weights[steps] = load_file(tmp_path / str(steps) / "model/weights.safetensors")
    for name in weights[2]:
        assert np.array_equal(weights[2][name], weights[4][name]) == ("embedding_bags" in name), name


def test_tables_that_fit_a_pattern_have_a_rate_of_their_own(tmp_path: Path):
    """Tables b and c, of which every rank has a copy, and d stay; the others learn, before and after a restart."""
    import numpy as np
    from safetensors.numpy import load_file

    still = tuple(OptimizerRule(tables=pattern, learning_rate=1e-30) for pattern in ("[bc]", "d*"))
    halved = ({"name": "StepLR", "step_size": 5, "gamma": 0.5},)
    sparse = SparseOptimizer(name="sgd", learning_rate=0.5, tables=still, schedule=halved)
    run = a_run(tmp_path / "out", ranks=2, plan=plan_for_two(tmp_path), optimizers=RunOptimizers(sparse=sparse))
    result = train(run)
    again = from_step(run, 4, tmp_path / "again")
    assert train(run, settings=(f"output={again}",))["test"] == result["test"]
    none = RunOptimizers(sparse=SparseOptimizer(name="sgd", learning_rate=1e-30))
    train(a_run(tmp_path / "none", ranks=1, steps=1, optimizers=none))
    before, after = (load_file(tmp_path / name / "model/weights.safetensors") for name in ("none", "out"))
    for name, drawn in before.items():
        table = name.split(".")[-2]
        if "embedding_bags" in name:
            assert np.array_equal(drawn, after[name]) == (table in "bcd"), name


def test_a_schedule_that_cannot_be_had_is_refused_before_training(tmp_path: Path):
    from recsmith.training.launch.launching import dry_run

    def told(*stages: dict[str, Any]) -> str:
        with pytest.raises(UsageError) as error:
            dry_run(a_run(tmp_path / "out", optimizers=RunOptimizers(dense=DenseOptimizer(schedule=stages))))
        return str(error.value)

    assert "torch.optim.lr_scheduler has no 'StepLRs'; did you mean 'StepLR'" in told({"name": "StepLRs"})
    assert "cannot be made" in told({"name": "StepLR", "gamma": 0.5})
    assert "ReduceLROnPlateau cannot be named here: it wants a score" in told({"name": "ReduceLROnPlateau"})
    one = {"name": "OneCycleLR", "max_lr": 1.0, "total_steps": 5, "cycle_momentum": False}
    assert "has no rate after 5 steps" in told(one)
    assert "[0] has steps None; say after how many" in told({"name": "StepLR", "step_size": 2}, COSINE)
    assert "is the last stage and has `steps`" in told(WARM)
    with pytest.raises(UsageError, match="stands beside warmup_steps"):
        RunOptimizers(warmup_steps=3, sparse=SparseOptimizer(tables=(OptimizerRule(tables="a", learning_rate=1),)))
    with pytest.raises(UsageError, match="write a stage of LinearLR"):
        RunOptimizers(warmup_steps=3, dense=DenseOptimizer(schedule=(COSINE,)))
