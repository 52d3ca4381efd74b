"""The bound by fillings of a rank: never above a plan, and above what prices that are linear in seconds prove."""

from dataclasses import replace
from importlib import import_module
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.bounds import ONE_DOZEN, hand_made, total_of
from support.cases import BOTH, Case, cluster, drawn, fits, table, workload

pytest.importorskip("ortools", reason="needs the extra `solve`")

from recsmith.bounds.filling_grid import FillingGrid
from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.bounds.lower_bound import lower_bound, prove
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.clusters import load_cluster
from recsmith.workloads import AccessProfile

SMALL = {"models": BOTH, "counts": (1, 2, 3, 5), "dims": (4, 8, 20, 64)}
WORK = 2_000_000


def filled(case: Case, below: float, rounds: int, work: int = 0) -> FillingGrid | None:
    """The bound after so many rounds; None where a single device or planes below zero leave it out."""
    evaluator = case.evaluator
    search = PhaseBranching(evaluator, dominated=groups_dominated_by_type(evaluator), below=below, byte_price=0.0)
    search.solve(work)
    if evaluator.problem.cluster.world_size == 1 or search.prices.planes.bent:
        return None
    found = FillingGrid(search.prices, search.heap, below)
    found.solve(rounds)
    return found


@ONE_DOZEN
@given(drawn(hand_made, **SMALL), st.floats(1.0, 2.0), st.sampled_from([0, WORK]))
def test_no_hand_made_plan_costs_less(made, reach: float, work: int) -> None:
    """However far above the plan the search looks, and wherever it stops."""
    case, placements = made
    assume(fits(case, placements))
    total = total_of(case, placements)
    found = filled(case, reach * total, 8, work)
    assert found is None or found.bound <= total * (1 + 1e-9)


def few_large() -> Case:
    """Seven large tables on eight devices: a rank holds one or two pieces."""
    made = ((128, 5.0), (64, 3.0), (64, 91.0), (128, 61.0), (128, 55.0), (128, 94.0), (64, 1.0))
    some = [table(f"t{i}", 20_000_000, dim, length) for i, (dim, length) in enumerate(made)]
    return Case(workload(*some), cluster(8), cost_model="analytic")


@pytest.fixture(scope="module")
def rising() -> list[float]:
    """Bounds of the few large tables before any round, and after each dozen of them."""
    case = few_large()
    total = case.plan("auto").plan.cost.total_s
    found = filled(case, total, 0, 50_000_000)
    assert found is not None
    seconds = [found.bound / total]
    for rounds in range(12, 61, 12):
        found.solve(rounds)
        seconds.append(found.bound / total)
    return seconds


def test_a_bound_of_few_large_tables_only_rises_and_closes_half_of_the_gap(rising: list[float]) -> None:
    assert all(before <= after <= 1 for before, after in pairwise(rising))
    assert rising[0] < 0.991
    assert 1 - rising[-1] < (1 - rising[0]) / 2


@pytest.mark.parametrize("limit", ["MOST_GROUPS", "MOST_NUMBERS"])
def test_what_is_too_much_leaves_what_the_search_before_proved(limit: str) -> None:
    case = few_large()
    below = 2 * case.plan("auto").plan.cost.total_s
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(f"recsmith.bounds.filling_grid.{limit}", 1)
        found = filled(case, below, 10)
    assert found is not None
    assert (found.rounds, found.done) == (0, True)
    assert found.bound == min(node.value for node in found.nodes) < below


def few_giants() -> Case:
    """Four tables that weigh as much as three of four devices can hold, and three small ones."""
    made = ((60_995_607, 64, 44.0), (98_067_555, 128, 18.0), (62_875_525, 64, 41.0), (92_714_173, 128, 69.0),
            (79_891, 32, 5.0), (7_024, 32, 18.0), (12_581, 32, 25.0))  # fmt: skip
    some = [table(f"t{i}", rows, dim, length) for i, (rows, dim, length) in enumerate(made)]
    some = [replace(each, access=AccessProfile(zipf=1.05 if i < 4 else 0.8)) for i, each in enumerate(some)]
    made_of = replace(workload(*some), batch_size=8192, optimizer="rowwise_adagrad")
    return Case(made_of, load_cluster("h100:4"), cost_model="analytic")


def test_a_proof_on_request_prices_fillings_where_the_solver_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = import_module("recsmith.bounds.lower_bound")
    monkeypatch.setattr(bounds, "MOST_ROUNDS", 300)
    monkeypatch.setattr(bounds, "PROOF_WORK", 1_000_000_000)
    monkeypatch.setattr(bounds, "FILLING_PROOF", 50_000_000)
    case = few_giants()
    total = case.plan("auto").plan.cost.total_s
    filled_s = prove(case.evaluator, total).value_s
    monkeypatch.setattr(bounds, "has_solver", lambda: False)
    plain_s, first_s = prove(case.evaluator, total).value_s, lower_bound(case.evaluator).bound.value_s
    assert filled_s is not None
    assert plain_s is not None
    assert first_s is not None
    assert first_s <= plain_s < 0.998 * filled_s <= total


def test_cells_of_half_the_seconds_keep_what_is_known() -> None:
    case = few_large()
    total = case.plan("auto").plan.cost.total_s
    found = filled(case, total, 20, WORK)
    assert found is not None
    before, step_s = found.bound, found.step_s
    found._halve_cells()
    assert found.step_s == (step_s[0] / 2, step_s[1] / 2)
    assert np.isclose(found.bound, before, rtol=1e-12)
    found.solve(40)
    assert before <= found.bound * (1 + 1e-12) <= total * (1 + 1e-12)
