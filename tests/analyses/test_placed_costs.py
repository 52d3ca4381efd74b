"""What ranks would save without a table: of all tables at once the same as table by table."""

import numpy as np
import pytest
from support.cases import BOTH, medium_case, random_placements, seeded

from recsmith.analyses.placed_costs import PlacedCosts
from recsmith.costs import cost_model
from recsmith.errors import PlanMismatch
from recsmith.problems import footprint_of, problem_holding


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 1000), marks=pytest.mark.soak)])
def test_all_tables_at_once_save_what_each_alone_does(seeds: range):
    asked = 0
    for seed in seeds:
        pick = seeded(seed)
        case = medium_case(pick, models=BOTH)
        placements = random_placements(pick, case)
        try:
            problem = problem_holding(case.problem, placements)
            footprint = footprint_of(problem, placements)
        except PlanMismatch:
            continue
        placed = PlacedCosts(cost_model(case.cost_model).compile(problem), footprint)
        alone = [placed.saved_by(table)[1].sum(axis=1).max() for table in range(len(problem.tables))]
        np.testing.assert_allclose(placed.most_saved, alone, rtol=1e-9, atol=1e-9 * max(alone))
        asked += 1
    assert asked > len(seeds) / 2
