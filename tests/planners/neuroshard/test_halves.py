"""What halving makes of tables: widths, order, and pieces that differ in name only."""

from typing import Any

import numpy as np
import pytest
from support.cases import Case, cluster, table, workload

from recsmith.planners.neuroshard.halves import ColumnHalves
from recsmith.problems import NO_PIECE, Constraints, Space, TableRule
from recsmith.sharding import SHARDING_TYPES
from recsmith.workloads import Table

ANY = Space()


def halves_of(*tables: Table, space: Space = ANY, rules: tuple[TableRule, ...] = ()) -> tuple[Case, ColumnHalves]:
    case = Case(workload(*tables), cluster(2), space, Constraints(rules=rules), cost_model="analytic")
    return case, ColumnHalves.of(case.problem, case.evaluator)


def chain(halves: ColumnHalves, piece: int) -> list[int]:
    """Widths of a piece, its half, the half of that, and so on."""
    widths = [int(halves.width[piece])]
    while halves.half[piece] != NO_PIECE:
        piece = int(halves.half[piece])
        widths.append(int(halves.width[piece]))
    return widths


@pytest.mark.parametrize(
    ("dim", "least", "widths"),
    [(64, None, [64, 32, 16, 8, 4]), (64, 16, [64, 32, 16]), (24, None, [24, 12]), (4, None, [4])],
)
def test_widths_halve_while_they_are_legal(dim: int, least: int | None, widths: list[int]) -> None:
    rules = (TableRule(tables="a", min_width=least),) if least else ()
    _, halves = halves_of(table("a", 100, dim), rules=rules)
    assert chain(halves, int(halves.whole[0])) == widths
    assert sorted(halves.width.tolist(), reverse=True) == widths


@pytest.mark.parametrize(
    ("fields", "space"),
    [({"pooling": "none"}, ANY), ({}, Space(widths="torchrec")), ({}, Space(types=("table_wise", "row_wise")))],
    ids=["sequences", "TorchRec's one width", "no column_wise"],
)
def test_other_tables_stay_whole(fields: dict[str, Any], space: Space) -> None:
    case, halves = halves_of(table("a", 100, 64, **fields), space=space)
    assert chain(halves, int(halves.whole[0])) == [64]
    assert SHARDING_TYPES[case.problem.modes.type[halves.mode[0]]].name == "table_wise"


def test_tables_that_no_single_device_may_hold_are_left_out() -> None:
    rules = (TableRule(tables="b", sharding_types=("row_wise",)),)
    case, halves = halves_of(table("a", 100, 8), table("b", 100, 8), rules=rules)
    assert {case.problem.tables[t].name for t in halves.table.tolist()} == {"a"}
    assert len(halves.whole) == 1


def test_pieces_are_placed_dearest_first() -> None:
    _, halves = halves_of(table("a", 100, 16, 1.0), table("b", 100, 16, 50.0), table("c", 100, 64, 5.0))
    ranked = halves.sorted(np.arange(len(halves.width)))
    assert halves.order[ranked].tolist() == list(range(len(ranked)))
    assert (np.diff(halves.seconds[ranked]) <= 0).all()


def test_shapes_tell_pieces_apart_by_all_but_their_names() -> None:
    case, halves = halves_of(table("a", 100, 16), table("b", 100, 16), table("c", 101, 16), table("d", 100, 16, 3.0))
    shape = {case.problem.tables[t].name: int(halves.shape[p]) for t, p in zip(range(4), halves.whole, strict=True)}
    assert shape["a"] == shape["b"]
    assert len(set(shape.values())) == 3
    assert len(set(halves.shape[halves.table == 0].tolist())) == (halves.table == 0).sum()


def test_a_piece_weighs_and_costs_what_it_does_alone_on_a_rank() -> None:
    case, halves = halves_of(table("a", 1001, 64), table("b", 50, 24))
    _, tail = case.problem.memory(halves.mode, halves.width)
    assert halves.bytes.tolist() == tail.device.tolist()
    assert halves.seconds.tolist() == case.evaluator.compute(case.evaluator.terms(halves.mode, halves.width)).tolist()
