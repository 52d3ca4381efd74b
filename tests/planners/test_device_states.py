"""Every state of the devices that a search keeps agrees with what the placed pieces weigh and cost.

A state is played: a function that places pieces at random, takes some back, and says what the devices then carry and
which pieces are placed. `memory_used`, `device_sums` and `step_seconds`, which work all of it out from the pieces,
must say the same. A further state is one more function in PLAYED.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.cases import BOTH, LOOSE, Case, drawn, medium_case
from support.placing import random_assignment

from recsmith._types import Floats, Ints
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs import device_sums, step_seconds
from recsmith.planners.annealing.population import AnnealingOptions, Population
from recsmith.planners.annealing.population_annealing import RandomChanges
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.plan_copies import PlanCopies
from recsmith.problems import Footprint, memory_used

CHANGES = 12  # of each game


@dataclass(frozen=True)
class Carried:
    """What a state says at the end: placed pieces, free bytes of devices and hosts, and the step.

    sums (W, G, k): terms of each rank and group; None where the state keeps none.
    """

    footprint: Footprint
    free: Ints
    host_free: Ints
    total_s: float
    sums: Floats | None = None


def play_device_state(case: Case, random: np.random.Generator) -> Carried:
    """Places all pieces of one assignment, takes some back, and places them elsewhere."""
    devices, made = DeviceState(case.evaluator), random_assignment(case.problem, random)
    for piece, target in zip(made.piece.tolist(), made.target.tolist(), strict=True):
        devices.place(piece, target)
    for i in random.integers(len(made.piece), size=CHANGES).tolist():
        piece = int(made.piece[i])
        devices.place(piece, int(made.target[i]), -1)
        made.target[i] = random.integers(len(devices.free) // int(devices.coverage[piece]))
        devices.place(piece, int(made.target[i]))
    sums = None if devices.additive else np.moveaxis(devices.sums, 0, 1)
    return Carried(made.footprint(case.problem), devices.free, devices.host_free, devices.total, sums)


def play_plan_copies(case: Case, random: np.random.Generator) -> Carried:
    """Takes tables out of some of several copies, and puts them in by other options."""
    devices, problem = DeviceState(case.evaluator), case.problem
    copies = PlanCopies.of(devices, random_assignment(problem, random)).take(np.zeros(3, dtype=np.int64))
    for _ in range(CHANGES):
        copy, table = int(random.integers(3)), int(random.integers(len(problem.tables)))
        other = random_assignment(problem, random)
        copies.remove(copy, table)
        copies.insert(copy, table, int(other.option[table]), other.target[other.table == table])
    copy = int(random.integers(3))
    return Carried(
        copies.assignment(copy).footprint(problem), copies.free[copy], copies.host_free[copy],
        float(copies.totals()[copy]), np.moveaxis(copies.sums[copy], 0, 1),
    )  # fmt: skip


def play_population(case: Case, random: np.random.Generator) -> Carried:
    """Lets random changes happen in some of its plans, whether memory suffices or not."""
    devices, problem = DeviceState(case.evaluator), case.problem
    relaxation = shared_relaxation(case.evaluator)
    assume(relaxation.option_fits[problem.options.start[:-1]].any())
    options = AnnealingOptions(devices, relaxation)
    assume(options.usable)
    starts = [random_assignment(problem, random, options.reached) for _ in range(2)]
    population = Population(devices, options, starts, 4)
    changes = RandomChanges(population, options, random)
    kinds = (changes.move_piece, changes.swap_pieces, changes.shift_columns, changes.replace_table)
    for step in range(CHANGES):
        change = kinds[step % len(kinds)]()
        population.take(np.flatnonzero(change.legal), change, population.try_(change))
    population.copy(np.array([3]), np.array([int(random.integers(3))]))
    plan = int(random.integers(4))
    groups = np.unique(relaxation.option_group[options.reached])
    sums = np.zeros((len(problem.capacity), case.evaluator.groups, population.sums.shape[3]))
    sums[:, groups] = np.moveaxis(population.sums[plan], 0, 1)
    made = population.assignment(population.option[plan], population.target[plan])
    return Carried(
        made.footprint(problem), population.free[plan], population.host_free[plan], float(population.total[plan]), sums
    )


PLAYED: dict[str, Callable[[Case, np.random.Generator], Carried]] = {
    "device_state": play_device_state,
    "plan_copies": play_plan_copies,
    "population": play_population,
}


@pytest.mark.parametrize("state", PLAYED)
@given(case=drawn(medium_case, tightness=LOOSE, models=BOTH), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_a_state_agrees_with_its_pieces(state: str, case: Case, seed: int) -> None:
    carried = PLAYED[state](case, np.random.default_rng(seed))
    device, host = memory_used(case.problem, carried.footprint)
    assert (case.problem.capacity - carried.free).tolist() == device.tolist()
    assert (case.problem.host_capacity - carried.host_free).tolist() == host.tolist()
    assert carried.total_s == pytest.approx(step_seconds(case.evaluator, carried.footprint), rel=1e-9, abs=1e-20)
    if carried.sums is not None:
        sums = device_sums(case.evaluator, carried.footprint)
        np.testing.assert_allclose(carried.sums, sums, rtol=1e-9, atol=1e-12 * max(float(sums.max(initial=0.0)), 1e-20))
