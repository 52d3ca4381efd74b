"""What holds for every planner."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from recsmith.costs import cost_model, step_seconds
from recsmith.planners import Budget, Planner, Solution
from recsmith.planning import find_planner, plan
from recsmith.plans import Placement, check_placements, plan_from_raw, plan_to_raw
from recsmith.problems import Problem, build_problem, fits, in_space, placements_of
from recsmith.testing.problems import sample_problems


class PlannerContract:
    """The laws of planners. Subclass it as a test class and set `planner`; `problems` may be problems of your own.

    Every planner places every table legally and within memory, keeps its seed and its budget, never makes a start
    worse, and tells `on_improve` of what it finds. Problems are searched under cost model analytic.
    """

    planner: Planner
    problems: Sequence[Problem] = ()

    def _problems(self) -> Sequence[Problem]:
        return self.problems or sample_problems()

    def _find(self, problem: Problem, **words: Any) -> Solution:
        """What the planner finds, once it is checked to be a plan."""
        words = {"seed": 0, "budget": Budget(), "start": None, "on_improve": None} | words
        found = self.planner.plan(problem, cost_model().compile(problem), **words)
        placements = placements_of(problem, found.footprint)
        check_placements(placements, problem.workload, problem.cluster)
        assert in_space(problem, placements), f"{self.planner.name} left the space {problem.space.describe()}"
        assert fits(problem, found.footprint), f"{self.planner.name} needs more memory than there is"
        return found

    def _placements(self, problem: Problem, **words: Any) -> tuple[Placement, ...]:
        return placements_of(problem, self._find(problem, **words).footprint)

    def test_plans_are_complete_legal_and_within_memory(self) -> None:
        """Every table is placed once, as TorchRec can run it, in the space, and devices have room."""
        for problem in self._problems():
            assert len(self._placements(problem)) == len(problem.tables)

    def test_recsmith_plans_with_it(self) -> None:
        """`recsmith.plan` takes it; its name, which is the word of the command line, stands in the plan's file."""
        problem = self._problems()[-1]
        made = plan(problem.workload, problem.cluster, planner=self.planner, space=problem.space).plan
        assert made.planner == self.planner.name
        assert plan_from_raw(plan_to_raw(made), "plan") == made

    def test_one_seed_gives_one_plan(self) -> None:
        """The same seed gives the same plan, so that a plan can be found again."""
        for problem in self._problems():
            first, second = (self._placements(problem, seed=7) for _ in range(2))
            assert first == second, f"{self.planner.name} finds different plans for one seed"

    def test_order_of_tables_does_not_matter(self) -> None:
        """Tables in another order give the same plan."""
        for problem in self._problems():
            workload = replace(problem.workload, tables=problem.workload.tables[::-1])
            turned = build_problem(workload, problem.cluster, problem.space, problem.constraints)
            same = self._placements(turned) == self._placements(problem)
            assert same, f"{self.planner.name} depends on the order of the tables"

    def test_a_start_is_never_made_worse(self) -> None:
        """Given a placement to start from, the result costs no more."""
        for problem in self._problems():
            evaluator = cost_model().compile(problem)
            start = find_planner("auto").plan(problem, evaluator, budget=Budget(iterations=1)).footprint
            seconds = step_seconds(evaluator, self._find(problem, start=start).footprint)
            assert seconds <= step_seconds(evaluator, start), f"{self.planner.name} made its start worse"

    def test_a_budget_of_one_iteration_gives_a_plan(self) -> None:
        """One iteration is enough for a plan, and is all that is done."""
        for problem in self._problems():
            found = self._find(problem, budget=Budget(iterations=1))
            assert found.iterations <= self._find(problem).iterations, f"{self.planner.name} takes more than its budget"
            assert not found.truncated, "iterations are reproducible; only time cuts a search short"

    def test_no_time_gives_a_plan_marked_as_cut_short(self) -> None:
        """Without time, a first plan is still found; a search that had more to do says `truncated`."""
        for problem in self._problems():
            full, found = self._find(problem), self._find(problem, budget=Budget(time_limit_s=1e-9))
            assert found.truncated or found.iterations == full.iterations, f"{self.planner.name} ignores its time limit"

    def test_on_improve_hears_falling_totals_and_may_cancel(self) -> None:
        """`on_improve` hears of each better plan, the last of which is returned; True ends the search."""
        for problem in self._problems():
            heard: list[float] = []
            found = self._find(problem, on_improve=heard.append)
            assert heard == sorted(set(heard), reverse=True), "totals that on_improve hears must fall"
            assert heard[-1:] == [found.total_s], "on_improve must hear of the plan that is returned"
            first: list[float] = []
            self._find(problem, on_improve=lambda total, first=first: first.append(total) or True)
            assert len(first) == 1, "the search must end once on_improve has returned True"
