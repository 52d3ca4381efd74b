"""The default planner: a team that takes turns, cheap members first, until the plan is as good as the bound allows.

What tables pick under the terms of the bound, placed longest first (_picks.py), is within a per cent of the best where
pieces are many and small. Where they are few, or memory is tight, other planners (_drafts.py), annealing (_anneal.py)
and local search (_improve.py) go on from the best drafts; and, with OR-Tools, large neighbourhoods
(_neighbourhoods.py).
"""

import time
from dataclasses import replace
from functools import cached_property
from itertools import cycle

from recsmith.bounds import lower_bound
from recsmith.bounds.relaxation import Relaxation
from recsmith.costs import Evaluator
from recsmith.errors import NoPlanFound
from recsmith.planners.auto.drafts import Drafts
from recsmith.planners.auto.neighbourhoods import WORK, Neighbourhoods
from recsmith.planners.auto.stopping import StoppingRule
from recsmith.planners.protocol import Budget, OnImprove, Search, Solution
from recsmith.planners.search.annealing import Annealing, AnnealingOptions
from recsmith.planners.search.assignment import Assignment
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.local_search import SHARPNESS, LocalSearch
from recsmith.planners.solver import is_installed
from recsmith.planners.solver.arrangements import arrangements_of
from recsmith.planners.solver.dominance import useful_shares
from recsmith.planners.solver.enumeration import Enumeration
from recsmith.planners.solver.layouts import all_shares
from recsmith.planners.solver.linear_pieces import linear_pieces_of
from recsmith.problems import Footprint, Problem

MOST_STARTS = 3  # drafts that local search starts from
LEAST_STEPS, STEPS, MOST_STEPS = 100, 20, 2000  # of annealing: at least, for each table, and at most
AT_ONCE = 20  # steps of annealing between two looks at the budget
SHAKES = 6  # and one a table: rounds in a row that find nothing before the search ends
LEAST_EFFORT, SMALL_EFFORT, MOST_EFFORT, LARGE_EFFORT = 2_000_000, 60_000, 15_000_000, 200
# numbers worked on by local search: at least, for each piece and device of small and at most, and of large problems
HANDFUL, MOST_WAYS, MOST_PARTIAL = 7, 2_000, 1_000  # tables, ways to lay them, and partial plans of an enumeration
GAINS = 20  # of a large problem's local search between two looks at the whole plan, which take as long as some rounds
LEFT_OUT = "neighbourhoods: left out, needs recsmith[solve]"


class Auto:
    """Near-optimal plans in milliseconds; a memory-minded variant of each try where memory is tight."""

    name = "auto"

    def plan(
        self,
        problem: Problem,
        evaluator: Evaluator,
        *,
        seed: int = 0,
        budget: Budget | None = None,
        start: Footprint | None = None,
        on_improve: OnImprove | None = None,
    ) -> Solution:
        """The best of some tens of placements; NoPlanFound where none is complete."""
        search = Search(evaluator, budget, start, on_improve)
        team = _Team(search, DeviceState(evaluator), seed)
        with search.interruptible():
            team.work()
        solution = search.solution()
        if solution is None:
            raise NoPlanFound(
                "no plan was found, and none was proved impossible: memory is tight; "
                "allow more types or widths any, reserve less, or add devices"
            )
        return replace(solution, members=tuple(team.finished))


class _Team:
    """The members of the search, one after the other; what they find is kept by `search`, the best drafts here."""

    def __init__(self, search: Search, ledger: DeviceState, seed: int) -> None:
        self.search, self.ledger, self.seed = search, ledger, seed
        self.problem, self.evaluator = ledger.problem, ledger.evaluator
        outlook = lower_bound(self.evaluator)
        self.rest = StoppingRule(search, outlook.bound.value_s or 0.0, len(self.problem.tables) * len(ledger.free))
        relaxation = Relaxation(self.evaluator, linear=outlook.linear)
        self.drafts = Drafts(search, ledger, relaxation, self.rest, seed)
        self.finished = self.drafts.finished

    def work(self) -> None:
        """Drafts first, then local search from the best few, then what is left of a budget."""
        if not self.drafts.work():
            return
        for name, member in (("annealing", self._anneal), ("local_search", self._improve)):
            if self.drafts.starts and not self.rest.now and member():
                self.finished.append(name)
        if not self.rest.now and self._enumerate():
            self.finished.append("enumeration")
        elif self.search.best is not None and self._may_solve and not self.rest.now:
            if is_installed():
                self._solve(self.search.best)
            self.finished.append("neighbourhoods" if is_installed() else LEFT_OUT)
        turn = 1
        while self._goes_on and self.drafts.starts and not self.rest.now and self._anneal(turn):
            self._improve()
            turn += 1

    @property
    def _may_solve(self) -> bool:
        return bool(self.evaluator.planes) and Neighbourhoods.suit(self.problem)

    @property
    def _goes_on(self) -> bool:
        """Whether a budget is to be spent by annealing again and again: there is one, and no solver that spends it."""
        solves = self._may_solve and is_installed()
        return self.rest.limited and not solves and "annealing" in self.finished

    @cached_property
    def ways(self) -> AnnealingOptions:
        """The ways that annealing tries."""
        return AnnealingOptions(self.ledger, self.drafts.relaxation)

    def _anneal(self, turn: int = 0) -> bool:
        """Many plans at once, cooled down together; not where a step of that would take long, or little is to gain.

        Every turn cools half as fast as the one before.
        """
        if not AnnealingOptions.suit(self.problem) or self.rest.close(self.search.total_s):
            return False
        ways = self.ways
        population = [draft for _, _, draft in self.drafts.starts if ways.usable and ways.reaches(draft)]
        if not population:
            return False
        annealing = Annealing(self.ledger, ways, population, self.seed + turn)
        steps = min(MOST_STEPS, LEAST_STEPS + STEPS * len(self.problem.tables)) * 2**turn
        for first in range(0, steps, AT_ONCE):
            annealing.cool(first, min(first + AT_ONCE, steps), steps)
            self.search.try_(annealing.assignment().footprint(self.problem))
            if self.rest.now:
                return True
        self.drafts.keep(annealing.assignment())
        return True

    def _improve(self) -> bool:
        """Local search from the best starts, the effort shared between them; with a budget, until that is spent."""
        solves = self._may_solve and is_installed()
        limited = solves or self._goes_on or not self.rest.limited
        most = SHAKES + len(self.problem.tables)
        starts = self.drafts.starts[: MOST_STARTS if limited and "annealing" not in self.finished else 1]
        before = self.ledger.effort
        for number, (_, _, draft) in enumerate(starts):
            local = LocalSearch(self.ledger, self.drafts.relaxation, draft, self.seed)
            limit = before + self._effort(draft) * (number + 1) // len(starts) if limited else None
            for sharpness in SHARPNESS if limited else cycle(SHARPNESS):
                local.sharpness = sharpness
                if not self._descend(local, most, limit):
                    break
            if self.rest.now:
                break
        return True

    def _effort(self, draft: Assignment) -> int:
        """Numbers that local search may work on."""
        cells = len(draft.piece) * len(self.ledger.free)
        return min(MOST_EFFORT, LEAST_EFFORT + SMALL_EFFORT * cells) + min(MOST_EFFORT, LARGE_EFFORT * cells)

    def _enumerate(self) -> bool:
        """Every plan of a handful of tables that may be better, as far as that is quickly done."""
        if len(self.problem.tables) > HANDFUL:
            return False
        shares = all_shares(self.evaluator)
        faces = linear_pieces_of(self.evaluator, shares.terms)
        shares = shares if faces is None else useful_shares(self.evaluator, shares)
        ways = arrangements_of(self.problem, shares, MOST_WAYS)
        if ways is None:
            return False
        tree = Enumeration(self.evaluator, shares, ways, self.search.total_s, monotone=faces is not None)
        tree.run(MOST_PARTIAL, self._hear)
        return not tree.open

    def _solve(self, best: Footprint) -> None:
        """A few tables of the best plan laid anew at a time, by a solver; with a budget, until that is spent."""
        search, limit = self.search, self.search.budget.time_limit_s
        near = Neighbourhoods(self.evaluator, best, search.total_s, self.seed)
        while not (near.over or self.rest.now or (not self.rest.limited and near.spent > WORK)):
            found = near.next(None if limit is None else search.started + limit - time.monotonic())
            before = search.total_s
            search.try_(found)
            if found is not None and search.total_s < before:
                near.take(found, search.total_s)

    def _hear(self, footprint: Footprint) -> bool:
        self.search.try_(footprint)
        return self.search.stop

    def _descend(self, local: LocalSearch, most: int, limit: int | None) -> bool:
        """Rounds until `most` in a row find nothing; False where the search is to end."""
        patience, gains = most, 0
        while patience > 0 and not self.rest.now:
            shake = not self.rest.close(local.total)
            better = local.round(shake=shake)
            patience = most if better else patience - 1 if shake else 0
            gains += better and local.total < self.search.total_s
            if gains >= (GAINS if self.rest.large else 1) or (gains and not patience):
                self.search.try_(local.assignment().footprint(self.problem))
                gains = 0
            elif limit is None:
                self.search.try_(None)  # a round counts against a budget whether or not it finds something
            if limit is not None and self.ledger.effort > limit:
                break
        if gains:
            self.search.try_(local.assignment().footprint(self.problem))
        spent = limit is not None and self.ledger.effort > limit
        return not spent and not self.rest.now and not self.rest.close(local.total)
