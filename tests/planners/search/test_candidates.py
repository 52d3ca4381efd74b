"""Candidate selections differ, hold an option for each table, and their placements fit."""

from copy import copy
from itertools import islice

import numpy as np
import pytest
from support.cases import BOTH, Case, cluster, fits, medium_case, seeded, table, workload

from recsmith.bounds import first_bound
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs import step_seconds
from recsmith.planners.search import candidates as module
from recsmith.planners.search.candidates import candidates, light_candidates, place_candidate, priced_candidate
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.placement import place_and_repair
from recsmith.problems import Space, placements_of


@pytest.mark.parametrize("model", BOTH)
def test_no_selection_comes_twice_and_placements_fit(model: str) -> None:
    placed = 0
    for seed in range(8):
        case = medium_case(seeded(seed), models=(model,))
        known = first_bound(case.evaluator)
        relaxation = shared_relaxation(case.evaluator, known.linear)
        found = list(islice(candidates(relaxation, known.promising), 12))
        assert len({choice.option.tobytes() for choice in found}) == len(found)
        for choice in found:
            assert (case.problem.options.table[choice.option] == np.arange(len(case.problem.tables))).all()
            draft = place_candidate(DeviceState(case.evaluator), relaxation, choice)
            if draft is not None and all(t.pooled for t in case.problem.tables):
                assert fits(case, placements_of(case.problem, draft.footprint(case.problem)))
                placed += 1
    assert placed > 5


def test_options_that_outweigh_all_devices_are_not_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = medium_case(seeded(0), models=("analytic",))
    known, placed = first_bound(case.evaluator), list[bool]()
    relaxation = copy(shared_relaxation(case.evaluator, known.linear))
    choice = next(candidates(relaxation, known.promising))
    monkeypatch.setattr(module, "place_and_repair", lambda *each: (placed.append(True), place_and_repair(*each))[1])
    assert place_candidate(DeviceState(case.evaluator), relaxation, choice) is not None
    assert placed.pop()
    relaxation.option_bytes = relaxation.option_bytes + float(case.problem.capacity.sum())
    assert (place_candidate(DeviceState(case.evaluator), relaxation, choice), placed) == (None, [])


def test_the_seconds_of_a_placement_are_its_own_whatever_devices_hold_last() -> None:
    other = 0
    for seed in range(12):
        case = medium_case(seeded(seed), models=("analytic",))
        known, devices = first_bound(case.evaluator), DeviceState(case.evaluator)
        relaxation = shared_relaxation(case.evaluator, known.linear)
        for choice in islice(candidates(relaxation, known.promising), 6):
            seconds, draft = priced_candidate(devices, relaxation, choice)
            if draft is not None:
                assert seconds == pytest.approx(step_seconds(case.evaluator, draft.footprint(case.problem)))
                other += devices.total != seconds
    assert other


def test_where_memory_is_scarce_bytes_decide_too() -> None:
    """Two heavy tables that are hardly read go to different devices."""
    tables = [table(f"t{i}", 1000, 16, 0.001) for i in range(2)] + [table(f"s{i}", 10, 16, 50.0) for i in range(2)]
    case = Case(workload(*tables, optimizer="sgd"), cluster(2, hbm=110_000), Space(types=("table_wise",)))
    known = first_bound(case.evaluator)
    relaxation = shared_relaxation(case.evaluator, known.linear)
    choice = next(candidates(relaxation, known.promising))
    devices = DeviceState(case.evaluator)
    draft = place_candidate(devices, relaxation, choice)
    assert draft is not None
    assert devices.memory_weight == 0.0
    heavy = [i for i, each in enumerate(case.problem.tables) if each.name.startswith("t")]
    assert sorted(draft.target[heavy].tolist()) == [0, 1]


def test_light_options_are_drawn_by_seed() -> None:
    case = medium_case(seeded(3))
    relaxation = shared_relaxation(case.evaluator)
    one, again, other = (
        [choice.option.tolist() for choice in islice(light_candidates(relaxation, seed), 20)] for seed in (0, 0, 1)
    )
    assert one == again
    assert one != other or len(case.problem.options.mode) == len(case.problem.tables)
    lightest = relaxation.option_bytes[one[0]].sum()
    assert lightest <= np.median([relaxation.option_bytes[option].sum() for option in one]) * 1.5
