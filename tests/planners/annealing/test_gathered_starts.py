"""Gathered starts: tables that cover hosts fill few of them, and column ranges of one table may share a host."""

import numpy as np
import pytest
from support.cases import Case, table, workload

from recsmith._types import Ints
from recsmith.bounds import first_bound
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.clusters import load_cluster
from recsmith.costs import step_seconds
from recsmith.planners.annealing import successive_halving
from recsmith.planners.annealing.gathered_starts import FULL, gathered_starts
from recsmith.planners.annealing.kernel import is_compiled
from recsmith.planners.annealing.starts import Start
from recsmith.planners.annealing.successive_halving import halving_of
from recsmith.planners.search.device_state import Assignment, DeviceState
from recsmith.problems import Constraints, Space, TableRule
from recsmith.sharding import Span

ON_HOSTS, LIGHT = 4, 24  # tables that cover hosts; and others


def mixed_case(hosts: int = 2, rules: tuple[TableRule, ...] = ()) -> Case:
    """Four tables that take a sixth of a step from each rank of a host, and light ones on single ranks."""
    heavy = [table(f"heavy{i}", 1_000_000, 64, 60.0) for i in range(ON_HOSTS)]
    tables = [*heavy, *(table(f"t{i:02}", 10_000, 32, 2.0 + i) for i in range(LIGHT))]
    space = Space(types=("table_row_wise", "table_wise"))
    made = workload(*tables, batch_size=4096)
    return Case(made, load_cluster(f"h100:4x{hosts}"), space, Constraints(rules=rules), cost_model="analytic")


def groups_of(case: Case) -> Ints:
    """Heavy tables in the group that covers hosts, others on single ranks."""
    evaluator, modes = case.evaluator, case.problem.modes
    wide, narrow = (evaluator.group[modes.span == span][0] for span in (Span.HOST, Span.RANK))
    heavy = [each.name.startswith("heavy") for each in case.problem.tables]
    return np.where(heavy, wide, narrow)


def starts_of(case: Case, total_s: float) -> list[Start]:
    relaxation = shared_relaxation(case.evaluator, first_bound(case.evaluator).linear)
    return gathered_starts(DeviceState(case.evaluator), relaxation, [groups_of(case)], total_s)


def on_hosts(case: Case, start: Start) -> list[int]:
    """How many of the heavy tables are on each host."""
    on = case.problem.modes.span[case.problem.pieces.mode[start.draft.piece]] == Span.HOST
    return np.bincount(start.draft.target[on], minlength=case.cluster.hosts).tolist()


def test_tables_that_cover_hosts_fill_one_host_after_the_other() -> None:
    case = mixed_case()
    devices = DeviceState(case.evaluator)
    heavy = float(devices.seconds[devices.span == Span.HOST].max())
    found = starts_of(case, 3.1 * heavy / max(FULL))
    assert sorted(map(tuple, (on_hosts(case, start) for start in found))) == [(2, 2), (3, 1)]  # four fifths full; full
    assert [start.seconds for start in found] == sorted(start.seconds for start in found)
    for start in found:
        assert start.draft.complete
        assert start.seconds == pytest.approx(step_seconds(case.evaluator, start.draft.footprint(case.problem)))


def test_no_host_is_filled_that_is_closed_to_a_table() -> None:
    case = mixed_case(rules=(TableRule(tables="heavy*", hosts=(1,)),))
    assert {tuple(on_hosts(case, start)) for start in starts_of(case, 1.0)} == {(0, ON_HOSTS)}


def test_one_host_has_no_such_starts() -> None:
    assert not starts_of(mixed_case(hosts=1), 1.0)


@pytest.mark.skipif(not is_compiled(), reason="built without a C compiler")
def test_ranges_of_columns_move_to_the_same_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host 1 is full of a table that must be there, so both ranges belong on host 0."""
    monkeypatch.setattr(successive_halving, "STEPS", 2_000)
    tables = [table("grid", 1_000_000, 64, 20.0), table("kept", 1_000_000, 64, 80.0)]
    rules = (TableRule(tables="kept", hosts=(1,), sharding_types=("table_row_wise",)),
             TableRule(tables="grid", sharding_types=("grid_shard",)))  # fmt: skip
    case = Case(workload(*tables, batch_size=4096), load_cluster("h100:4x2"), Space(), Constraints(rules=rules),
                cost_model="analytic")  # fmt: skip
    draft = Assignment.of(case.problem, case.problem.options.start[:-1].copy())
    draft.target[:] = [0, 1, 1]
    relaxation = shared_relaxation(case.evaluator, first_bound(case.evaluator).linear)
    start = Start(np.inf, np.ones(case.evaluator.groups, dtype=bool), draft)
    search = halving_of(DeviceState(case.evaluator), relaxation, [start], 0)
    assert search is not None
    search.run(lambda _: False, lambda: True)
    found = search.plans[0].options.flat.footprint(search.plans[0].plan)
    assert found.target.tolist() == [0, 0, 1]
    assert search.plans[0].seconds == pytest.approx(step_seconds(case.evaluator, found))
