"""Prices of pieces in certificates: none above what the best plan takes, where its slowest rank leaves no room."""

import math
from dataclasses import replace

import numpy as np
import pytest
from support.bounds import best_of_whole_tables, own_ranges

from recsmith.analyses.checked_prices import Plans
from recsmith.analyses.checked_statement import Statement
from recsmith.analyses.checking import leaf_seconds
from recsmith.errors import UsageError
from recsmith.plans.proofs import LEAST_NUMBER, MOST_NUMBER, LeafProof, ShareWorth, StepWorth


def _drawn(draw: np.random.Generator, statement: Statement, steps: bool) -> LeafProof:
    """Multipliers near the best ones, of which whole steps of width take some, half or all of the later phases."""
    planes, rest = statement.ready.shape[1], float(draw.uniform(0, 2))
    share = float(draw.choice([0.3, 0.5, 1.0])) if steps else 0.0
    step = float(statement.rest[statement.rest > 0].min()) * float(draw.choice([0.5, 1.0, 2.0]))
    mix = np.eye(planes)[draw.integers(planes, size=statement.evaluator.groups)]
    return LeafProof(
        ready=float(draw.uniform(0, 2)), rest=rest * (1 - share), byte=0.0, mix=tuple(map(tuple, mix.tolist())),
        plane=int(draw.integers(planes)), steps=StepWorth(seconds=step, worth=rest * share) if steps else None,
    )  # fmt: skip


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 200), marks=pytest.mark.soak)])
def test_no_leaf_proves_more_of_the_plans_like_the_best_one_than_that_takes(seeds: range) -> None:
    near = 0
    for seed in seeds:
        draw = np.random.default_rng(seed)
        case, best, total = best_of_whole_tables(draw)
        statement, ranges = Statement(case.evaluator), own_ranges(case, best, 1 - seed % 3 / 10)
        open_ = np.ones((len(case.problem.tables), case.evaluator.groups), dtype=bool)
        plans = Plans(ranges.ready, ranges.rest, open_, open_[0])
        proven = [
            [float(leaf_seconds(statement, plans, _drawn(draw, statement, steps))) for _ in range(60)]
            for steps in (False, True)
        ]
        assert max(map(max, proven)) <= total * (1 + 1e-9)
        near += max(proven[1]) > 0.9 * total
    assert near > len(seeds) / 2


EXTREME = {
    "ready": {"ready": MOST_NUMBER}, "rest": {"rest": MOST_NUMBER}, "both": {"ready": MOST_NUMBER, "rest": MOST_NUMBER},
    "tiny steps": {"steps": StepWorth(seconds=LEAST_NUMBER, worth=1.0)},
    "dear steps": {"steps": StepWorth(seconds=1e-6, worth=MOST_NUMBER)},
    "tiny shares": {"shares": (ShareWorth(kind="steps", by=LEAST_NUMBER, worth=1.0),)},
    "dear shares": {"shares": (ShareWorth(kind="count", by=1.0, worth=MOST_NUMBER),)},
}  # fmt: skip


@pytest.mark.parametrize("kind", EXTREME)
def test_the_largest_and_smallest_numbers_of_a_file_prove_nothing_false(kind: str) -> None:
    """Prices stay finite: one that is not would say that a table has no place, and so that there is no plan."""
    case, best, total = best_of_whole_tables(np.random.default_rng(1))
    slow = replace(case, cluster=replace(case.cluster, device=replace(case.cluster.device, hbm_bandwidth=10.0)))
    for each in (case, slow):
        statement = Statement(each.evaluator)
        open_ = np.ones((len(each.problem.tables), each.evaluator.groups), dtype=bool)
        ranges = own_ranges(each, best, 0.0)
        plans, planes = Plans(ranges.ready, ranges.rest, open_, open_[0]), statement.ready.shape[1]
        none = LeafProof(ready=0.0, rest=0.0, byte=0.0, mix=((1 / planes,) * planes,) * each.evaluator.groups, plane=0)
        proven = leaf_seconds(statement, plans, replace(none, **EXTREME[kind]))  # type: ignore[arg-type]
        assert proven <= (total if each is case else 1e12)


@pytest.mark.parametrize("number", [1.1 * MOST_NUMBER, math.inf, math.nan, -1.0])
def test_other_numbers_are_refused(number: float) -> None:
    none = LeafProof(ready=0.0, rest=0.0, byte=0.0, mix=(), plane=0)
    for name in ("ready", "rest", "byte"):
        with pytest.raises(UsageError):
            replace(none, **{name: number})  # type: ignore[arg-type]
    for seconds, worth in ((0.5 * LEAST_NUMBER, 1.0), (number, 1.0), (1.0, number)):
        with pytest.raises(UsageError):
            StepWorth(seconds=seconds, worth=worth)
