"""Longest-first placement and its repair."""

import numpy as np
import pytest
from support.cases import Case, cluster, table, workload

from recsmith.planners.search.assignment import NOWHERE, Assignment
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.placement import allowed_targets, place_longest_first
from recsmith.problems import Problem, Space


def whole_tables(*rows: int, local: int = 2, hbm: int = 2**40) -> Case:
    """Tables of some rows, table_wise, on some devices; the most rows come first."""
    tables = [table(f"t{i}", number, 16) for i, number in enumerate(rows)]
    return Case(workload(*tables, optimizer="sgd"), cluster(local, hbm=hbm), Space(types=("table_wise",)))


def all_whole(problem: Problem) -> Assignment:
    return Assignment.of(problem, problem.options.start[:-1])


def test_longest_first_balances_scores_and_breaks_ties_to_the_lowest_rank() -> None:
    case = whole_tables(50, 40, 30, 20, 10)
    devices, made = DeviceState(case.evaluator, np.array([5.0, 4.0, 3.0, 2.0, 1.0])), all_whole(case.problem)
    place_longest_first(devices, made, devices.seconds)
    assert made.target.tolist() == [0, 1, 1, 0, 0]
    assert devices.load.tolist() == [8.0, 7.0]


def test_the_order_is_the_callers() -> None:
    case = whole_tables(50, 40, 30)
    devices, made = DeviceState(case.evaluator, np.array([5.0, 4.0, 3.0])), all_whole(case.problem)
    place_longest_first(devices, made, -devices.seconds)
    assert made.target.tolist() == [0, 1, 0]


def test_a_piece_without_room_stays_unplaced() -> None:
    case = whole_tables(1000, 10, hbm=30_000)
    devices, made = DeviceState(case.evaluator), all_whole(case.problem)
    place_longest_first(devices, made, devices.seconds)
    assert made.target.tolist() == [NOWHERE, 0]
    assert (devices.free >= 0).all()


@pytest.mark.parametrize("kind", ["column_wise", "table_column_wise"])
def test_pieces_of_a_table_restrict_each_other(kind: str) -> None:
    """Another width may not share the rank; pieces of table_column_wise stay on the host of the first."""
    case = Case(workload(table("a", 100, 64)), cluster(3, 2), Space(types=(kind,)))
    problem = case.problem
    counts = problem.options.count
    mixed = np.flatnonzero((counts > 0).all(axis=1))
    option = int(mixed[0] if mixed.size else np.flatnonzero(counts.sum(axis=1) > 1)[0])
    devices, made = DeviceState(case.evaluator), Assignment.of(problem, np.array([option]))
    last = len(made.piece) - 1
    assert np.broadcast_to(allowed_targets(devices, made, last), 6).all()
    made.target[0] = 4
    expected = [kind == "column_wise"] * 3 + [True] * 3
    expected[4] = bool(made.piece[last] == made.piece[0])
    assert np.broadcast_to(allowed_targets(devices, made, last), 6).tolist() == expected
