"""Prices of placed pieces: ranks' parts and waits add up to the step, and groups to the ranks."""

import numpy as np
import pytest
from hypothesis import given, settings
from support.bounds import SOME, hand_made, priced
from support.cases import BOTH, Case, cluster, drawn, table, workload

from recsmith.costs import (
    COST_MODELS,
    device_parts,
    device_sums,
    phase_seconds,
    piece_seconds,
    price,
    step_of,
    step_seconds,
)
from recsmith.costs.pricing import group_seconds, one_device
from recsmith.plans import PARTS, Placement
from recsmith.problems import footprint_of

PRICED = drawn(hand_made, **SOME)


@settings(max_examples=20)
@given(PRICED)
def test_parts_and_waits_add_up_to_the_step(made: tuple[Case, tuple[Placement, ...]]) -> None:
    case, placements = made
    footprint = footprint_of(case.problem, placements)
    cost, parts = price(case.evaluator, footprint), device_parts(case.evaluator, footprint)
    assert cost.total_s == step_of(case.evaluator, parts) == step_seconds(case.evaluator, footprint)
    assert cost.total_s == pytest.approx(float(phase_seconds(case.evaluator, parts).max(axis=1).sum()), rel=1e-12)
    for device, row in zip(cost.per_device, parts.tolist(), strict=True):
        assert [getattr(device, part) for part in PARTS] == row
        assert device.busy_s + device.wait_s == pytest.approx(cost.total_s, rel=1e-12)


@settings(max_examples=20)
@given(PRICED)
def test_ranks_hold_the_terms_of_all_pieces_that_cover_them(made: tuple[Case, tuple[Placement, ...]]) -> None:
    case, placements = made
    evaluator, footprint = case.evaluator, footprint_of(case.problem, placements)
    terms = evaluator.terms(footprint.mode, footprint.width)
    coverage = case.problem.modes.coverage[footprint.mode]
    sums = device_sums(evaluator, footprint)
    assert sums.shape == (case.cluster.world_size, evaluator.groups, terms.shape[1])
    np.testing.assert_allclose(sums.sum(axis=(0, 1)), coverage @ terms, rtol=1e-9)
    alone = piece_seconds(evaluator, footprint.mode, footprint.width)
    most = float((coverage * alone).sum())  # groups share launches, so ranks together take no longer
    assert evaluator.head(sums).sum() <= most * (1 + 1e-9)


@pytest.mark.parametrize("model", BOTH)
def test_a_group_costs_what_its_plan_costs(model: str) -> None:
    work = workload(table("a", 1000, 64), table("b", 100, 8, 10.0), batch_size=64)
    device = one_device(cluster(4, 2, hbm=10))
    assert device.world_size == 1
    placements = tuple(
        Placement(table=name, sharding_type="table_wise", compute_kernel="fused", ranks=(0,)) for name in "ab"
    )
    (found,) = priced(Case(work, device, cost_model=model), placements).per_device
    forward, backward = group_seconds(COST_MODELS[model], work, device).tolist()
    assert forward == pytest.approx(found.forward_compute_s, rel=1e-12)
    assert backward == pytest.approx(found.backward_compute_s, rel=1e-12)
