"""Tables in as few pieces as fit, split further where they find no room."""

import numpy as np
from support.cases import Case, cluster, table, workload

from recsmith.bounds.relaxation import shared_relaxation
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.fewest_pieces import fewest_pieces_options, finer_option, place_in_fewest_pieces
from recsmith.problems import NO_PIECE, Space, fits


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


def test_finer_options_have_lighter_pieces_until_there_are_none() -> None:
    case = case_of(1000, hbm=2**30)
    relaxation = shared_relaxation(case.evaluator)
    option, heaviest = int(fewest_pieces_options(relaxation)[0]), list[int]()
    while option != NO_PIECE:
        heaviest.append(int(relaxation.option_heaviest[option]))
        option = finer_option(relaxation, option)
    assert len(heaviest) > 2
    assert heaviest == sorted(set(heaviest), reverse=True)
