"""Assignments: from options and footprints and back.

What fits where, which target a piece prefers, and that taking back restores; sums are in test_device_states.py.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import BOTH, LOOSE, Case, cluster, drawn, medium_case, table, workload
from support.placing import random_assignment

from recsmith.planners.search.device_state import NOWHERE, Assignment, DeviceState
from recsmith.problems import Footprint, Space, memory_used, option_pieces, placements_of


@given(case=drawn(medium_case), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_an_assignment_survives_the_way_to_a_footprint_and_back(case: Case, seed: int) -> None:
    problem = case.problem
    made = random_assignment(problem, np.random.default_rng(seed))
    again = Assignment.from_footprint(problem, made.footprint(problem))
    assert again is not None
    assert again.option.tolist() == made.option.tolist()
    assert again.piece.tolist() == made.piece.tolist()
    sort = np.lexsort((made.target, made.piece, made.table))
    assert sorted(zip(again.table, again.piece, again.target, strict=True)) == [
        (made.table[i], made.piece[i], made.target[i]) for i in sort
    ]


def split_case() -> Case:
    work = workload(table("a", 100, 64), table("b", 100, 4))
    return Case(work, cluster(4), Space(types=("table_wise", "column_wise")))


def test_pieces_come_in_order_of_tables_wide_first_and_unplaced() -> None:
    problem = split_case().problem
    mixed = int(np.flatnonzero((problem.options.count > 0).all(axis=1))[0])
    other = int(problem.options.start[1 - problem.options.table[mixed]])
    choice = np.array(sorted([mixed, other], key=lambda option: problem.options.table[option]))
    made = Assignment.of(problem, choice)
    assert made.piece.tolist() == [piece for option in choice.tolist() for piece in option_pieces(problem, option)]
    widths = problem.pieces.width[made.piece[made.table == problem.options.table[mixed]]]
    assert (np.diff(widths) <= 0).all()
    assert widths[0] > widths[-1]
    assert (made.target == NOWHERE).all()
    assert not made.complete
    made.target[:] = 0
    assert made.complete


def test_a_split_that_is_no_option_has_no_assignment() -> None:
    problem = split_case().problem
    mode = problem.find_mode(0, "column_wise", "fused")
    other = problem.find_mode(1, "table_wise", "fused")
    assert mode is not None
    assert other is not None
    dim = problem.tables[0].embedding_dim
    widths = [dim - 12, 8, 4]
    footprint = Footprint(np.array([mode] * 3 + [other]), np.array([*widths, 4]), np.array([0, 1, 2, 0]))
    assert placements_of(problem, footprint)
    assert Assignment.from_footprint(problem, footprint) is None


def test_siblings_are_the_other_pieces_of_the_table() -> None:
    made = Assignment(np.arange(3), np.array([0, 1, 1, 1, 2]), np.arange(5), np.arange(5))
    assert [made.siblings(i).tolist() for i in range(5)] == [[], [2, 3], [1, 3], [1, 2], []]


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
