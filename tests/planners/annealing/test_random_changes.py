"""Changes that are marked legal lead to plans that TorchRec runs; guided ones begin on a slowest rank."""

import numpy as np
import pytest
from planners.annealing.test_population import population
from support.cases import LOOSE, medium_case, seeded
from support.placing import random_assignment

from recsmith.bounds.relaxation import shared_relaxation
from recsmith.planners.annealing import random_changes
from recsmith.planners.annealing.options import AnnealingOptions
from recsmith.planners.annealing.population import Population
from recsmith.planners.annealing.random_changes import RandomChanges
from recsmith.planners.search.device_state import DeviceState
from recsmith.plans import check_placements
from recsmith.problems import placements_of


def test_legal_changes_keep_plans_legal() -> None:
    changed = 0
    for seed in range(20):
        case = medium_case(seeded(seed), LOOSE)
        devices, random = DeviceState(case.evaluator), np.random.default_rng(seed)
        options = AnnealingOptions(devices, shared_relaxation(case.evaluator))
        pooled = all(table.pooled for table in case.problem.tables)
        if not options.usable or not pooled:
            continue
        whole = options.reached & ~options.apart
        try:
            start = random_assignment(case.problem, random, whole)
        except ValueError:  # a table with no such option
            continue
        plans = Population(devices, options, [start], 3)
        changes = RandomChanges(plans, options, random)
        for kind in (changes.move_piece, changes.swap_pieces, changes.shift_columns, changes.replace_table) * 4:
            change = kind()
            taken = np.flatnonzero(change.legal)
            plans.take(taken, change, plans.try_(change))
            changed += len(taken)
            for plan in range(3):
                made = plans.assignment(plans.option[plan], plans.target[plan]).footprint(case.problem)
                check_placements(placements_of(case.problem, made), case.workload, case.cluster)
    assert changed > 40


def test_guided_changes_take_from_the_slowest_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_changes, "GUIDED", 1.0)
    plans, changes = population()
    for _ in range(5):
        change = changes.move_piece()
        assert (change.ranks[:, 0] == plans.ranks.sum(axis=0).argmax(axis=1)).all()
        assert (change.legal == (change.ranks[:, 0] != change.ranks[:, 1])).all()


def test_a_swap_of_a_table_with_itself_is_not_legal() -> None:
    _, changes = population(64)
    change = changes.swap_pieces()
    (one, _, _), (other, _, _) = change.tables
    assert not change.legal[one == other].any()
    assert not change.legal.any(), "all pieces are on one rank, where swaps change nothing"
