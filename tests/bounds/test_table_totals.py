"""Least totals over every split: never above what options cost, and monotone in the limits."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bounds import TINY
from support.cases import Case

from recsmith.bounds.relaxation import DEAREST, Relaxation
from recsmith.bounds.selection import SelectionLimits
from recsmith.bounds.table_totals import TableTotals


@given(TINY, st.sampled_from([0.0, 1e-12, DEAREST]), st.integers(0, 10**6))
def test_splits_of_every_width_are_never_dearer_than_options(case: Case, price_: float, seed: int) -> None:
    limits = SelectionLimits(price=price_, groups=np.random.default_rng(seed).random(case.evaluator.groups) < 0.8)
    totals = TableTotals(case.evaluator)
    least, choice = totals.per_table(limits), Relaxation(case.evaluator).choose(limits)
    assert (least.value <= choice.seconds + price_ * choice.bytes).all()
    assert limits.groups is not None
    found = np.isfinite(least.value)
    assert limits.groups[least.group[found]].all()
    assert totals.at(limits).value == (least.value.sum() if found.all() else math.inf)
    assert totals.at(limits).bytes == least.bytes.sum()


@given(TINY, st.sampled_from([0.3, 1.0, 3.0]), st.sampled_from([0.0, 1e-12]))
def test_totals_fall_as_limits_rise_and_as_groups_are_added(case: Case, share: float, price_: float) -> None:
    totals, everything = TableTotals(case.evaluator), np.ones(case.evaluator.groups, dtype=bool)
    limit = share * float(totals.relaxation.piece_alone.mean())
    limits = SelectionLimits(limit=limit, price=price_)
    free, limited = totals.per_table(SelectionLimits(price=price_)), totals.per_table(limits)
    local = totals.per_table(SelectionLimits(local=limit, price=price_))
    assert (free.value <= local.value).all()
    assert (local.value <= limited.value).all()
    for group in range(case.evaluator.groups):
        fewer = everything.copy()
        fewer[group] = False
        without = totals.per_table(replace(limits, groups=fewer))
        assert (limited.value <= without.value).all()
        same = (limited.group != group) & np.isfinite(limited.value)
        assert (without.value[same] == limited.value[same]).all()
    assert totals.at(replace(limits, groups=everything)) == totals.at(limits)


@given(TINY, st.sampled_from([0.1, 1.0, 10.0]))
def test_a_penalty_is_paid_by_what_spans_the_world(case: Case, penalty: float) -> None:
    """So nothing is cheaper with it, and all that spans it costs as much on every rank."""
    totals = TableTotals(case.evaluator)
    free, penalised = totals.per_table(SelectionLimits()), totals.per_table(SelectionLimits(world_penalty=penalty))
    found = np.isfinite(free.value)
    everywhere = free.everywhere[found] * case.cluster.world_size
    assert (free.value[found] <= penalised.value[found]).all()
    np.testing.assert_array_less(
        penalised.value[found], (free.value[found] + penalty * everywhere) * (1 + 1e-12) + 1e-300
    )
    assert everywhere[everywhere > 0] == pytest.approx(free.value[found][everywhere > 0])
