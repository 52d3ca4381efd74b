"""The rule of what is split that suits a problem: it places every table where one of the rules does."""

import numpy as np
from support.cases import seeded, small_case

from recsmith.planners.placing import NOWHERE, best_split, longest_first_plan
from recsmith.planners.search.device_state import DeviceState
from recsmith.problems import fits


def test_the_best_split_is_complete_where_one_is_and_its_items_fall() -> None:
    asked = 0
    for seed in range(6):
        case = small_case(seeded(seed))
        found = best_split(case.problem, case.evaluator)
        if found is None or not found.draft.complete:
            continue
        asked += 1
        assert (found.draft.target != NOWHERE).all()
        assert fits(case.problem, found.draft.footprint(case.problem))
        assert longest_first_plan(case.evaluator, found) is found.draft
        seconds = DeviceState(case.evaluator).seconds[found.draft.piece[found.items.row]]
        assert (np.diff(seconds) <= 1e-5 * max(seconds.max(initial=0.0), 1e-12)).all()
    assert asked > 2
