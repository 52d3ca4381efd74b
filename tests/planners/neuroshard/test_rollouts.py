"""The greedy grid search places each piece where that costs least, within memory and the cap, and ranks what it finds.

The whole search is held against a slow one in test_neuroshard.py; the state of its devices in
solver/test_device_states.py.
"""

import numpy as np
import pytest
from support.cases import BOTH, Case, cluster, table, workload

from recsmith.planners.neuroshard import rollouts as module
from recsmith.planners.neuroshard.halves import ColumnHalves
from recsmith.planners.neuroshard.rollouts import Node, Rollouts
from recsmith.problems import Footprint

NOTHING = Footprint(*np.empty((3, 0), dtype=np.int64))


def rollouts_of(case: Case, *caps: float) -> tuple[ColumnHalves, Rollouts]:
    halves = ColumnHalves.of(case.problem, case.evaluator)
    return halves, Rollouts(case.problem, case.evaluator, halves, np.array(caps), NOTHING)


def case_of(*dims: int, ranks: int = 2, model: str = "analytic", **fields: int) -> Case:
    tables = [table(f"t{i}", 1000, dim) for i, dim in enumerate(dims)]
    return Case(workload(*tables), cluster(ranks, **fields), cost_model=model)


def placed(halves: ColumnHalves, rollouts: Rollouts, pieces: list[int]) -> Node:
    node = Node(halves.sorted(np.array(pieces)))
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
    together = [Node(halves.sorted(np.array(pieces))) for pieces in sets]
    rollouts.place(together)
    monkeypatch.setattr(module, "CHUNK", 1)
    for node, pieces in zip(together, sets, strict=True):
        alone = placed(halves, rollouts, pieces)
        assert node.total_s == alone.total_s
        assert node.target is not None
        assert alone.target is not None
        assert node.target.tolist() == alone.target.tolist()
