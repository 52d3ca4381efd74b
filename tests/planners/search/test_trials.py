"""The best trial of a table is as good as its score says, keeps memory and type, and is none where nothing fits."""

import numpy as np
import pytest
from support.cases import BOTH, LOOSE, medium_case, seeded
from support.searched import begun, lopsided

from recsmith.bounds import first_bound
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.planners.search.candidates import candidates, place_candidate
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.trials import best_trials
from recsmith.problems import fits


@pytest.mark.parametrize("model", BOTH)
def test_a_plan_has_the_score_of_the_trial_and_fits(model: str) -> None:
    tried = 0
    for seed in range(12):
        case = medium_case(seeded(seed), LOOSE, (model,))
        relaxation = shared_relaxation(case.evaluator)
        choice = next(candidates(relaxation, first_bound(case.evaluator).promising), None)
        draft = choice and place_candidate(DeviceState(case.evaluator), relaxation, choice)
        if draft is None:
            continue
        plan, _ = begun(case, draft)
        for table in range(len(case.problem.tables)):
            copies = plan.copies.take(np.array([0]))
            copies.remove(0, table)
            start = case.problem.options.start
            own = np.arange(int(start[table]), int(start[table + 1]))
            none = np.zeros(len(own), dtype=np.int64)
            found = best_trials(copies, none, none, own, plan.objective)
            assert found, "the table was there before"
            copies.insert(0, table, found[0].option, found[0].target)
            assert found[0].score == pytest.approx(plan.objective.score(copies.full_loads())[0], rel=1e-9)
            assert fits(case.problem, copies.assignment(0).footprint(case.problem))
            tried += 1
    assert tried > 10


def test_the_best_of_all_options_and_targets_is_found_for_single_pieces() -> None:
    """Every whole table tries every device: the trial must be the least of them."""
    case = lopsided(("table_wise",))
    plan, _ = begun(case)
    plan.copies.remove(0, 5)
    option, none = case.problem.options.start[5], np.zeros(1, dtype=np.int64)
    scores: list[float] = []
    for target in range(4):
        copy = plan.copies.take(none)
        copy.insert(0, 5, int(option), np.array([target]))
        scores.append(float(plan.objective.score(copy.full_loads())[0]))
    found = best_trials(plan.copies, none, none, np.array([option]), plan.objective)[0]
    assert found.target.tolist() == [int(np.argmin(scores))]
    assert found.score == pytest.approx(min(scores), rel=1e-12)


def test_without_room_there_is_no_trial() -> None:
    plan, _ = begun(lopsided(("table_wise",)))
    plan.copies.remove(0, 0)
    plan.copies.free[:] = 0
    none = np.zeros(1, dtype=np.int64)
    assert best_trials(plan.copies, none, none, np.array([0]), plan.objective) == {}
