"""Heads of learned cost models: convex, monotone, and the largest of their planes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.learned import TERMS, tensors

from recsmith.costs.neural.files import Variant, weights_of
from recsmith.costs.neural.heads import BLOCK, ConvexHead, CorrectedHead

SEEDS = st.integers(0, 2**31)


@settings(max_examples=30)
@given(SEEDS, st.floats(0, 1))
def test_the_convex_head_is_convex_and_monotone(seed: int, part: float) -> None:
    head = weights_of(tensors(seed=seed % 100), "convex", "").head
    draw = np.random.default_rng(seed)
    one, two = 10 ** draw.uniform(-7, 1, (2, 50, 1 + TERMS))
    mixed = part * head.total(one) + (1 - part) * head.total(two)
    assert (head.total(part * one + (1 - part) * two) <= mixed * (1 + 1e-9)).all()
    assert (head.total(one + two) >= np.maximum(head.total(one), head.total(two)) * (1 - 1e-12)).all()


@settings(max_examples=30)
@given(SEEDS)
def test_the_highest_plane_is_the_convex_head(seed: int) -> None:
    head = weights_of(tensors(seed=seed % 100), "convex", "").head
    assert isinstance(head, ConvexHead)
    sums = 10 ** np.random.default_rng(seed).uniform(-7, 1, (50, 1 + TERMS))
    highest = np.max([sums @ slopes + opening for slopes, opening in head.planes()], axis=0)
    assert head.total(sums) + head.launch.sum() == pytest.approx(highest, rel=1e-9)


@settings(max_examples=30)
@given(SEEDS)
def test_a_monotone_group_bears_at_least_what_its_pieces_bear_alone(seed: int) -> None:
    head = weights_of(tensors("monotone", seed=seed % 100), "monotone", "").head
    assert isinstance(head, CorrectedHead)
    pieces = 10 ** np.random.default_rng(seed).uniform(-7, 1, (20, 3, 1 + TERMS))
    own = head.own(pieces.reshape(-1, 1 + TERMS)).reshape(20, 3, -1).sum(axis=1)
    sums = np.hstack([pieces.sum(axis=1), own])
    highest = np.max([sums @ slopes + opening for slopes, opening in head.planes()], axis=0)
    assert (head.total(sums[:, : 1 + TERMS]) + head.launch.sum() >= highest * (1 - 1e-9)).all()
    alone = np.hstack([pieces[:, 0], head.own(pieces[:, 0])])
    touched = np.max([alone @ slopes + opening for slopes, opening in head.planes()], axis=0)
    assert head.total(pieces[:, 0]) + head.launch.sum() == pytest.approx(touched, rel=2e-3)


@settings(max_examples=30)
@given(SEEDS)
def test_planes_of_a_corrected_head_lie_below_it_and_touch_it_where_no_share_is_lost(seed: int) -> None:
    given_tensors = tensors("corrected", seed=seed % 100)
    sums = 10 ** np.random.default_rng(seed).uniform(-7, 1, (50, 1 + TERMS))
    for part, extra in ((1.0, given_tensors["extra"]), (0.0, 0 * given_tensors["extra"])):
        head = weights_of(given_tensors | {"extra": extra}, "corrected", "").head
        assert isinstance(head, CorrectedHead)
        highest = np.max([sums @ slopes + opening for slopes, opening in head.planes()], axis=0)
        total = head.total(sums) + head.launch.sum()
        assert head.seconds(sums).sum(axis=0) == pytest.approx(head.total(sums), rel=1e-9)
        assert (total >= highest * (1 - 1e-12)).all()
        if not part:
            assert total == pytest.approx(highest, rel=1e-9)


@pytest.mark.parametrize("variant", ["convex", "monotone", "free"])
def test_a_group_alone_has_the_bits_that_it_has_among_others(variant: Variant) -> None:
    head = weights_of(tensors(variant), variant, "").head
    sums = 10 ** np.random.default_rng(0).uniform(-7, 1, (BLOCK + 1, 1 + TERMS))  # the last one is a block of its own
    for asked in (head.seconds, *([lambda some: head.own(some).T] if isinstance(head, CorrectedHead) else [])):
        alone = np.hstack([asked(one[None]) for one in sums[-200:]])
        np.testing.assert_array_equal(alone, asked(sums)[..., -200:])
