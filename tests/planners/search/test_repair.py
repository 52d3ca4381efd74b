"""Repair makes room by chains of smaller pieces, and leaves all as it was where there is none."""

import numpy as np
from planners.search.test_placement import all_whole, whole_tables

from recsmith.planners.search.assignment import NOWHERE
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.repair import repair


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
