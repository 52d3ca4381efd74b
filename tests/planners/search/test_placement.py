"""Longest-first placement; repair, which makes room by chains of smaller pieces; tables in as few pieces as fit."""

import numpy as np
import pytest
from support.cases import Case, cluster, table, workload

from recsmith.bounds.relaxation import shared_relaxation
from recsmith.planners.search.device_state import NOWHERE, Assignment, DeviceState
from recsmith.planners.search.placement import (
    allowed_targets,
    fewest_pieces_options,
    finer_option,
    place_in_fewest_pieces,
    place_longest_first,
    repair,
)
from recsmith.problems import NO_PIECE, Problem, Space, fits


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


def test_a_large_piece_pushes_smaller_ones_away() -> None:
    """Two of size 3 on two devices of size 7 leave no room for one of size 5; one of them moves to the other."""
    case = whole_tables(500, 300, 300)
    problem = case.problem
    size = problem.pieces.tail.device
    devices, made = DeviceState(case.evaluator), all_whole(problem)
    devices.free[:] = size[0] + size[1] // 2
    large = int(size.argmax())
    for i, target in zip([i for i in range(3) if i != large], (0, 1), strict=True):
        devices.place(i, target)
        made.target[i] = target
    before = devices.free.copy()
    repair(devices, made)
    assert made.complete
    assert len({*made.target.tolist()}) == 2
    assert (devices.free >= 0).all()
    assert devices.free.sum() == before.sum() - size[large]


def test_a_chain_that_ends_without_room_is_undone() -> None:
    """The large piece fits in the place of either small one, which then fits nowhere."""
    case = whole_tables(500, 300, 300)
    size = case.problem.pieces.tail.device
    devices, made = DeviceState(case.evaluator), all_whole(case.problem)
    devices.free[:] = size[0]
    for i, target in ((1, 0), (2, 1)):
        devices.place(i, target)
        made.target[i] = target
    before = devices.free.copy()
    repair(devices, made)
    assert made.target.tolist() == [NOWHERE, 0, 1]
    assert np.array_equal(devices.free, before)


def case_of(*rows: int, hbm: int) -> Case:
    tables = [table(f"t{i}", number, 32) for i, number in enumerate(rows)]
    types = ("table_wise", "column_wise")
    return Case(workload(*tables, optimizer="sgd", batch_size=1), cluster(2, hbm=hbm), Space(types=types))


def pieces_of_tables(case: Case) -> list[int] | None:
    made = place_in_fewest_pieces(DeviceState(case.evaluator), shared_relaxation(case.evaluator))
    if made is None:
        return None
    assert made.complete
    assert fits(case.problem, made.footprint(case.problem))
    return np.bincount(made.table).tolist()


def test_tables_that_fit_stay_whole() -> None:
    assert pieces_of_tables(case_of(1000, 1000, 1000, hbm=2**30)) == [1, 1, 1]


def test_a_table_too_large_for_a_device_is_split() -> None:
    assert pieces_of_tables(case_of(1000, 10, hbm=100_000)) == [2, 1]


def test_a_table_that_finds_no_room_whole_is_split_further() -> None:
    """Three tables of 128 KB on two devices of 200 KB: two whole ones leave no device with room for the third."""
    found = pieces_of_tables(case_of(1000, 1000, 1000, hbm=210_000))
    assert found is not None
    assert sorted(found) != [1, 1, 1]


def test_without_room_for_all_there_is_none() -> None:
    assert pieces_of_tables(case_of(1000, 1000, 1000, hbm=150_000)) is None


def test_a_split_that_outweighs_all_devices_is_not_gone_on_from() -> None:
    """Split by rows, a table needs the outputs of all samples on each device; that would leave no room for others."""
    tables = [table(f"t{i}", number, 32) for i, number in enumerate((1600, 3600, 200))]
    space = Space(types=("table_wise", "column_wise", "row_wise"))
    case = Case(workload(*tables, optimizer="sgd", batch_size=64), cluster(4, hbm=290_000), space)
    assert pieces_of_tables(case) == [2, 1, 1]


def test_finer_options_have_lighter_pieces_until_there_are_none() -> None:
    case = case_of(1000, hbm=2**30)
    relaxation = shared_relaxation(case.evaluator)
    option, heaviest = int(fewest_pieces_options(relaxation)[0]), list[int]()
    while option != NO_PIECE:
        heaviest.append(int(relaxation.option_heaviest[option]))
        option = finer_option(relaxation, option)
    assert len(heaviest) > 2
    assert heaviest == sorted(set(heaviest), reverse=True)
