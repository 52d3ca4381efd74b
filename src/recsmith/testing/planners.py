"""The contract of planners: for your own (set `planner`), and for RecSmith's."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from random import Random
from typing import Any

from recsmith.clusters import Cluster
from recsmith.costs import CostModel
from recsmith.errors import Infeasible, NoPlanFound
from recsmith.files import dump_json, parse
from recsmith.planners import Planner
from recsmith.planning import PLANNERS, Result, plan
from recsmith.planning.simulate import simulate
from recsmith.plans import Plan, check_placements, plan_from_raw, plan_to_raw
from recsmith.problems import Constraints, Problem, Space, build_problem, fits, footprint_of, in_space
from recsmith.testing.problems import sample_problems
from recsmith.workloads import Table, Workload


@dataclass(frozen=True, eq=False)
class PlannerCase:
    """A problem for planners, and the cost model that prices plans. known: results so far, by id of the planner."""

    workload: Workload
    cluster: Cluster
    space: Space
    constraints: Constraints
    cost_model: str | CostModel = "analytic"
    known: dict[int, Any] = field(default_factory=dict[int, Any])

    @classmethod
    def of(cls, problem: Problem, cost_model: str | CostModel = "analytic") -> "PlannerCase":
        """The case of a problem."""
        return cls(problem.workload, problem.cluster, problem.space, problem.constraints, cost_model)

    @cached_property
    def problem(self) -> Problem:
        """The problem that is planned."""
        return build_problem(self.workload, self.cluster, self.space, self.constraints)

    def plan(self, planner: str | Planner, **options: Any) -> Result | str:
        """A result, or the name of the error that says that there is none."""
        try:
            return plan(
                self.workload, self.cluster, planner=planner, cost_model=self.cost_model, space=self.space,
                constraints=self.constraints, **options,
            )  # fmt: skip
        except (Infeasible, NoPlanFound) as error:
            return type(error).__name__

    def outcome(self, planner: Planner) -> tuple[Result | str, list[float]]:
        """A planner's result and the totals passed to `on_improve`; computed once per planner."""
        if id(planner) not in self.known:
            heard: list[float] = []
            found = self.plan(planner, on_improve=heard.append)
            self.known[id(planner)] = planner, found, heard  # kept, so that its id is not reused
        return self.known[id(planner)][1:]

    def ordered(self, tables: Sequence[Table]) -> "PlannerCase":
        """The same case with other tables, or with the tables in another order."""
        return replace(self, workload=replace(self.workload, tables=tuple(tables)), known={})

    def renamed(self) -> "PlannerCase":
        """The same tables under names that sort in reverse; rules for single tables are renamed as well."""
        tables = self.workload.tables
        names = {table.name: f"t{len(tables) - i:03}" for i, table in enumerate(tables)}
        rules = tuple(replace(rule, tables=names.get(rule.tables, rule.tables)) for rule in self.constraints.rules)
        other = self.ordered([replace(each, name=names[each.name]) for each in tables])
        return replace(other, constraints=replace(self.constraints, rules=rules))


@cache
def sample_cases() -> tuple[PlannerCase, ...]:
    """The cases of the sample problems."""
    return tuple(map(PlannerCase.of, sample_problems()))


class PlannerContract:
    """The contract of planners. Subclass it as a test class and set `planner`; `problems` may be problems of your own.

    Every planner places every table legally and within memory, respects its seed and its budget, never makes a start
    worse, and reports to `on_improve` what it finds. Problems are priced by cost model analytic, unless `cases` say
    otherwise. Two rules that cost about as much as one share the cases alternately.
    """

    planner: Planner
    problems: Sequence[Problem] = ()
    cases: Sequence[PlannerCase] = ()

    def check(self, case: PlannerCase, made: Plan) -> None:
        """Check that a plan is complete, legal, within memory, and in the search space."""
        problem, name = case.problem, self.planner.name
        check_placements(made.placements, problem.workload, problem.cluster)
        assert len(made.placements) == len(problem.tables), f"{name} left tables out"
        assert in_space(problem, made.placements), f"{name} left the space {problem.space.describe()}"
        footprint = footprint_of(problem, made.placements)
        assert fits(problem, footprint), f"{name} needs more memory than there is"
        assert problem.legality.holds(footprint), f"{name} breaks a constraint"

    def test_plans_are_complete_legal_and_within_memory(self) -> None:
        """Every table is placed once, as TorchRec can run it, in the space, and devices have room.

        The plan's file contains the planner's name as on the command line.
        """
        for case, result in self._solved():
            self.check(case, result.plan)
            assert result.plan.planner == self.planner.name

    def test_a_plan_from_a_file_has_the_same_cost_bound_and_gap(self) -> None:
        """A plan that is written, read and priced again is the same plan."""
        for case, result in self._solved()[::2]:
            loaded = plan_from_raw(parse(dump_json(plan_to_raw(result.plan)), "plan"), "plan")
            assert loaded == result.plan
            assert simulate(loaded, case.cost_model) == result.plan

    def test_one_seed_gives_one_plan(self) -> None:
        """The same seed gives the same plan, so that a plan can be found again."""
        for case, found, _ in self._outcomes():
            same = _digest(case.plan(self.planner)) == _digest(found)
            assert same, f"{self.planner.name} finds different plans for one seed"

    def test_order_of_tables_does_not_matter(self) -> None:
        """Tables in another order give the same plan."""
        for number, (case, found, _) in enumerate(self._outcomes()[::2]):
            tables = case.workload.tables
            other = case.ordered(Random(number).sample(tables, len(tables)))
            same = _digest(other.plan(self.planner)) == _digest(found)
            assert same, f"{self.planner.name} depends on the order of the tables"

    def test_names_of_tables_do_not_matter(self) -> None:
        """Tables under names that sort in reverse get the same placements."""
        for case, found, _ in self._outcomes()[1::2]:
            again = case.renamed().plan(self.planner)
            if isinstance(found, Result) and isinstance(again, Result):
                assert _nameless(found.plan) == _nameless(again.plan), f"{self.planner.name} looks at names"
                assert found.plan.cost == again.plan.cost
            else:
                assert found == again

    def test_a_start_is_never_made_worse(self) -> None:
        """Given a plan to start from, the result costs no more."""
        tried = 0
        for number, case in enumerate(self._cases()):
            start, _ = case.outcome(PLANNERS[("auto", "random")[number % 2]])
            if isinstance(start, Result):
                tried += 1
                result = self._result(case, start=start.plan)
                assert result.plan.cost.total_s <= start.plan.cost.total_s, f"{self.planner.name} made its start worse"
                self.check(case, result.plan)
        assert tried, "no case has a plan to start from"

    def test_a_budget_of_one_iteration_gives_a_plan(self) -> None:
        """One iteration is enough for a plan, is not exceeded, and gives the same plan again."""
        for number, (case, full) in enumerate(self._solved()):
            result = self._result(case, iterations=1)
            self.check(case, result.plan)
            assert result.iterations <= full.iterations, f"{self.planner.name} takes more than its budget"
            assert not result.truncated, "iterations are reproducible; only time cuts a search short"
            if number % 4 == 0:
                assert _digest(case.plan(self.planner, iterations=1)) == result.plan.digest

    def test_no_time_gives_a_plan_marked_as_cut_short(self) -> None:
        """Without time, a first plan is still found; a search that was not finished sets `truncated`."""
        long = [(case, full) for case, full in self._solved() if full.iterations > 1]
        cut = 0
        for case, full in long[::2] or self._solved()[:2]:
            result = self._result(case, time_limit_s=1e-9)
            self.check(case, result.plan)
            assert result.truncated or result.iterations == full.iterations, f"{self.planner.name} ignores a time limit"
            cut += result.truncated
        assert cut or not long

    def test_on_improve_hears_falling_totals(self) -> None:
        """`on_improve` is called with the total of each better plan; the last one is returned."""
        for _, found, heard in self._outcomes():
            assert list(heard) == sorted(set(heard), reverse=True), "totals that on_improve hears must fall"
            last = [found.plan.cost.total_s] if isinstance(found, Result) else []
            assert list(heard[-1:]) == last, "on_improve must hear of the plan that is returned"

    def test_on_improve_cancels_by_returning_true(self) -> None:
        """If `on_improve` returns True, the search ends."""
        for case, full in self._solved()[::3]:
            heard: list[float] = []
            result = self._result(case, on_improve=lambda total, heard=heard: heard.append(total) or True)
            assert heard == [result.plan.cost.total_s], "the search must end once on_improve has returned True"
            assert result.truncated or result.iterations == full.iterations
            self.check(case, result.plan)

    # --- what the laws ask ------------------------------------------------------------------------------------------

    def _cases(self) -> Sequence[PlannerCase]:
        return self.cases or tuple(map(PlannerCase.of, self.problems)) or sample_cases()

    def _result(self, case: PlannerCase, **options: Any) -> Result:
        found = case.plan(self.planner, **options)
        assert isinstance(found, Result), f"{self.planner.name} found no plan: {found}"
        return found

    def _outcomes(self) -> list[tuple[PlannerCase, Result | str, list[float]]]:
        """The cases, the planner's results, and the totals passed to `on_improve`."""
        return [(case, *case.outcome(self.planner)) for case in self._cases()]

    def _solved(self) -> list[tuple[PlannerCase, Result]]:
        """The cases that the planner solves, with its results."""
        outcomes = self._outcomes()
        found = [(case, each) for case, each, _ in outcomes if isinstance(each, Result)]
        assert len(found) > len(outcomes) / 2, "the contract needs more cases that have a plan"
        return found


def _digest(found: Result | str) -> str:
    """The digest of the plan, or the name of the error."""
    return found if isinstance(found, str) else found.plan.digest


def _nameless(made: Plan) -> list[str]:
    """Every table and its placement, without names."""
    tables = {table.name: replace(table, name="x") for table in made.workload.tables}
    return sorted(repr((tables[each.table], replace(each, table="x"))) for each in made.placements)
