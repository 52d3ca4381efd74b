"""Layouts and shares are the whole space: all that brute force lists, each with what its pieces weigh and cost.

Which shares are left out, held against the definition, pair by pair.
"""

from typing import Any

import numpy as np
import pytest
from support.cases import BOTH, Case, all_placements, cluster, seeded, small_case, table, workload

from recsmith.planners.solver.layouts import Shares, all_shares, choices_of, useful_shares, width_agrees
from recsmith.problems import Space
from recsmith.sharding import KERNEL_NAMES, SHARDING_TYPES

CASES = [small_case(seeded(seed), models=(("torchrec", "analytic")[seed % 2],)) for seed in range(12)]


def described(case: Case, shares: Shares) -> set[tuple]:
    """(table, type, kernel, cache factor, target, width, pieces) of every share on every target."""
    problem, found = case.problem, set()
    for layout, width, count in zip(shares.layout.tolist(), shares.width.tolist(), shares.count.tolist(), strict=True):
        one = shares.layouts[layout]
        kind, kernel = SHARDING_TYPES[problem.modes.type[one.mode]], KERNEL_NAMES[problem.modes.kernel[one.mode]]
        factor = float(problem.modes.load_factor[one.mode])
        name = problem.tables[one.table].name
        found |= {(name, kind.name, kernel, factor, target, width, count) for target in one.targets}
    return found


@pytest.mark.parametrize("case", CASES)
def test_every_placement_is_made_of_shares_and_every_share_may_be_in_a_placement(case: Case) -> None:
    """But for shares that leave columns which no other share can hold."""
    listed, dims = set(), {t.name: t.embedding_dim for t in case.workload.tables}
    for name, placements in all_placements(case).items():
        for placement in placements:
            targets = placement.kind.targets(placement.ranks, case.cluster)
            pieces = list(zip(targets, placement.widths_of(dims[name]), strict=True))
            key = (name, placement.sharding_type, placement.compute_kernel, placement.load_factor or 0.0)
            listed |= {(*key, target, width, pieces.count((target, width))) for target, width in pieces}
    found = described(case, all_shares(case.evaluator))
    least = {t.name: width for t, width in zip(case.problem.tables, case.problem.least_width.tolist(), strict=True)}
    assert listed <= found
    for name, *_, width, count in found - listed:
        assert 0 < dims[name] - width * count < least[name] or case.cluster.local_world_size == 1


def test_a_share_weighs_and_costs_what_its_pieces_do() -> None:
    for case in CASES:
        shares = all_shares(case.evaluator)
        mode = np.array([layout.mode for layout in shares.layouts])[shares.layout]
        head, tail = case.problem.memory(mode, shares.width)
        assert (shares.head == np.stack([head.device, head.host], axis=1) * shares.count[:, None]).all()
        assert (shares.tail[:, 0] == tail.device * shares.count).all()
        assert np.allclose(shares.terms, case.evaluator.terms(mode, shares.width) * shares.count[:, None])
        assert (shares.columns <= case.problem.demand.dim[shares.table]).all()
        assert (shares.coverage == case.problem.modes.coverage[mode]).all()
        assert (shares.group == case.evaluator.group[mode]).all()


def test_layouts_without_shares_are_gone() -> None:
    shares = all_shares(CASES[0].evaluator)
    selected = shares.layout >= len(shares.layouts) // 2
    some = shares.take(selected)
    assert some.layouts == shares.layouts[len(shares.layouts) // 2 :]
    assert (some.columns == shares.columns[selected]).all()
    for layout, sizes in enumerate(some.by_columns):
        own = np.flatnonzero(some.layout == layout)
        assert sorted(each for held in sizes.values() for each in held) == own.tolist()
        assert all((some.columns[held] == size).all() for size, held in sizes.items())


def test_only_column_wise_sequences_name_the_width_that_they_share() -> None:
    tables = [table("a", 10, 8, pooling="none", collection="c"), table("b", 10, 8)]
    shares = all_shares(Case(workload(*tables), cluster(2), Space(types=("column_wise", "table_wise"))).evaluator)
    widths = {(layout.table, layout.shared_width) for layout in shares.layouts}
    pooled = next(t for t, width in widths if (t, ("c", 4)) not in widths)
    assert widths == {(1 - pooled, None), (1 - pooled, ("c", 4)), (1 - pooled, ("c", 8)), (pooled, None)}


@pytest.mark.parametrize(("held", "agrees"), [({}, True), ({"c": 4}, False), ({"c": 8}, True), ({"d": 4}, True)])
def test_sequences_of_a_collection_agree_on_a_width(held: dict[str, int], agrees: bool) -> None:
    assert width_agrees(("c", 8), held) == agrees
    assert width_agrees(None, held)


def test_choices_are_widths_times_devices() -> None:
    work = workload(table("a", 10, 16), table("b", 10, 8))
    assert choices_of(Case(work, cluster(3)).problem) == (4 + 2) * 3
    assert choices_of(Case(work, cluster(3), Space(widths="torchrec")).problem) == 2 * 3
    assert choices_of(Case(work, cluster(3), Space(types=("row_wise",))).problem) == 2 * 3


def demands(shares: Shares) -> np.ndarray:
    return np.hstack([shares.terms, shares.head, shares.tail])


def no_more(shares: Shares, one: int, other: int) -> bool:
    """Whether a share demands no more of anything than another one, on all targets where that may be."""
    mine, theirs = shares.layouts[shares.layout[one]], shares.layouts[shares.layout[other]]
    same = (mine.table, mine.coverage, shares.columns[one]) == (theirs.table, theirs.coverage, shares.columns[other])
    reaches = mine.shared_width in (None, theirs.shared_width) and set(theirs.targets) <= set(mine.targets)
    return same and reaches and bool((demands(shares)[one] <= demands(shares)[other] * (1 + 1e-12)).all())


@pytest.mark.parametrize("model", BOTH)
def test_a_share_is_left_out_only_for_one_that_demands_no_more(model: str) -> None:
    dropped = 0
    for seed in range(6):
        case = small_case(seeded(seed), models=(model,))
        shares = all_shares(case.evaluator)
        useful = useful_shares(case.evaluator, shares)
        left = {_key(useful, s) for s in range(len(useful.layout))}
        for share in range(len(shares.layout)):
            if _key(shares, share) not in left:
                dropped += 1
                others = (s for s in range(len(shares.layout)) if _key(shares, s) in left)
                assert any(no_more(shares, other, share) for other in others)
        for one in range(len(useful.layout)):
            rivals = np.flatnonzero((useful.layout == useful.layout[one]) & (np.arange(len(useful.layout)) != one))
            assert not any(no_more(useful, int(other), one) for other in rivals)
    assert dropped > 10


def _key(shares: Shares, share: int) -> tuple[int, range, object, int, int]:
    layout = shares.layouts[shares.layout[share]]
    return layout.mode, layout.targets, layout.shared_width, int(shares.width[share]), int(shares.count[share])


def test_one_wide_piece_stands_for_two_narrow_ones() -> None:
    case = Case(workload(table("a", 100, 8)), cluster(2), Space(types=("column_wise",)), cost_model="analytic")
    useful = useful_shares(case.evaluator, all_shares(case.evaluator))
    assert sorted(zip(useful.width.tolist(), useful.count.tolist(), strict=True)) == [(4, 1), (8, 1)]


def test_a_group_that_can_do_nothing_more_is_left_out() -> None:
    """column_wise may do all that table_wise does; it stays, with its widths."""
    case = Case(workload(table("a", 100, 8)), cluster(2), Space(types=("table_wise", "column_wise")))
    useful = useful_shares(case.evaluator, all_shares(case.evaluator))
    assert len({layout.group for layout in useful.layouts}) == 1
    assert set(useful.columns.tolist()) == {4, 8}


def test_of_shares_that_demand_the_same_one_is_left() -> None:
    case = Case(workload(table("a", 100, 8)), cluster(2), Space(types=("column_wise",)))
    one = all_shares(case.evaluator)
    fields: Any = (one.layout, one.width, one.count, one.terms, one.head, one.tail)
    twice = Shares(one.layouts, *(each.repeat(2, axis=0) for each in fields))
    useful = useful_shares(case.evaluator, twice)
    assert sorted(useful.columns.tolist()) == sorted(useful_shares(case.evaluator, one).columns.tolist()) == [4, 8]
