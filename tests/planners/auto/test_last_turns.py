"""Last turns: what is far from the bound is searched for longer, and in groups that its start kept away from."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.cases import Case, table, workload

from recsmith.bounds import first_bound
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.clusters import load_cluster
from recsmith.costs import step_seconds
from recsmith.planners.annealing import successive_halving
from recsmith.planners.annealing.kernel import is_compiled
from recsmith.planners.annealing.starts import Start
from recsmith.planners.annealing.successive_halving import FAR_ROUND, LONG_HEAT, AnnealedPlan, halving_of
from recsmith.planners.auto import last_turns
from recsmith.planners.auto.last_turns import LastTurns
from recsmith.planners.search.device_state import Assignment, DeviceState
from recsmith.sharding import TYPE_NAMES

needs_compiled = pytest.mark.skipif(not is_compiled(), reason="built without a C compiler")


def turns_of(halving: Any, devices: Any, total_s: float, relaxation: Any = None) -> LastTurns:
    """Last turns of a search whose bound is a second."""
    stopping: Any = SimpleNamespace(search=SimpleNamespace(total_s=total_s), bound_s=1.0, reached=False)
    drafts: Any = SimpleNamespace(devices=devices, relaxation=relaxation)
    return LastTurns(stopping, drafts, halving, lambda _: False)


@pytest.mark.parametrize(
    ("total_s", "is_short", "linear", "gains", "turns"),
    [
        (1.02, True, True, 0.0, 1),
        (1.02, True, True, 0.002, 3),
        (1.02, True, True, 0.004, 2),  # it is near the bound by then
        (1.01, True, True, 0.0, 0),
        (1.02, False, True, 0.0, 0),
        (1.02, True, False, 0.0, 0),
    ],
)
def test_tables_are_placed_otherwise_far_from_the_bound_as_long_as_that_gains(
    monkeypatch: pytest.MonkeyPatch, total_s: float, is_short: bool, linear: bool, gains: float, turns: int
) -> None:
    found, best = list[Any](), SimpleNamespace()
    monkeypatch.setattr(last_turns, "other_ways", lambda devices, relaxation, plan: [plan])
    halving = SimpleNamespace(plans=[best], is_short=is_short, has_long_rounds=True, take=found.append)
    made = turns_of(halving, SimpleNamespace(linear_pieces=() if linear else None, hosts=2), total_s)
    search = vars(made.search)
    other = SimpleNamespace(run=lambda *_: search.update(total_s=made.search.total_s - gains))
    halving.another = lambda *_: other
    assert made.work() == (turns > 0)
    assert found == turns * [other]


@pytest.mark.parametrize(
    ("total_s", "has_long_rounds", "pieces", "times", "linear", "hosts"),
    [
        (1.021, False, 300, FAR_ROUND.times, True, 1),
        (1.021, False, 20, 20, True, 1),
        (1.019, False, 300, 0, True, 1),
        (1.021, True, 300, 0, True, 1),
        (1.021, False, 300, FAR_ROUND.times, False, 2),
        (1.021, False, 300, 0, False, 1),
    ],
)
def test_the_best_plan_is_heated_once_more_far_from_the_bound_unless_rounds_are_long_or_little_is_to_gain(
    monkeypatch: pytest.MonkeyPatch, total_s: float, has_long_rounds: bool, pieces: int, times: int, linear: bool,
    hosts: int,
) -> None:  # fmt: skip
    begun, best = list[Any](), SimpleNamespace(plan=SimpleNamespace(count=np.full(pieces // 10, 10)))
    monkeypatch.setattr(last_turns, "other_ways", lambda devices, relaxation, plan: [])
    monkeypatch.setattr(LastTurns, "_opened", lambda self, plan: plan)
    halving = SimpleNamespace(plans=[best], is_short=True, has_long_rounds=has_long_rounds, heat=2 * LONG_HEAT)
    halving.another = lambda plans, rounds: begun.append((plans, rounds)) or SimpleNamespace(run=lambda *_: None)
    halving.take = lambda other: None
    made = turns_of(halving, SimpleNamespace(linear_pieces=() if linear else None, hosts=hosts), total_s)
    assert made.work() == (times > 0)
    assert begun == ([([best], (FAR_ROUND._replace(heats=(1.0, 4.0), times=times),))] if times else [])


@needs_compiled
def test_it_may_take_groups_that_its_start_kept_away_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(successive_halving, "STEPS", 500)
    narrow = [table(f"t{i}", 1_000_000, 4, 100.0) for i in range(3)]  # too narrow to be split by columns
    case = Case(workload(*narrow, batch_size=65_536), load_cluster("h100:2"), cost_model="analytic")
    devices = DeviceState(case.evaluator)
    relaxation = shared_relaxation(case.evaluator, first_bound(case.evaluator).linear)
    column_wise = case.problem.modes.type == TYPE_NAMES.index("column_wise")
    groups = np.isin(np.arange(case.evaluator.groups), case.evaluator.group[column_wise])
    draft = Assignment.of(case.problem, _first_of_each(case, column_wise))
    draft.target[:] = np.arange(len(draft.target)) % 2
    start = Start(step_seconds(case.evaluator, draft.footprint(case.problem)), groups, draft)
    halving = halving_of(devices, relaxation, [start], 0)
    assert halving is not None
    halving.run(lambda _: False, lambda: True)
    kept = halving.plans[0]
    made = turns_of(halving, devices, np.inf, relaxation)
    made._reheat()
    assert _types(case, kept) == {"column_wise"}
    assert _types(case, halving.plans[0]) > {"column_wise"}
    assert halving.plans[0].seconds < 0.99 * kept.seconds


def _first_of_each(case: Case, modes: Any) -> Any:
    """The first option of each table in one of some modes (M,)."""
    options = case.problem.options
    mine = np.flatnonzero(modes[options.mode])
    return mine[np.unique(options.table[mine], return_index=True)[1]]


def _types(case: Case, annealed: AnnealedPlan) -> set[str]:
    return {TYPE_NAMES[kind] for kind in case.problem.modes.type[annealed.plan.mode]}
