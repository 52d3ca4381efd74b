"""Visits of a task: every distinct load once, and collectives as the analytic model prices them."""

import numpy as np
import pytest
from support.benched import TASK
from support.measured import Stub, answer

from recsmith.bench.plans import Attempt, attempt
from recsmith.bench.visits import measure_visit, place_task
from recsmith.errors import RecSmithError
from recsmith.hardware import Case, Measurement


@pytest.fixture(scope="module")
def attempts() -> list[Attempt]:
    return [attempt(word, TASK, "analytic", 0) for word in ("size_greedy", "random")]


def test_a_visit_measures_distinct_loads_once_for_all_planners(attempts: list[Attempt]):
    twin = Attempt(planner="twin", placements=attempts[0].placements, plan_s=0.0)
    placed = place_task(TASK, [*attempts, twin], seed=0)
    hardware = Stub()
    visit = measure_visit(hardware, placed, 3)
    distinct = {load for load in placed.all_loads if load}
    assert sorted(hardware.asked) == sorted((case.number, 3) for load in distinct for case in load)
    assert (visit.task, visit.visit, visit.probe_s) == (TASK.name, 3, 1e-3)
    assert visit.kernels["twin"].tolist() == visit.kernels["size_greedy"].tolist()
    for word, loads in placed.loads.items():
        assert visit.kernels[word].tolist() == [[len(load), 2 * len(load)] for load in loads]
        assert np.array_equal(visit.comm[word], placed.comm[word])


def test_what_fails_names_its_task(attempts: list[Attempt]):
    def fail(case: Case, visit: int) -> Measurement:
        return answer(case, status="out_of_memory", forward_s=None, message="no room")

    hardware = Stub(fail)
    hardware.measure_groups = lambda cases, visit=0, least=4: hardware.measure(cases[0], visit)
    with pytest.raises(RecSmithError, match=rf"kernels of task {TASK.name} could not be measured \(out_of_memory\)"):
        measure_visit(hardware, place_task(TASK, attempts, seed=0), 0)
