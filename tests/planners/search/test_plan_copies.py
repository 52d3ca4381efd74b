"""Copies of a plan do not share what changes; sums and bytes are in test_device_states.py."""

import numpy as np
from support.searched import heap, lopsided

from recsmith.costs import step_seconds
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.plan_copies import PlanCopies, pieces_of
from recsmith.problems import NO_PIECE, option_pieces


def test_a_change_to_one_copy_leaves_the_others() -> None:
    case = lopsided()
    one = PlanCopies.of(DeviceState(case.evaluator), heap(case))
    copies = one.take(np.array([0, 0]))
    total = step_seconds(case.evaluator, heap(case).footprint(case.problem))
    copies.remove(1, 3)
    assert copies.option[:, 3].tolist() == [one.option[0, 3], NO_PIECE]
    assert copies.totals()[1] < copies.totals()[0] == one.totals()[0]
    copies.insert(1, 3, int(one.option[0, 3]), np.array([2]))
    assert copies.assignment(1).target.tolist() == [2 if i == 3 else 0 for i in range(12)]
    assert copies.assignment(0).target.tolist() == one.assignment(0).target.tolist() == [0] * 12
    assert np.isclose(one.totals()[0], total, rtol=1e-12)
    assert (copies.free[1] > one.free[0])[0]


def test_pieces_of_an_option_are_listed_as_often_as_it_has_them() -> None:
    devices = DeviceState(lopsided().evaluator)
    for option in range(0, len(devices.problem.options.mode), 7):
        assert pieces_of(devices, option).tolist() == option_pieces(devices.problem, option)
