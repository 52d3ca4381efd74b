"""The limits that branching over groups offers to searches."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from support.bounds import FEW, MEDIUM
from support.cases import BOTH, Case, cluster, table, workload

from recsmith.bounds import lower_bound
from recsmith.bounds.selection import SelectionLimits
from recsmith.bounds.table_totals import TableTotals
from recsmith.problems import Space


@FEW
@given(MEDIUM)
def test_promising_limits_name_groups_that_tables_can_use_and_the_last_allows_everything(case: Case) -> None:
    evaluator = case.evaluator
    *promising, everything = lower_bound(evaluator).promising
    assert replace(everything, limit=math.inf) == SelectionLimits()
    totals = TableTotals(evaluator)
    for limits in promising:
        assert limits.groups is not None
        assert limits.groups.shape == (evaluator.groups,)
        assert limits.groups.any()
        assert np.isfinite(totals.per_table(SelectionLimits(groups=limits.groups)).value).all()


@pytest.mark.parametrize("model", BOTH)
def test_one_kind_of_table_has_one_promising_limit_of_its_group(model: str) -> None:
    case = Case(workload(table("a", 100, 8)), cluster(2), Space(types=("table_wise",)), cost_model=model)
    first, everything = lower_bound(case.evaluator).promising
    assert first.groups is not None
    assert first.groups.tolist() == [True]
    assert everything.groups is None
