"""Annealing from a plan that is good already: never worse, few pieces move, the same again."""

import numpy as np
import pytest
from support.cases import Case, cluster, table, workload

from recsmith.costs import step_seconds
from recsmith.planners.annealing import kernel
from recsmith.planners.annealing.warm import anneal_warm
from recsmith.planners.greedy import GREEDIES
from recsmith.problems import Footprint, Space, fits, placements_of
from recsmith.problems.of_plans import in_space

COMPILED = pytest.mark.skipif(not kernel.is_compiled(), reason="built without a C compiler")


def case() -> Case:
    tables = [table(f"t{i}", 5_000 * (i + 1), 4 * (1 + i % 9), 1.0 + 3 * (i % 5)) for i in range(24)]
    return Case(workload(*tables, batch_size=512), cluster(2, hosts=2), Space(), cost_model="analytic")


def greedy(one: Case) -> Footprint:
    planner = next(each for each in GREEDIES if each.name == "size_greedy")
    return planner.plan(one.problem, one.evaluator).footprint


@COMPILED
def test_a_plan_gets_better_and_stays_legal_and_is_the_same_again() -> None:
    one = case()
    start = greedy(one)
    found = anneal_warm(one.evaluator, start, 0, lambda: True)
    again = anneal_warm(one.evaluator, start, 0, lambda: True)
    assert found is not None
    assert again is not None
    assert step_seconds(one.evaluator, found[1]) == pytest.approx(found[0])
    assert found[0] < step_seconds(one.evaluator, start)
    assert fits(one.problem, found[1])
    assert in_space(one.problem, placements_of(one.problem, found[1]))
    assert all(np.array_equal(getattr(found[1], name), getattr(again[1], name)) for name in ("mode", "width", "target"))


@COMPILED
def test_it_goes_on_from_widths_that_no_option_has() -> None:
    """What it found once, of any widths, is a start for the next time; and that is no worse."""
    one = case()
    first = anneal_warm(one.evaluator, greedy(one), 0, lambda: True)
    assert first is not None
    second = anneal_warm(one.evaluator, first[1], 1, lambda: True)
    assert second is not None
    assert second[0] <= first[0] * (1 + 1e-12)


def test_without_compiled_code_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recsmith.planners.annealing.warm.is_compiled", lambda: False)
    assert anneal_warm(case().evaluator, greedy(case()), 0, lambda: True) is None
