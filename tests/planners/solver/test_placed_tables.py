"""Fixed tables carry what the rest of the plan does, and a merged plan is both.

Plans rebuilt from shares: as many columns where they were, at the same cost while the shares are all there.
"""

import numpy as np
import pytest
from support.cases import Case, cluster, medium_case, random_placements, seeded, slow_memory, table, workload

from recsmith.costs import device_sums, step_seconds
from recsmith.planners.solver.layouts import all_shares, useful_shares
from recsmith.planners.solver.placed_tables import FixedTables, PlacedTable, merged, rebuilt_from
from recsmith.plans import Placement
from recsmith.problems import Footprint, Space, footprint_of, placements_of


def plans(most: int = 12) -> list[tuple[Case, tuple[Placement, ...]]]:
    made = []
    for seed in range(most):
        pick = seeded(seed)
        case = medium_case(pick, models=(("torchrec", "analytic")[seed % 2],), counts=(4,))
        made.append((case, random_placements(pick, case)))
    return made


def rows(footprint: Footprint) -> list[tuple[int, int, int]]:
    return list(zip(footprint.mode.tolist(), footprint.width.tolist(), footprint.target.tolist(), strict=True))


def test_they_weigh_and_carry_what_the_plan_does_without_the_free_tables() -> None:
    for case, placements in plans():
        problem, footprint = case.problem, footprint_of(case.problem, placements)
        free = np.arange(len(problem.tables)) % 2 == 0
        fixed = FixedTables.of(case.evaluator, footprint, free)
        names = {t.name for t, is_free in zip(problem.tables, free, strict=True) if not is_free}
        device, host = slow_memory(case, [p for p in placements if p.table in names])
        assert (fixed.device.tolist(), fixed.host.tolist()) == (device, host)
        own = ~free[problem.modes.table[footprint.mode]]
        part = Footprint(footprint.mode[own], footprint.width[own], footprint.target[own])
        assert np.allclose(fixed.sums, np.moveaxis(device_sums(case.evaluator, part), 0, 1), rtol=1e-12)
        assert (fixed.groups == (fixed.pieces > 0).any(axis=1)).all()
        assert set(np.flatnonzero(fixed.groups)) == set(case.evaluator.group[part.mode].tolist())


def test_fixed_and_free_tables_are_the_plan() -> None:
    for case, placements in plans():
        footprint = footprint_of(case.problem, placements)
        free = np.arange(len(case.problem.tables)) % 2 == 0
        own = free[case.problem.modes.table[footprint.mode]]
        part = Footprint(footprint.mode[own][::-1], footprint.width[own][::-1], footprint.target[own][::-1])
        ordered = sorted(rows(footprint), key=lambda row: (case.problem.modes.table[row[0]], -row[1], row[2]))
        assert rows(merged(case.problem, footprint, free, part)) == ordered


def test_nothing_fixed_is_nothing_held() -> None:
    case, _ = plans(1)[0]
    nothing = FixedTables.nothing(case.evaluator)
    assert not nothing.tables.any()
    assert not (nothing.device.any())
    assert not (nothing.host.any())
    assert not (nothing.sums.any())
    assert not (nothing.groups.any())


def test_sequences_beside_fixed_ones_take_their_width() -> None:
    tables = [table(name, 10, 16, pooling="none", collection="c") for name in "ab"]
    case = Case(workload(*tables), cluster(4), Space(types=("column_wise",)))
    split = [
        Placement(table=name, sharding_type="column_wise", compute_kernel="fused", ranks=(0, 1), widths=(8, 8))
        for name in "ab"
    ]
    footprint = footprint_of(case.problem, tuple(split))
    fixed = FixedTables.of(case.evaluator, footprint, np.array([True, False]))
    assert fixed.widths == {"c": 8}
    assert [fixed.allows(each) for each in (None, ("c", 8), ("c", 4), ("d", 4))] == [True, True, False, True]
    assert FixedTables.nothing(case.evaluator).allows(("c", 4))


def footprints() -> list[tuple[Case, Footprint]]:
    made = []
    for seed in range(12):
        pick = seeded(seed)
        case = medium_case(pick, models=(("torchrec", "analytic")[seed % 2],), counts=(3,), dims=(4, 8, 20))
        made.append((case, footprint_of(case.problem, random_placements(pick, case))))
    return made


def columns(case: Case, footprint: Footprint) -> list[tuple[int, dict[int, int]]]:
    """Coverage of each table, and its columns on each target."""
    tables = (PlacedTable.of(case.problem, footprint, t) for t in range(len(case.problem.tables)))
    return [(placed.coverage, placed.columns) for placed in tables]


def test_all_shares_rebuild_the_plan_itself() -> None:
    for case, footprint in footprints():
        found = rebuilt_from(case.evaluator, all_shares(case.evaluator), footprint)
        assert found is not None
        modes = case.problem.modes
        assert modes.table[found.mode].tolist() == modes.table[footprint.mode].tolist()
        assert found.mode.tolist() == footprint.mode.tolist()
        assert columns(case, found) == columns(case, footprint)
        assert step_seconds(case.evaluator, found) == pytest.approx(step_seconds(case.evaluator, footprint), rel=1e-9)


def test_fewer_shares_rebuild_it_with_as_many_columns_everywhere_or_not_at_all() -> None:
    found = 0
    for case, footprint in footprints():
        some = rebuilt_from(case.evaluator, useful_shares(case.evaluator, all_shares(case.evaluator)), footprint)
        if some is not None:
            assert columns(case, some) == columns(case, footprint)
            assert placements_of(case.problem, some)
            found += 1
    assert found > 3


def test_a_table_that_no_share_holds_ends_it() -> None:
    case, footprint = footprints()[0]
    shares = all_shares(case.evaluator)
    without = shares.take(~np.isin(shares.columns, list(columns(case, footprint)[0][1].values())) | (shares.table != 0))
    assert rebuilt_from(case.evaluator, without, footprint) is None
