"""Prices of pieces in certificates: none above what the best plan takes, where its slowest rank leaves no room."""

import numpy as np
import pytest
from support.bounds import best_of_whole_tables, own_ranges

from recsmith.analyses.checked_prices import Plans
from recsmith.analyses.checked_statement import Statement
from recsmith.analyses.checking import leaf_seconds
from recsmith.plans.proofs import LeafProof, StepWorth


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
