"""The default planner: a team that takes turns, cheap members first, until the plan is as good as the bound allows.

What tables pick under the terms of the bound, placed longest first (_picks.py), is within a per cent of the best where
pieces are many and small. Where they are few, or memory is tight, other planners, annealing (_anneal.py) and local
search (_improve.py) go on from the best drafts; and, with OR-Tools, large neighbourhoods (_neighbourhoods.py).
"""

import time
from dataclasses import replace
from functools import cached_property
from itertools import cycle, islice

from recsmith.costs import Evaluator, step_seconds
from recsmith.costs.relaxation import Relaxation
from recsmith.errors import NoPlanFound
from recsmith.planners._anneal import Annealing, Ways
from recsmith.planners._assignment import Assignment
from recsmith.planners._base import Budget, OnImprove, Planner, Search, Solution
from recsmith.planners._exhaustive import Enumeration, ways_of
from recsmith.planners._faces import faces_of
from recsmith.planners._improve import SHARPNESS, LocalSearch
from recsmith.planners._layouts import all_shares, useful_shares
from recsmith.planners._ledger import Ledger
from recsmith.planners._neighbourhoods import WORK, Neighbourhoods, is_installed
from recsmith.planners._picks import choices, light_choices, placed
from recsmith.planners.greedy import GREEDIES, place_simplest, placed_in_order
from recsmith.planners.ldm import differenced
from recsmith.planners.neuroshard import NeuroShard
from recsmith.problems import Footprint, Problem

MOST_STARTS = 3  # drafts that local search starts from
MOST_HERD = 16  # drafts that annealing starts from
LEAST_STEPS, STEPS, MOST_STEPS = 100, 20, 2000  # of annealing: at least, for each table, and at most
AT_ONCE = 20  # steps of annealing between two looks at the budget
DIFFERENCED = 8  # picks that are also placed by differencing
QUICK = 4_000  # tables times devices up to which other planners take part
SHAKES = 6  # and one a table: rounds in a row that find nothing before the search ends
LEAST_EFFORT, SMALL_EFFORT, MOST_EFFORT, LARGE_EFFORT = 2_000_000, 60_000, 15_000_000, 200
# numbers worked on by local search: at least, for each piece and device of small and at most, and of large problems
LEAST_DRAFTS, MOST_DRAFTS, DRAFT_WORK = 14, 100, 40_000  # drafts: DRAFT_WORK over the number of tables
DRAWS, FEW_DRAWS = 200, 40  # of light options, where nothing else found room; with other widths of sequences
HANDFUL, MOST_WAYS, MOST_PARTIAL = 7, 2_000, 1_000  # tables, ways to lay them, and partial plans of an enumeration
CLOSE_ENOUGH = 1e-3  # relative gap below which only the quick changes are tried
GOOD_ENOUGH = 1e-5  # relative gap at which the search rests
LARGE, VAST = 1_000_000, 100_000_000  # tables times devices beyond which it rests earlier, unless a budget says more
AT_REST = {LARGE: CLOSE_ENOUGH, VAST: 3e-3}  # relative gaps
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
        team = _Team(search, Ledger(evaluator), Relaxation(evaluator, floor=evaluator.outlook.floor), seed)
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
    """The members of the search, one after the other; what they find is kept by `search`, the best starts here."""

    def __init__(self, search: Search, ledger: Ledger, relaxation: Relaxation, seed: int) -> None:
        self.search, self.ledger, self.relaxation, self.seed = search, ledger, relaxation, seed
        self.problem, self.evaluator = ledger.problem, ledger.evaluator
        self.bound = ledger.evaluator.outlook.bound.value_s or 0.0
        self.starts: list[tuple[float, int, Assignment]] = []
        self.finished: list[str] = []

    def work(self) -> None:
        """Drafts first, then other planners where they are quick, then local search from the best few."""
        others = (("ldm", self._ldm), ("neuroshard", self._neuroshard)) if self._quick else ()
        for name, member in (("picks", self._picks), ("cost_greedy", self._greedy), *others):
            if self.search.best is not None and (self.search.stop or self._rests):
                return
            if member():
                self.finished.append(name)
        self._find_any()
        for name, member in (("annealing", self._anneal), ("local_search", self._improve)):
            if self.starts and not self._rests and member():
                self.finished.append(name)
        if not self._rests and self._enumerate():
            self.finished.append("enumeration")
        elif self.search.best is not None and self._may_solve and not self._rests:
            if is_installed():
                self._solve(self.search.best)
            self.finished.append("neighbourhoods" if is_installed() else LEFT_OUT)
        turn = 1
        while self._goes_on and self.starts and not self._rests and self._anneal(turn):
            self._improve()
            turn += 1

    @property
    def _quick(self) -> bool:
        return len(self.problem.tables) * len(self.ledger.free) <= QUICK

    @property
    def _at_rest(self) -> float:
        """The relative gap at which nothing more is tried."""
        if self.search.budget != Budget():
            return GOOD_ENOUGH
        cells = len(self.problem.tables) * len(self.ledger.free)
        return max((gap for size, gap in AT_REST.items() if cells > size), default=GOOD_ENOUGH)

    @property
    def _large(self) -> bool:
        return len(self.problem.tables) * len(self.ledger.free) > LARGE

    @property
    def _may_solve(self) -> bool:
        return bool(self.evaluator.planes) and Neighbourhoods.suit(self.problem)

    @cached_property
    def ways(self) -> Ways:
        """The ways that annealing tries."""
        return Ways(self.ledger, self.relaxation)

    @property
    def _goes_on(self) -> bool:
        """Whether a budget is to be spent by annealing again and again: there is one, and no solver that spends it."""
        solves = self._may_solve and is_installed()
        return self.search.budget != Budget() and not solves and "annealing" in self.finished

    @property
    def _rests(self) -> bool:
        return self.search.stop or self.search.total_s <= self.bound * (1 + self._at_rest)

    def _keep(self, draft: Assignment | None) -> None:
        """Count a draft, and keep it as a start if it is among the best."""
        footprint = draft.footprint(self.problem) if draft else None
        self.search.try_(footprint)
        if draft is not None and footprint is not None:
            self.starts.append((step_seconds(self.evaluator, footprint), len(self.starts), draft))
            self.starts = sorted(self.starts, key=lambda start: start[:2])[:MOST_HERD]

    def _picks(self) -> bool:
        """What tables pick under the terms that the bound found promising, placed longest first."""
        most = max(LEAST_DRAFTS, min(MOST_DRAFTS, DRAFT_WORK // len(self.problem.tables)))
        for choice in islice(choices(self.relaxation, self.evaluator.outlook.leads), most):
            self._keep(placed(self.ledger, self.relaxation, choice))
            if self._rests:
                break
        return True

    def _greedy(self) -> bool:
        """As few pieces as possible; for large problems only where no pick found room."""
        if self._quick or not self.starts:
            self._keep(place_simplest(self.ledger, self.relaxation))
        return self._quick or bool(self.starts)

    def _ldm(self) -> bool:
        """The first picks placed by differencing."""
        for choice in islice(choices(self.relaxation, self.evaluator.outlook.leads), DIFFERENCED):
            self._keep(differenced(self.ledger, choice))
            if self._rests:
                break
        return True

    def _neuroshard(self) -> bool:
        """NeuroShard's beam over columns."""
        self._borrow(NeuroShard())
        return True

    def _find_any(self) -> None:
        """Where nothing found room, what greedy planners find that balance something else than seconds; then chance."""
        for planner in GREEDIES:
            if self.search.best is None and planner.name not in self.finished:
                self._borrow(planner)
                self.finished.append(planner.name)
        if self.search.best is None and self._quick:
            self._light_options()
            self.finished.append("light_options")

    def _light_options(self) -> None:
        """Options drawn by what they weigh; then with other widths of column-wise sequences than the problem's."""
        self._draw(DRAWS)
        for barred in self.problem.other_openings():
            if self.search.best is None and not self.search.stop:
                self.relaxation = self.relaxation.reopened(barred)
                self._draw(FEW_DRAWS)

    def _draw(self, most: int) -> None:
        """Light options by chance, until a plan is found; search goes on among the options that were open to it."""
        for choice in islice(light_choices(self.relaxation, self.seed), most):
            draft = placed_in_order(self.ledger, choice.option, self.relaxation.piece_bytes)
            self._keep(draft if draft.complete else None)
            if self.search.best is not None or self.search.stop:
                return

    def _borrow(self, planner: Planner) -> None:
        """Count another planner's plan; a start where it is laid by the sample's options."""
        try:
            found = planner.plan(self.problem, self.evaluator, seed=self.seed)
        except NoPlanFound:
            return
        draft = Assignment.from_footprint(self.problem, found.footprint)
        if draft is None:
            self.search.try_(found.footprint)
        else:
            self._keep(draft)

    def _anneal(self, turn: int = 0) -> bool:
        """Many plans at once, cooled down together; not where a step of that would take long, or little is to gain.

        Every turn cools half as fast as the one before.
        """
        if not Ways.suit(self.problem) or self.search.total_s <= self.bound * (1 + CLOSE_ENOUGH):
            return False
        ways = self.ways
        herd = [draft for _, _, draft in self.starts if ways.usable and ways.reaches(draft)]
        if not herd:
            return False
        annealing = Annealing(self.ledger, ways, herd, self.seed + turn)
        steps = min(MOST_STEPS, LEAST_STEPS + STEPS * len(self.problem.tables)) * 2**turn
        for first in range(0, steps, AT_ONCE):
            annealing.cool(first, min(first + AT_ONCE, steps), steps)
            self.search.try_(annealing.assignment().footprint(self.problem))
            if self._rests:
                return True
        self._keep(annealing.assignment())
        return True

    def _improve(self) -> bool:
        """Local search from the best starts, the effort shared between them; with a budget, until that is spent."""
        solves = self._may_solve and is_installed()
        limited = solves or self._goes_on or self.search.budget == Budget()
        most = SHAKES + len(self.problem.tables)
        starts = self.starts[: MOST_STARTS if limited and "annealing" not in self.finished else 1]
        before = self.ledger.effort
        for number, (_, _, draft) in enumerate(starts):
            local = LocalSearch(self.ledger, self.relaxation, draft, self.seed)
            cells = len(draft.piece) * len(self.ledger.free)
            effort = min(MOST_EFFORT, LEAST_EFFORT + SMALL_EFFORT * cells) + min(MOST_EFFORT, LARGE_EFFORT * cells)
            limit = before + effort * (number + 1) // len(starts) if limited else None
            for sharpness in SHARPNESS if limited else cycle(SHARPNESS):
                local.sharpness = sharpness
                if not self._descend(local, most, limit):
                    break
            if self._rests:
                break
        return True

    def _enumerate(self) -> bool:
        """Every plan of a handful of tables that may be better, as far as that is quickly done."""
        if len(self.problem.tables) > HANDFUL:
            return False
        shares = all_shares(self.evaluator)
        faces = faces_of(self.evaluator, shares.terms)
        shares = shares if faces is None else useful_shares(self.evaluator, shares)
        ways = ways_of(self.problem, shares, MOST_WAYS)
        if ways is None:
            return False
        tree = Enumeration(self.evaluator, shares, ways, self.search.total_s, monotone=faces is not None)
        tree.run(MOST_PARTIAL, self._hear)
        return not tree.open

    def _solve(self, best: Footprint) -> None:
        """A few tables of the best plan laid anew at a time, by a solver; with a budget, until that is spent."""
        search, limit = self.search, self.search.budget.time_limit_s
        near = Neighbourhoods(self.evaluator, best, search.total_s, self.seed)
        while not (near.over or self._rests or (search.budget == Budget() and near.spent > WORK)):
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
        while patience > 0 and not self._rests:
            shake = local.total > self.bound * (1 + CLOSE_ENOUGH)
            better = local.round(shake=shake)
            patience = most if better else patience - 1 if shake else 0
            gains += better and local.total < self.search.total_s
            if gains >= (GAINS if self._large else 1) or (gains and not patience):
                self.search.try_(local.assignment().footprint(self.problem))
                gains = 0
            elif limit is None:
                self.search.try_(None)  # a round counts against a budget whether or not it finds something
            if limit is not None and self.ledger.effort > limit:
                break
        if gains:
            self.search.try_(local.assignment().footprint(self.problem))
        spent = limit is not None and self.ledger.effort > limit
        return not spent and not self._rests and local.total > self.bound * (1 + CLOSE_ENOUGH)
