"""Fillings of a rank: all that fit, and no more."""

from itertools import product

import numpy as np
import pytest
from support.cases import LOOSE, medium_case, seeded

from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.bounds.rank_fillings import NodeProgramme, RankFillings
from recsmith.bounds.table_choices import few_parts


def test_splits_of_few_parts_are_all_of_them() -> None:
    """16 steps of 4 columns have 64 splits of up to four parts; 64 steps, of up to three parts, 374."""
    splits = few_parts(16)
    assert len(splits) == len(np.unique(splits, axis=0)) == 64
    assert (splits @ np.arange(1, 17) == 16).all()
    assert splits.sum(axis=1).max() == 4
    assert (len(few_parts(64)), len(few_parts(65))) == (374, 33)


@pytest.mark.parametrize("seed", range(6))
def test_every_filling_that_fits_is_a_part_of_one_that_is_listed(seed: int) -> None:
    case = medium_case(seeded(seed), LOOSE, models=("analytic",), counts=(2,), dims=(64,))
    evaluator = case.evaluator
    total = case.plan().plan.cost.total_s
    search = PhaseBranching(evaluator, dominated=groups_dominated_by_type(evaluator), below=total, byte_price=0.0)
    fillings = RankFillings(search.prices, float(evaluator.problem.capacity.max()))
    programme = NodeProgramme(fillings, search.root)
    large = np.flatnonzero(programme.fit & (programme.most_share > 0.25))[:5]
    assert len(large)
    listed = programme.fillings(large, 100_000)
    assert listed is not None
    assert programme.fillings(large, 2) is None
    loads = fillings.loads[large]
    limits = np.array([total] * (loads.shape[1] - 2) + [total, fillings.most_bytes])
    assert (listed @ loads <= limits * (1 + 1e-6)).all()
    for counts in product(range(4), repeat=len(large)):
        if (np.array(counts) @ loads <= limits).all():
            assert (listed >= counts).all(axis=1).any()
