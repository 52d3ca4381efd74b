"""Step rules: both rules by hand, and laws that hold for any ranks."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.costs.protocol import LARGEST_SUM, READY_THEN_FORWARD, StepRule, parts_of, ready_and_forward, rule_of
from recsmith.plans import PARTS, DeviceCost, StepCost

RULES = (LARGEST_SUM, READY_THEN_FORWARD)
RANKS = st.lists(st.tuples(*[st.floats(0, 10)] * len(PARTS)), min_size=1, max_size=5)
PARTS_OF_TWO = np.array([[1.0, 2.0, 30.0, 4.0], [10.0, 3.0, 5.0, 7.0]])  # forward and backward compute, then comm


def test_the_largest_sum_by_hand() -> None:
    assert LARGEST_SUM.phase_seconds(PARTS_OF_TWO).tolist() == [[37, 25]]
    assert LARGEST_SUM.step_seconds(PARTS_OF_TWO) == 37
    assert not LARGEST_SUM.several_phases


def test_ready_then_forward_by_hand() -> None:
    """Rank 1 is the last that is ready, after 20 s; rank 0 is the slowest sender."""
    assert READY_THEN_FORWARD.phase_seconds(PARTS_OF_TWO).tolist() == [[7, 20], [30, 5]]
    assert READY_THEN_FORWARD.step_seconds(PARTS_OF_TWO) == 50
    assert READY_THEN_FORWARD.several_phases


@given(RANKS)
def test_a_step_is_no_shorter_than_any_rank_is_busy_and_no_longer_than_the_parts_one_by_one(ranks) -> None:
    parts = np.array(ranks)
    for rule in RULES:
        assert parts.sum(axis=1).max() * (1 - 1e-12) <= rule.step_seconds(parts)
        assert rule.step_seconds(parts) <= parts.max(axis=0).sum() * (1 + 1e-12)


@given(RANKS)
def test_the_loads_for_searches_are_the_phases(ranks) -> None:
    parts = np.array(ranks)
    found = ready_and_forward(parts[:, 0] + parts[:, 1], backward_comm=parts[:, 3], forward_comm=parts[:, 2])
    np.testing.assert_allclose(found, READY_THEN_FORWARD.phase_seconds(parts), rtol=1e-12)


@pytest.mark.parametrize("phases", [((0, 1, 3),), ((0, 1, 2, 3), (2,)), ((0, 1, 2), (4,))])
def test_a_rule_has_each_part_once(phases) -> None:
    with pytest.raises(ValueError, match=re.escape("each of the 4 parts has one phase")):
        StepRule("odd", "An odd rule.", phases)


@pytest.mark.parametrize("rule", RULES)
@given(RANKS)
def test_the_rule_of_a_cost_gives_its_seconds(rule: StepRule, ranks) -> None:
    parts = np.array(ranks)
    devices = tuple(
        DeviceCost(rank=i, **dict(zip(PARTS, each, strict=True)), wait_s=0.0, hbm_bytes=0, hbm_capacity_bytes=1)
        for i, each in enumerate(parts.tolist())
    )
    cost = StepCost(total_s=rule.step_seconds(parts), per_device=devices)
    for model in ("torchrec", "analytic"):
        assert rule_of(cost, model).step_seconds(parts_of(cost)) == cost.total_s
