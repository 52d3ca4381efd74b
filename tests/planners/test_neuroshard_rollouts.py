"""What halving makes of tables: widths, order, and pieces that differ in name only.

The greedy grid search places each piece where that costs least, within memory and the cap, and ranks what it finds.

The whole search is held against a slow one in test_neuroshard.py; the state of its devices in
solver/test_device_states.py.
"""

from typing import Any

import numpy as np
import pytest
from support.cases import BOTH, Case, cluster, table, workload

from recsmith.planners import neuroshard_rollouts as module
from recsmith.planners.neuroshard_rollouts import BeamNode, ColumnHalves, Rollouts
from recsmith.problems import NO_PIECE, Constraints, Footprint, Space, TableRule
from recsmith.sharding import SHARDING_TYPES
from recsmith.workloads import Table

ANY = Space()
NOTHING = Footprint(*np.empty((3, 0), dtype=np.int64))


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


def rollouts_of(case: Case, *caps: float) -> tuple[ColumnHalves, Rollouts]:
    halves = ColumnHalves.of(case.problem, case.evaluator)
    return halves, Rollouts(case.problem, case.evaluator, halves, np.array(caps), NOTHING)


def case_of(*dims: int, ranks: int = 2, model: str = "analytic", **fields: int) -> Case:
    tables = [table(f"t{i}", 1000, dim) for i, dim in enumerate(dims)]
    return Case(workload(*tables), cluster(ranks, **fields), cost_model=model)


def placed(halves: ColumnHalves, rollouts: Rollouts, pieces: list[int]) -> BeamNode:
    node = BeamNode(halves.sorted(np.array(pieces)))
    rollouts.place([node])
    return node


@pytest.mark.parametrize("model", BOTH)
def test_equal_pieces_are_spread_evenly(model: str) -> None:
    halves, rollouts = rollouts_of(case_of(*[16] * 6, ranks=3, model=model), 1.0, 1.5)
    node = placed(halves, rollouts, halves.whole.tolist())
    assert node.target is not None
    assert np.bincount(node.target).tolist() == [2, 2, 2]


def test_a_wider_cap_is_taken_only_where_it_pays() -> None:
    """Columns 32 and 16, 16: under the narrow cap the plan is even, and no wider one is better."""
    halves, rollouts = rollouts_of(case_of(32, 16, 16), 1.0, 9.0)
    node = placed(halves, rollouts, halves.whole.tolist())
    assert node.target is not None
    columns = np.bincount(node.target, halves.width[node.pieces])
    assert columns.tolist() == [32, 32]
    assert node.rank == (0.0, node.total_s)


def test_pieces_of_one_table_share_a_device_only_if_they_are_equally_wide() -> None:
    """One device and the whole of a table in 32, 16 and 16 columns: only equal ones may be together."""
    case = case_of(64, ranks=2)
    halves, rollouts = rollouts_of(case, 9.0)
    half = int(halves.half[halves.whole[0]])
    quarter = int(halves.half[half])
    node = placed(halves, rollouts, [half, quarter, quarter])
    assert node.target is not None
    wide = halves.width[node.pieces] == 32
    assert set(node.target[wide]).isdisjoint(node.target[~wide])
    alone = Case(case.workload, cluster(1), cost_model="analytic")
    halves, rollouts = rollouts_of(alone, 9.0)
    assert placed(halves, rollouts, [half, quarter, quarter]).target is None


def test_nodes_without_room_rank_behind_plans_by_the_bytes_that_are_too_many() -> None:
    tight = case_of(16, 16, 16, hbm=90_000)
    halves, rollouts = rollouts_of(tight, 9.0)
    size = int(halves.bytes[halves.whole[0]])
    assert 45_000 < size < 90_000
    node = placed(halves, rollouts, halves.whole.tolist())
    assert node.target is None
    assert node.rank == (1.0, 2 * size - 90_000)
    assert node.rank > placed(halves, rollouts, halves.whole[:2].tolist()).rank


def test_many_nodes_at_once_are_placed_as_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of(64, 32, 32, 16, 16, 16, ranks=3)
    halves, rollouts = rollouts_of(case, 1.0, 1.2, 1.5)
    whole = halves.whole.tolist()
    sets = [[*whole[:i], *whole[i + 1 :], *[int(halves.half[whole[i]])] * 2] for i in range(len(whole))]
    together = [BeamNode(halves.sorted(np.array(pieces))) for pieces in sets]
    rollouts.place(together)
    monkeypatch.setattr(module, "CHUNK", 1)
    for node, pieces in zip(together, sets, strict=True):
        alone = placed(halves, rollouts, pieces)
        assert node.total_s == alone.total_s
        assert node.target is not None
        assert alone.target is not None
        assert node.target.tolist() == alone.target.tolist()
