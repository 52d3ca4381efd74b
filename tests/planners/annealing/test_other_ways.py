"""Other ways: a table that is placed otherwise stays so for one round, and plans are found that annealing missed."""

from collections.abc import Sequence

import numpy as np
import pytest
from support.cases import Case, table, workload

from recsmith.bounds import first_bound
from recsmith.bounds.relaxation import Relaxation, shared_relaxation
from recsmith.clusters import load_cluster
from recsmith.costs import step_seconds
from recsmith.planners.annealing import successive_halving
from recsmith.planners.annealing.kernel import is_compiled
from recsmith.planners.annealing.other_ways import AS_BEFORE, MOST_WAYS, WAY_ROUNDS, WAYS_OF_A_TABLE, other_ways
from recsmith.planners.annealing.starts import Start
from recsmith.planners.annealing.successive_halving import AnnealedPlan, SuccessiveHalving, cool, halving_of
from recsmith.planners.search.device_state import Assignment, DeviceState
from recsmith.problems import Constraints, Space, TableRule

pytestmark = pytest.mark.skipif(not is_compiled(), reason="built without a C compiler")

HEAVY = 0  # the table that the plan at hand has in two pieces; in one it costs a fifth less
SHARPNESS = (24, 5)


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(successive_halving, "STEPS", 2_000)


def split_case(devices: int = 2, rules: tuple[TableRule, ...] = ()) -> Case:
    """One table that is as heavy as a third of a step of two ranks, and light ones."""
    tables = [table("heavy", 1_000_000, 128, 20.0), *(table(f"t{i:02}", 10_000, 32, 2.0) for i in range(1, 25))]
    made, space = workload(*tables, batch_size=4096), Space(types=("column_wise",))
    return Case(made, load_cluster(f"h100:{devices}"), space, Constraints(rules=rules), cost_model="analytic")


def split_in_two(case: Case) -> SuccessiveHalving:
    """A search from a plan with half of the heavy table on either rank, and one light table more on the first."""
    options = case.problem.options
    chosen = options.start[:-1].copy()
    halves = np.flatnonzero((options.table == HEAVY) & (options.count[:, 0] == 2))
    chosen[HEAVY] = halves[0]
    draft = Assignment.of(case.problem, chosen)
    draft.target[:] = np.arange(len(draft.target)) % 2
    draft.target[-1] = 0
    seconds = step_seconds(case.evaluator, draft.footprint(case.problem))
    groups = np.ones(case.evaluator.groups, dtype=bool)
    made = halving_of(DeviceState(case.evaluator), relaxed(case), [Start(seconds, groups, draft)], 0)
    assert made is not None
    return made


def relaxed(case: Case) -> Relaxation:
    return shared_relaxation(case.evaluator, first_bound(case.evaluator).linear)


def ways_of(case: Case, best: AnnealedPlan) -> list[AnnealedPlan]:
    return other_ways(DeviceState(case.evaluator), relaxed(case), best)


def pieces(plans: Sequence[AnnealedPlan]) -> list[int]:
    """Into how many pieces plans split the heavy table."""
    return [int(each.plan.count[HEAVY]) for each in plans]


def test_a_plan_is_found_that_annealing_alone_has_to_go_a_long_way_round_for() -> None:
    case = split_case()
    made = split_in_two(case)
    best, found = made.plans[0], list[AnnealedPlan]()
    cold = tuple(each._replace(heats=(0.01 * each.heats[0],)) for each in WAY_ROUNDS)  # as where there are many pieces
    for plans in ([best] * (AS_BEFORE + MOST_WAYS), ways_of(case, best)):
        other = made.another(plans, cold)
        other.run(lambda _: False, lambda: True)
        found.append(other.plans[0])
    assert pieces(found) == [2, 1]
    assert found[1].seconds < 0.995 * found[0].seconds
    placed = found[1].options.flat.footprint(found[1].plan)
    assert found[1].seconds == pytest.approx(step_seconds(case.evaluator, placed))


def test_the_heaviest_table_comes_first_on_the_quietest_rank() -> None:
    case = split_case()
    best = split_in_two(case).plans[0]
    same, others = ways_of(case, best)[:AS_BEFORE], ways_of(case, best)[AS_BEFORE:]
    assert all(each is best for each in same)
    assert pieces(others)[0] == 1
    assert len(others) == MOST_WAYS
    changed = [np.flatnonzero(each.plan.option != best.plan.option).tolist() for each in others]
    assert changed[0] == [HEAVY]
    assert all(len(each) == 1 for each in changed)
    assert max(changed.count(each) for each in changed) <= WAYS_OF_A_TABLE
    whole = others[0].plan
    assert whole.target[HEAVY, 0] == 1, "which has fewer of the others"


def test_a_table_keeps_its_way_for_one_round_and_is_free_afterwards() -> None:
    case = split_case()
    whole = ways_of(case, split_in_two(case).plans[0])[AS_BEFORE]
    kept = [hot(whole, seed) for seed in range(8)]
    assert pieces(kept) == [1] * 8
    assert {int(each.plan.target[HEAVY, 0]) for each in kept} == {0, 1}, "it moves as a whole"
    assert len({each.plan.target.tobytes() for each in kept}) > 1
    assert all(each.first is None for each in kept)
    assert whole.options.arrays is kept[0].options.arrays


def test_a_table_keeps_to_the_ranks_that_are_open_to_it() -> None:
    for closed in (2, 3):
        case = split_case(4, (TableRule(tables="heavy", not_ranks=(closed,)),))
        best = split_in_two(case).plans[0]
        whole = [each for each in ways_of(case, best) if pieces([each]) == [1]]
        assert [int(each.plan.target[HEAVY, 0]) for each in whole] == [5 - closed], "the other one without a piece"


def hot(plan: AnnealedPlan, seed: int) -> AnnealedPlan:
    """The plan after a cooling so hot that each change of the heavy table would be taken."""
    return cool(plan, 0.05, SHARPNESS, 2_000, seed, lambda: True)
