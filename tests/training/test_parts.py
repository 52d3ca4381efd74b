"""What a step is made of, without a job: weights at the start, scores, learning rates, signals."""

import math
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torchrec")
pytestmark = pytest.mark.usefixtures("torchrec")


@given(
    rows=st.integers(1, 9_000), first=st.integers(0, 8_999), count=st.integers(1, 9_000), left=st.sampled_from([0, 4])
)
def test_weights_do_not_depend_on_how_a_table_is_cut(rows: int, first: int, count: int, left: int):
    import torch

    from recsmith.training.job.sharded import _fill  # pyright: ignore[reportPrivateUsage]
    from recsmith.training.tables.protocol import InitialWeights

    size = InitialWeights(rows, 8, 0.0, rows**-0.5)
    first = min(first, rows - 1)
    whole, part = torch.empty(rows, 8), torch.empty(min(count, rows - first), 4)
    _fill(whole, "t", (0, 0), size, seed=3)
    _fill(part, "t", (first, left), size, seed=3)
    assert torch.equal(part, whole[first : first + len(part), left : left + 4])
    assert float(whole.abs().max()) <= rows**-0.5
    other = torch.empty(rows, 8)
    _fill(other, "u", (0, 0), size, seed=3)
    assert not torch.equal(other, whole)


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=30))
def test_auc_is_the_chance_that_a_positive_is_above_a_negative(drawn: list[tuple[int, bool]]):
    import torch

    from recsmith.scoring.predictions import _binned_auc, _histogram, exact_auc  # pyright: ignore[reportPrivateUsage]

    up = [value for value, label in drawn if label]
    down = [value for value, label in drawn if not label]
    pairs = [(one > other) + (one == other) / 2 for one in up for other in down]
    expected = pytest.approx(sum(pairs) / len(pairs), abs=1e-12) if pairs else None  # one class has no AUC
    logits = torch.tensor([float(value) for value, _ in drawn])
    labels = torch.tensor([float(label) for _, label in drawn])
    assert exact_auc(logits, labels) == expected
    assert _binned_auc(_histogram(logits, labels, torch.ones_like(labels))) == expected


def test_scores_are_those_of_their_formulas():
    import torch

    from recsmith.scoring.predictions import _scores, _sums  # pyright: ignore[reportPrivateUsage]

    logits, labels = torch.tensor([0.5, -1.0, 2.0, 0.0]), torch.tensor([1.0, 0.0, 1.0, 0.0])
    found = _scores(_sums(logits, labels, torch.ones_like(labels)), 0.75)
    p = 1 / (1 + np.exp(-logits.double().numpy()))
    loss = -np.mean(np.where(labels.numpy() > 0, np.log(p), np.log(1 - p)))
    assert found.auc == 0.75
    assert found.logloss == pytest.approx(loss, rel=1e-9)
    assert found.ne == pytest.approx(loss / math.log(2), rel=1e-9)  # the mean label is one half
    assert found.calibration == pytest.approx(p.sum() / 2, rel=1e-9)


def test_learning_rates_rise_stay_and_fall():
    import torch
    from torchrec.optim.keyed import KeyedOptimizerWrapper

    from recsmith.training import DenseOptimizer, RunOptimizers
    from recsmith.training.optimizers.building import scheduled

    weight = torch.nn.Parameter(torch.zeros(1))
    plain = KeyedOptimizerWrapper({"w": weight}, lambda ps: torch.optim.SGD(ps, lr=1.0))
    dense = DenseOptimizer(learning_rate=1.0)
    schedule = RunOptimizers(dense=dense, warmup_steps=4, decay_start=6, decay_steps=5)
    optimizer, rates = scheduled(plain, "dense", schedule), []
    for _ in range(14):
        rates.append(round(float(next(iter(optimizer.param_groups))["lr"]), 4))
        weight.grad = torch.zeros(1)
        optimizer.step()
    assert rates[:5] == [0.25, 0.4375, 0.625, 0.8125, 1.0]
    assert rates[5:7] == [1.0, 1.0]
    assert rates[7:] == [0.8, 0.6, 0.4, 0.2, 0.0, 0.0, 0.0]


def test_optimizers_that_do_not_exist_are_named():
    from recsmith.errors import UsageError
    from recsmith.training import DenseOptimizer
    from recsmith.training.optimizers.dense import dense_optimizer

    with pytest.raises(UsageError, match="did you mean 'adamw'"):
        dense_optimizer([], DenseOptimizer(name="adamww"))


def test_sigterm_is_noted_and_a_later_one_obeyed(monkeypatch: pytest.MonkeyPatch):
    from recsmith.training.job.agreement import heeding_sigterm

    def end(*_: object) -> None:
        raise SystemExit(3)

    before = signal.signal(signal.SIGTERM, end)
    try:
        with heeding_sigterm() as ending:
            assert not ending.asked
            with heeding_sigterm() as first:  # of a training that is part of another one
                os.kill(os.getpid(), signal.SIGTERM)
                assert first.asked
            with heeding_sigterm() as second:
                assert second.asked
            assert ending.asked
            os.kill(os.getpid(), signal.SIGTERM)  # together with the first one, such as of a launcher
            assert ending.asked
            monkeypatch.setattr("recsmith.training.job.agreement.TOGETHER_S", 0.0)
            with pytest.raises(SystemExit):
                os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_random_states_come_back():
    import random

    import torch

    from recsmith.training.random_states import random_states, restore_random_states

    kept = random_states()
    drawn = random.random(), float(np.random.rand()), float(torch.rand(()))
    restore_random_states(kept)
    assert (random.random(), float(np.random.rand()), float(torch.rand(()))) == drawn


def test_sums_of_ranks_are_not_sent_in_int8():
    from support.plans import two_tables

    from recsmith.training import RunComms

    plan = two_tables()
    by_rows = replace(plan.placements[0], sharding_type="row_wise", ranks=(0, 1))
    sums = replace(plan, placements=(by_rows, *plan.placements[1:]))
    small = RunComms(forward="int8")
    assert RunComms().refuses(sums) is None
    assert small.refuses(plan) is None
    assert (small.refuses(sums) or "").startswith("comms ask for int8, and table 'a' is row_wise")
