"""Plans rebuilt from shares: as many columns where they were, at the same cost while the shares are all there."""

import numpy as np
import pytest
from support.cases import Case, medium_case, random_placements, seeded

from recsmith.costs import step_seconds
from recsmith.planners.solver.dominance import useful_shares
from recsmith.planners.solver.layouts import all_shares
from recsmith.planners.solver.rebuilding import PlacedTable, rebuilt_from
from recsmith.problems import Footprint, footprint_of, placements_of


def plans() -> list[tuple[Case, Footprint]]:
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
    for case, footprint in plans():
        found = rebuilt_from(case.evaluator, all_shares(case.evaluator), footprint)
        assert found is not None
        modes = case.problem.modes
        assert modes.table[found.mode].tolist() == modes.table[footprint.mode].tolist()
        assert found.mode.tolist() == footprint.mode.tolist()
        assert columns(case, found) == columns(case, footprint)
        assert step_seconds(case.evaluator, found) == pytest.approx(step_seconds(case.evaluator, footprint), rel=1e-9)


def test_fewer_shares_rebuild_it_with_as_many_columns_everywhere_or_not_at_all() -> None:
    found = 0
    for case, footprint in plans():
        some = rebuilt_from(case.evaluator, useful_shares(case.evaluator, all_shares(case.evaluator)), footprint)
        if some is not None:
            assert columns(case, some) == columns(case, footprint)
            assert placements_of(case.problem, some)
            found += 1
    assert found > 3


def test_a_table_that_no_share_holds_ends_it() -> None:
    case, footprint = plans()[0]
    shares = all_shares(case.evaluator)
    without = shares.take(~np.isin(shares.columns, list(columns(case, footprint)[0][1].values())) | (shares.table != 0))
    assert rebuilt_from(case.evaluator, without, footprint) is None
