"""Pieces of single ranks and hosts: big ones pay for what nobody else can use of their rank."""

import numpy as np
import pytest
from support.cases import Case, cluster, table, workload

from recsmith.bounds.linear_bounds import least_opening
from recsmith.bounds.local_pieces import LocalPieces
from recsmith.bounds.multipliers import Multipliers, PhaseRanges, stacked
from recsmith.bounds.relaxation import Relaxation
from recsmith.problems import Space


def _pieces(case: Case) -> LocalPieces:
    evaluator = case.evaluator
    slopes = np.stack([plane.slopes for plane in evaluator.planes])
    nothing = np.zeros(evaluator.groups, dtype=bool)
    everyone = np.arange(len(case.problem.tables))
    return LocalPieces(
        evaluator, Relaxation(evaluator, barred=True), least_opening(evaluator), slopes, nothing, everyone
    )


def _price(pieces: LocalPieces, low: float, high: float) -> float:
    """The price of the only piece for a range of `ready`, at multipliers of 1."""
    nodes = stacked([PhaseRanges((low, high), (0.0, 0.0))], [Multipliers(1.0, 1.0, 0.0, np.ones((1, 1)), 0)])
    ((price,),) = pieces.cheapest(nodes, np.zeros(1)).tolist()
    return price


def test_a_piece_that_leaves_no_room_for_another_pays_for_its_whole_rank() -> None:
    """With one table there are only big pieces: beside it no seconds can be used, so its rank costs the least ready."""
    case = Case(workload(table("a", 5000, 8, 10.0)), cluster(2), Space(types=("table_wise",)), cost_model="torchrec")
    pieces = _pieces(case)
    alone = float(pieces.alone[0])
    assert _price(pieces, 0.0, 3 * alone) == pytest.approx(alone)  # small: another could stand beside it
    assert _price(pieces, 1.4 * alone, 1.5 * alone) == pytest.approx(1.4 * alone)
    assert _price(pieces, 0.0, 1.5 * alone) == pytest.approx(alone)
    assert _price(pieces, 0.0, 0.5 * alone) == np.inf


def test_a_piece_that_covers_a_host_pays_for_each_of_its_ranks() -> None:
    space = Space(types=("table_row_wise",))
    pieces = _pieces(Case(workload(table("a", 5000, 8, 10.0)), cluster(2, hosts=2), space, cost_model="torchrec"))
    alone = float(pieces.alone[0])
    assert _price(pieces, 0.0, 3 * alone) == pytest.approx(2 * alone)
    assert _price(pieces, 1.4 * alone, 1.5 * alone) == pytest.approx(2 * 1.4 * alone)


def test_a_piece_that_another_fits_beside_pays_for_itself() -> None:
    """The small table takes a tenth of the range, at the same price a second: nothing of the rank is lost."""
    tables = workload(table("a", 5000, 8, 10.0), table("b", 5000, 8, 1.0))
    pieces = _pieces(Case(tables, cluster(2), Space(types=("table_wise",)), cost_model="torchrec"))
    nodes = stacked([PhaseRanges((0.0, 1.5 * float(pieces.alone.max())), (0.0, 0.0))],
                    [Multipliers(1.0, 1.0, 0.0, np.ones((1, 1)), 0)])  # fmt: skip
    used = pieces.alone[pieces.whole[:, 0]]
    assert pieces.cheapest(nodes, np.zeros(1))[0] == pytest.approx(used)


def test_every_width_of_a_table_that_may_be_split_is_a_piece() -> None:
    case = Case(workload(table("a", 100, 20)), cluster(2), Space(types=("column_wise",)), cost_model="analytic")
    pieces = _pieces(case)
    assert [family.shape for family in pieces.families] == [(1, 5)]
    assert pieces.whole.size == 0
    assert pieces.numbers > pieces.ready.size
