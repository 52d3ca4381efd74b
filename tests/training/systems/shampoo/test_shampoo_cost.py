"""Blocks cover each layer once, ranks share their work and state, and what Shampoo costs is said before it trains."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.plans import two_tables

from recsmith.clusters import load_cluster
from recsmith.errors import UsageError
from recsmith.plans import Plan
from recsmith.prediction.job_step import JobStep
from recsmith.training import DenseOptimizer
from recsmith.training.systems.shampoo.blocks import ShampooSettings, blocks_of, owners
from recsmith.training.systems.shampoo.cost import optimizer_decided, shampoo_cost

LAYERS = [(512, 13), (512,), (256, 512), (256,), (64, 256), (64,), (16, 64), (16,), (512, 367), (512,), (256, 512),
          (256,), (1, 256), (1,)]  # fmt: skip  # 13-512-256-64-16 and 367-512-256-1
shapes = st.lists(st.lists(st.integers(1, 9), max_size=3).map(tuple), min_size=1, max_size=5)


@given(shapes, st.integers(1, 6))
def test_blocks_cover_every_weight_once(shapes: list[tuple[int, ...]], most: int) -> None:
    import numpy as np

    blocks = blocks_of(shapes, most)
    for number, shape in enumerate(shapes):
        seen = np.zeros((shape[0], -1 if 0 in shape else int(np.prod(shape[1:]))) if len(shape) > 1 else
                        (1, int(np.prod(shape))))  # fmt: skip
        mine = [block for block in blocks if block.parameter == number]
        for block in mine:
            seen[slice(*block.rows), slice(*block.columns)] += 1
            assert not block.factored or max(block.shape) <= most
            assert block.factored == (len(shape) > 1)
        assert (seen == 1).all()
        assert len({block.name for block in mine}) == len(mine)


@pytest.mark.parametrize("grafting", ["adam", "adagrad"])
def test_two_ranks_keep_at_most_sixty_percent_each(grafting: str) -> None:
    settings = ShampooSettings(grafting=grafting)
    blocks = blocks_of(LAYERS, settings.max_preconditioner_dim)
    state = [each.state_bytes(grafting) for each in blocks]
    owned = owners(blocks, 2, settings)
    shares = [sum(size for size, owner in zip(state, owned, strict=True) if owner == rank) for rank in (0, 1)]
    assert sum(shares) == sum(state)
    assert max(shares) <= 0.6 * sum(state)


@given(shapes, st.integers(1, 6), st.integers(1, 5))
def test_no_rank_works_more_than_the_mean_and_one_block(shapes: Any, most: int, ranks: int) -> None:
    settings = ShampooSettings(max_preconditioner_dim=most)
    blocks = blocks_of(shapes, most)
    owned = owners(blocks, ranks, settings)
    work = [0.0] * ranks
    for block, owner in zip(blocks, owned, strict=True):
        work[owner] += block.step_flops(settings)
    largest = max(block.step_flops(settings) for block in blocks)
    assert max(work) <= sum(work) / ranks + largest + 1e-6


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_preconditioner_dim": 0}, "max_preconditioner_dim is 0; it must be at least 1"),
        ({"precondition_frequency": 0}, "precondition_frequency is 0; it must be at least 1"),
        ({"statistics_frequency": -1}, "statistics_frequency is -1; it must be at least 1"),
        ({"statistics_frequency": 51}, "statistics_frequency is 51, more than precondition_frequency 50"),
        ({"decay": 0.0}, "decay is 0.0; it lies above 0"),
        ({"decay": 1.5}, "decay is 1.5; it lies above 0 and is at most 1"),
        ({"decay": float("nan")}, "decay"),
        ({"beta2": 1.0}, "beta2 is 1.0; it lies from 0 to below 1"),
        ({"eps": 0.0}, "eps is 0.0; it must be above 0"),
        ({"grafting": "sgd"}, "grafting is sgd; give adam or adagrad"),
    ],
)
def test_settings_out_of_range_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ShampooSettings(**settings)


def a_step(seconds: float) -> JobStep:
    """A step that takes so long."""
    return JobStep(trainer_s=seconds, reading_s=0.0, embeddings_s=0.0, layers_s=0.0, gradients_s=0.0, optimizer_s=0.0)


def on(device: str, plan: Plan) -> Plan:
    """The plan on as many of a device."""
    return replace(plan, cluster=load_cluster(f"{device}:{plan.cluster.world_size}"))


def test_costs_follow_layers_and_ranks() -> None:
    plan, settings = two_tables(), ShampooSettings()
    there = shampoo_cost(settings, LAYERS, on("h100", plan).cluster, 1e-3)
    assert (there.seconds, there.share) == (None, None)
    m, n = 256, 128
    one = shampoo_cost(settings, [(m, n)], plan.cluster, 1e-3)
    roots = 20 * (m**3 + n**3) / 50
    assert one.flops == pytest.approx(2 * m * n * (m + n) * 1.2 + roots)
    assert one.sent_bytes == (plan.cluster.world_size - 1) * 4 * m * n
    assert one.state_bytes == 4 * (2 * (m * m + n * n) + 2 * m * n + 1)


def test_auto_refuses_what_costs_much_and_says_why() -> None:
    plan = on("cpu", two_tables())
    auto = DenseOptimizer(name="auto", learning_rate=0.5, arguments={"grafting": "adagrad"})
    cheap, told, added = optimizer_decided(auto, LAYERS, plan, a_step(10.0))
    assert 0 < added < 1
    assert (cheap.name, cheap.learning_rate) == ("shampoo", 0.5)
    assert told[0].startswith("shampoo adds to a step ")
    assert "of the predicted step without it; directions of " in told[0]
    assert told[0].endswith("so optimizers.dense, which is auto, takes it")
    dear, told, added = optimizer_decided(auto, LAYERS, plan, a_step(0.0))
    assert added == 0
    assert (dear.name, dear.learning_rate, dear.arguments) == ("adagrad", 0.5, None)
    assert "auto lets it cost 10%, so optimizers.dense, which is auto, takes adagrad" in told[0]
    _, told, _ = optimizer_decided(auto, [(4,)], plan, a_step(1.0))
    assert "no layer has a matrix" in told[0]
    _, told, _ = optimizer_decided(auto, LAYERS, on("h100", plan), None)
    assert "nothing was measured on GPUs" in told[0]
    named = DenseOptimizer(name="shampoo")
    assert optimizer_decided(named, LAYERS, plan, a_step(0.0))[0] is named
    plain = DenseOptimizer()
    assert optimizer_decided(plain, LAYERS, plan, a_step(0.0)) == (plain, [], 0.0)
