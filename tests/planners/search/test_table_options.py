"""Which options local search tries."""

from copy import copy

import numpy as np
from support.searched import begun, lopsided

from recsmith.planners.search.table_options import FEW_PIECES, MOST_OPTIONS


def test_the_cheapest_options_come_first_and_are_few() -> None:
    plan, options = begun(lopsided())
    relaxation = options.relaxation
    for table in range(len(plan.devices.problem.tables)):
        found = options.cheapest(table)
        assert 0 < len(found) <= MOST_OPTIONS
        assert (plan.devices.problem.options.table[found] == table).all()
        assert (plan.devices.problem.options.count[found].sum(axis=1) <= FEW_PIECES).all()
        assert (np.diff(relaxation.option_seconds[found]) >= 0).all()
        assert relaxation.option_fits[found].all()


def test_options_that_are_slower_than_the_slowest_ranks_are_not_tried() -> None:
    plan, options = begun(lopsided())
    most = float(plan.objective.reference.sum())
    for table in range(len(plan.devices.problem.tables)):
        found = options.below_slowest(plan, table)
        assert (options.relaxation.option_largest[found] < most).all()
    options.relaxation = copy(options.relaxation)
    options.relaxation.option_largest = np.full_like(options.relaxation.option_largest, most)
    assert options.below_slowest(plan, 0).size == 0
