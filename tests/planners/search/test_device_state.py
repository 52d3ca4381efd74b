"""What fits where, which target a piece prefers, and that taking back restores; sums are in test_device_states.py."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import BOTH, LOOSE, Case, cluster, drawn, medium_case, table, workload
from support.placing import random_assignment

from recsmith.planners.search.device_state import DeviceState
from recsmith.problems import Footprint, Space, memory_used


@given(case=drawn(medium_case, tightness=LOOSE, models=BOTH), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_a_piece_fits_where_memory_suffices_with_it(case: Case, seed: int) -> None:
    random, problem = np.random.default_rng(seed), case.problem
    devices, made = DeviceState(case.evaluator), random_assignment(problem, random)
    some = random.random(len(made.piece)) < 0.5
    placed = made.footprint(problem)
    for piece, target in zip(made.piece[some].tolist(), made.target[some].tolist(), strict=True):
        devices.place(piece, target)
    piece = int(random.integers(len(problem.pieces.mode)))
    mode, width = problem.pieces.mode[[piece]], problem.pieces.width[[piece]]
    before = memory_used(problem, Footprint(placed.mode[some], placed.width[some], placed.target[some]))
    for target, fits in enumerate(devices.fits(piece).tolist()):
        device, host = memory_used(problem, Footprint(mode, width, np.array([target])))
        room = (device == 0) | (device + before[0] <= problem.capacity)
        there = (host == 0) | (host + before[1] <= problem.host_capacity)
        # A rank or host that is over its memory already, or that the piece asks nothing of, may say no.
        assert fits == bool(room.all() and there.all()) or (devices.free < 0).any() or (devices.host_free < 0).any()


def test_a_piece_fits_to_the_last_byte() -> None:
    """On exactly the memory that it needs a piece fits; with a byte less on any rank or host of it, it does not."""
    case = Case(
        workload(table("a", 1001, 16), table("b", 13, 64)),
        cluster(2, 2, ddr_bytes_per_host=2**30), Space(kernels=("fused", "dense", "fused_uvm_caching")),
    )  # fmt: skip
    problem, devices = case.problem, DeviceState(case.evaluator)
    on_hosts = 0
    for piece in range(len(problem.pieces.mode)):
        mode, width = problem.pieces.mode[[piece]], problem.pieces.width[[piece]]
        device, host = memory_used(problem, Footprint(mode, width, np.array([0])))
        devices.free, devices.host_free = device.copy(), host.copy()
        assert devices.fits(piece)[0]
        for memory, needed in ((devices.free, device), (devices.host_free, host)):
            for place in np.flatnonzero(needed).tolist():
                memory[place] -= 1
                assert not devices.fits(piece)[0]
                memory[place] += 1
        on_hosts += int(host.any())
    assert on_hosts > 5


def two_tables(**fields: int) -> DeviceState:
    """Equal tables, whole, on two devices."""
    case = Case(
        workload(table("a", 1000, 16), table("b", 1000, 16)), cluster(2, **fields), Space(types=("table_wise",))
    )
    return DeviceState(case.evaluator)


def test_the_less_loaded_device_is_preferred() -> None:
    devices = two_tables()
    devices.place(0, 0)
    first, second = devices.preference(1).tolist()
    assert first > second


def test_full_devices_are_preferred_less_where_memory_counts() -> None:
    devices = two_tables(hbm=2**20)
    devices.free[0] //= 4
    assert devices.preference(0)[0] == devices.preference(0)[1]
    devices.expect(np.array([0, 1]))
    devices.memory_weight = 1.0
    assert devices.balances_powers
    assert devices.preference(0)[0] > devices.preference(0)[1]


def test_cleared_devices_are_as_new() -> None:
    devices = two_tables()
    fresh = (devices.free.copy(), devices.loads.copy(), devices.total)
    devices.place(0, 1)
    assert devices.total > 0
    devices.clear()
    assert (devices.free == fresh[0]).all()
    assert (devices.loads == fresh[1]).all()
    assert devices.total == fresh[2] == 0


def test_plain_scores_take_the_place_of_seconds() -> None:
    evaluator = two_tables().evaluator
    devices = DeviceState(evaluator, np.array([3.0, 5.0]))
    devices.place(0, 0)
    devices.place(1, 0)
    assert devices.load.tolist() == [8.0, 0.0]
