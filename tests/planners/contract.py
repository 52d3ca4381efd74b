"""What holds for every planner: subclass PlannerContract, give it a fixture `planner` (a name), and inherit."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from itertools import count, islice
from typing import Any

from support.cases import BOTH, LOOSE, TIGHT, Case, check_plan, impossible, medium_case, seeded, small_case

from recsmith.errors import Infeasible, NoPlanFound
from recsmith.files import dump_json, parse
from recsmith.planning import PLANNERS, Result
from recsmith.planning.simulate import simulate
from recsmith.plans import Placement, Plan, plan_from_raw, plan_to_raw
from recsmith.workloads import Table

MEDIUM, SMALL = 3, 8  # contract cases that no count of bytes rules out; one that it does rule out is added
PROVERS, PROVABLE = {"exact"}, 16  # planners that prove get cases of few tables times devices
TRAINED = {"surco": "surco?steps=4", "rnn": "rnn?episodes=32"}  # learn for every plan: the laws hold for few steps too
NEED_SOLVER = {"exact", "surco"}
ALIKE = {"dim_greedy", "size_greedy", "lookup_greedy", "size_lookup_greedy"}  # cost_greedy with another score
FEW_GROUPS = 10  # every law prices every case anew, and bounds of convex models branch over fusion groups


@cache
def contract_cases() -> tuple[Case, ...]:
    """Cases of every kind, under every cost model in turn: some with memory to spare, most with hardly any."""
    ruled_out = next(case for case in map(_small, count()) if impossible(case))
    return (*_light(_medium, MEDIUM), *_light(_small, SMALL), ruled_out)


def cases_of(planner: str) -> tuple[Case, ...]:
    """The cases of a planner."""
    few = [case for case in contract_cases() if len(case.workload.tables) * case.cluster.world_size <= PROVABLE]
    return tuple(few) if planner in PROVERS else contract_cases()[:: 3 if planner in ALIKE else 1]


def planners_here() -> list[str]:
    """The planners that run with what is installed."""
    here = [planner for planner in PLANNERS if planner not in NEED_SOLVER or find_spec("ortools")]
    return [TRAINED.get(planner, planner) for planner in here]


def _light(make: Callable[[int], Case], number: int) -> Iterator[Case]:
    every = (make(seed) for seed in count())
    light = (case for case in every if case.evaluator.additive or case.evaluator.groups <= FEW_GROUPS)
    return islice((case for case in light if not impossible(case)), number)


def _medium(seed: int) -> Case:
    return medium_case(seeded(seed), LOOSE if seed % 2 else TIGHT, (BOTH[seed // 2 % len(BOTH)],))


def _small(seed: int) -> Case:
    return small_case(seeded(seed), models=(BOTH[seed % len(BOTH)],))


def outcome(case: Case, planner: str, **words: Any) -> Result | str:
    """A result, or the name of the error that says that there is none."""
    try:
        return case.plan(planner, **words)
    except (Infeasible, NoPlanFound) as error:
        return type(error).__name__


def digest(case: Case, planner: str, **words: Any) -> str:
    """The digest of the plan, or the name of the error."""
    return digest_of(outcome(case, planner, **words))


def digest_of(found: Result | str) -> str:
    """The digest of the plan, or the name of the error."""
    return found if isinstance(found, str) else found.plan.digest


@cache
def outcomes(planner: str) -> tuple[tuple[Case, Result | str, tuple[float, ...]], ...]:
    """The cases of a planner, what it finds, and the seconds of the step that on_improve heard; found once."""
    made: list[tuple[Case, Result | str, tuple[float, ...]]] = []
    for case in cases_of(planner):
        heard: list[float] = []
        made.append((case, outcome(case, planner, on_improve=heard.append), tuple(heard)))
    return tuple(made)


@cache
def solved(planner: str) -> tuple[tuple[Case, Result], ...]:
    """The cases that a planner solves, with its results."""
    pairs = tuple((case, result) for case, result, _ in outcomes(planner) if isinstance(result, Result))
    assert len(pairs) > len(outcomes(planner)) / 2, "the contract needs more cases that have a plan"
    return pairs


class PlannerContract:
    """The laws. Each holds for every case; where two cost about as much as one, they share the cases in turn."""

    def test_plans_are_complete_legal_and_within_memory(self, planner: str) -> None:
        for case, result in solved(planner):
            check_plan(case, result.plan)
            assert result.plan.planner == planner

    def test_one_seed_gives_one_plan(self, planner: str) -> None:
        for case, found, _ in outcomes(planner):
            assert digest(case, planner) == digest_of(found)

    def test_order_of_tables_does_not_matter(self, planner: str) -> None:
        for number, (case, found, _) in enumerate(outcomes(planner)[::2]):
            left, pick = list(case.workload.tables), seeded(number)
            shuffled = [left.pop(pick(range(len(left)))) for _ in case.workload.tables]
            other = replace(case, workload=replace(case.workload, tables=tuple(shuffled)))
            assert digest(other, planner) == digest_of(found)

    def test_names_of_tables_do_not_matter(self, planner: str) -> None:
        for case, found, _ in outcomes(planner)[1::2]:
            again = outcome(renamed(case), planner)
            if isinstance(found, Result) and isinstance(again, Result):
                assert nameless(found.plan) == nameless(again.plan)
                assert found.plan.cost == again.plan.cost
            else:
                assert found == again

    def test_a_start_is_never_made_worse(self, planner: str) -> None:
        own, tried = cases_of(planner), 0
        for name, turn in (("auto", 0), ("random", 1)):
            for case, start in solved(name)[turn::2]:
                if case in own:
                    tried += 1
                    result = case.plan(planner, start=start.plan)
                    assert result.plan.cost.total_s <= start.plan.cost.total_s
                    check_plan(case, result.plan)
        assert tried

    def test_on_improve_hears_falling_totals(self, planner: str) -> None:
        for _, result, heard in outcomes(planner):
            assert list(heard) == sorted(set(heard), reverse=True)
            assert (heard or (None,))[-1] == (result.plan.cost.total_s if isinstance(result, Result) else None)

    def test_on_improve_cancels_by_returning_true(self, planner: str) -> None:
        for case, full in solved(planner)[::3]:
            heard: list[float] = []
            result = case.plan(planner, on_improve=lambda total, heard=heard: heard.append(total) or True)
            assert heard == [result.plan.cost.total_s]
            assert result.truncated or result.iterations == full.iterations
            check_plan(case, result.plan)

    def test_a_budget_of_one_iteration_gives_a_plan(self, planner: str) -> None:
        for number, (case, full) in enumerate(solved(planner)):
            result = case.plan(planner, iterations=1)
            check_plan(case, result.plan)
            assert not result.truncated  # iterations are reproducible; only time cuts a search short
            assert result.iterations <= full.iterations
            if number % 4 == 0:
                assert digest(case, planner, iterations=1) == result.plan.digest

    def test_no_time_gives_a_plan_marked_as_cut_short(self, planner: str) -> None:
        long = [(case, full) for case, full in solved(planner) if full.iterations > 1]
        cut = 0
        for case, full in long[::2] or solved(planner)[:2]:
            result = case.plan(planner, time_limit_s=1e-9)
            check_plan(case, result.plan)
            assert result.truncated or result.iterations == full.iterations
            cut += result.truncated
        assert cut or not long

    def test_a_plan_from_a_file_has_the_same_cost_bound_and_gap(self, planner: str) -> None:
        for _, result in solved(planner)[::2]:
            text = dump_json(plan_to_raw(result.plan))
            loaded = plan_from_raw(parse(text, "plan"), "plan")
            assert loaded == result.plan
            assert simulate(loaded) == result.plan


def renamed(case: Case) -> Case:
    """The same tables under names that sort the other way round; rules follow their tables."""
    names = {t.name: f"t{len(case.workload.tables) - i:03}" for i, t in enumerate(case.workload.tables)}
    tables = tuple(replace(t, name=names[t.name]) for t in case.workload.tables)
    rules = tuple(replace(rule, tables=names.get(rule.tables, rule.tables)) for rule in case.constraints.rules)
    return replace(
        case, workload=replace(case.workload, tables=tables), constraints=replace(case.constraints, rules=rules)
    )


def nameless(plan: Plan) -> Counter[tuple[Table, Placement]]:
    """What stands where, without names."""
    tables = {t.name: replace(t, name="x") for t in plan.workload.tables}
    return Counter((tables[p.table], replace(p, table="x")) for p in plan.placements)
