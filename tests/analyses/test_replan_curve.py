"""Curves of cost against moved bytes, and which point pays."""

import itertools
from dataclasses import replace

import pytest

import recsmith
from recsmith.analyses.replan_curve import ReplanCurve, replan_curve
from recsmith.errors import NoPlanFound, UsageError
from recsmith.workloads.sample import sample_workload

TABLES = sample_workload(10, seed=5)
OLD = recsmith.plan(TABLES, "h100:4", planner="cost_greedy").plan
BUSIER = replace(
    TABLES,
    tables=tuple(
        replace(t, features=tuple(replace(f, pooling_factor=(1 + i) * f.pooling_factor) for f in t.features))
        for i, t in enumerate(TABLES.tables)
    ),
)


@pytest.fixture(scope="module")
def curve() -> ReplanCurve:
    return replan_curve(OLD, BUSIER, limits=("0%", "5%", "100%"), steps_left=10**6)


def test_no_point_is_worse_than_one_that_moves_less(curve: ReplanCurve) -> None:
    steps = [point.replanned.result.plan.cost.total_s for point in curve.points if point.replanned]
    assert len(steps) == 3
    assert all(later <= earlier for earlier, later in itertools.pairwise(steps))
    assert steps[-1] < steps[0]
    assert all(p.replanned and p.replanned.moved_bytes <= p.max_moved_bytes for p in curve.points)


def test_the_point_that_pays_takes_least_with_its_move(curve: ReplanCurve) -> None:
    assert curve.recommended is not None
    totals = [
        point.replanned.slowest_receives_bytes / curve.link_bandwidth + 10**6 * point.replanned.result.plan.cost.total_s
        for point in curve.points
        if point.replanned
    ]
    assert totals == pytest.approx([point.total_s for point in curve.points])
    assert curve.recommended == totals.index(min(totals))
    assert curve.best is curve.points[curve.recommended].replanned


def test_a_single_step_pays_for_no_move_over_a_slow_link() -> None:
    curve = replan_curve(OLD, BUSIER, limits=("0%", "100%"), steps_left=1, link_bandwidth=1e6, planner="cost_greedy")
    assert curve.recommended == 0


def test_limits_without_a_plan_are_points_with_a_reason() -> None:
    curve = replan_curve(OLD, cluster="h100:2", limits=(0, "100%"), planner="cost_greedy")
    first, last = curve.points
    assert first.replanned is None
    assert first.error is not None
    assert "the least that was found moves" in first.error
    assert curve.best is last.replanned
    with pytest.raises(NoPlanFound, match="moves at most 0 B"):
        replan_curve(OLD, cluster="h100:2", limits=(0,), planner="cost_greedy")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param({"steps_left": 0}, "0 steps are left; give at least 1", id="no steps"),
        pytest.param({"link_bandwidth": 0.0}, "must carry at least 1", id="no link"),
        pytest.param({"link_bandwidth": float("nan")}, "must carry at least 1", id="no number"),
    ],
)
def test_what_is_refused(words: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replan_curve(OLD, **words)  # type: ignore[arg-type]
