"""The default planner: a team that takes turns, cheap members first, until the plan is as good as the bound allows.

The options that tables select under the limits of the bound, placed longest first (search/candidates.py), are within a
per cent of the best if pieces are many and small. If pieces are few or memory is tight, other planners draft plans as
well (auto/drafts.py), and annealing continues from the best drafts (auto/annealing_turns.py). If annealing is not
compiled, or constraints tie tables to each other, local search follows (auto/improvement.py); and with OR-Tools, large
neighbourhood search (auto/neighbourhoods.py).
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from recsmith.bounds import first_bound
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.errors import NoPlanFound
from recsmith.planners.auto.annealing_turns import AnnealingTurns
from recsmith.planners.auto.drafts import Drafts
from recsmith.planners.auto.improvement import Improvement, StoppingRule
from recsmith.planners.auto.neighbourhoods import WORK, Neighbourhoods
from recsmith.planners.greedy import COST_GREEDY
from recsmith.planners.protocol import Search, SearchPlanner, Solution
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.solver import is_installed
from recsmith.planners.solver.enumeration import Enumeration, arrangements_of
from recsmith.planners.solver.layouts import all_shares, useful_shares
from recsmith.planners.solver.linear_pieces import linear_pieces_of
from recsmith.problems import Footprint

MOST_STARTS = 3  # drafts that local search starts from; trade-off: more find more, each gets less of the effort
MOST_TABLES = 7  # most tables of a problem that is enumerated
MOST_ARRANGEMENTS, MOST_PARTIAL = 2_000, 1_000  # most arrangements and partial plans of an enumeration
FAR_GAP, FAR_PARTIAL = 0.03, 20_000  # relative gap above which this many partial plans are extended instead
MOST_TURNS = 5  # turns of compiled annealing before a solver, if there is one; later turns gain 0.1 % each
BOUND_SHARE = 0.25  # share of a time limit after which the bound is not tightened further; the search gets the rest
LEFT_OUT = "neighbourhoods: left out, needs OR-Tools"  # shown in a report if OR-Tools is not installed
NOT_COMPILED = "annealing: not compiled for want of a C compiler; plans may be a few per cent longer"


class Auto(SearchPlanner):
    """Near-optimal plans: cheap placements first, then search from the best of them while the bound leaves a gap."""

    name = "auto"
    about = "Greedy placements, then searches, until the bound is near."

    def __init__(self, *, brief: bool = False) -> None:
        """brief: skip the long last turns, for plans that are only compared with each other."""
        self.brief = brief

    def solve(self, search: Search) -> Solution:
        """Return the best of some tens of placements; raises NoPlanFound if none is complete."""
        members: list[str] = []
        left_out: list[str] = []
        try:
            with search.interruptible():
                if search.budget.time_limit_s is not None:
                    _quick_plan(search)
                _Team(search, members, left_out).work(brief=self.brief)
        except KeyboardInterrupt:  # before there is any plan: make the quickest one
            _quick_plan(search)
            search.truncated = True
        found = search.found(
            self.name,
            "no plan was found, and none was proved impossible: memory is tight; "
            "allow more types or widths any, reserve less, or add devices",
        )
        return replace(found, members=tuple(members), left_out=tuple(left_out))


def _quick_plan(search: Search) -> None:
    """Try cost_greedy's plan, if it finds one."""
    try:
        found = COST_GREEDY.plan(search.problem, search.evaluator, seed=search.seed)
    except NoPlanFound:
        return
    search.try_(found.footprint, found.total_s)


class _Team:
    """The members of the search, one after the other; `search` keeps the best plan, `drafts` the best starts.

    finished: names of members that did their part. left_out: what could not take part, as sentences for a report. Both
    lists belong to the caller, who has them however the search ends.
    """

    def __init__(self, search: Search, finished: list[str], left_out: list[str]) -> None:
        self.search, self.finished, self.left_out = search, finished, left_out
        self.problem, self.evaluator = search.problem, search.evaluator
        self.devices = DeviceState(self.evaluator)
        known = first_bound(self.evaluator)
        size = len(self.problem.tables) * len(self.devices.free)
        self.stopping = StoppingRule(search, known.bound.value_s or 0.0, size)
        relaxation = shared_relaxation(self.evaluator, known.linear)
        self.drafts = Drafts(search, self.devices, relaxation, self.stopping, finished)
        self.annealing = AnnealingTurns(self.stopping, self.drafts, known)

    def work(self, *, brief: bool = False) -> None:
        """Drafts first, then annealing, local search or enumeration, and last what the rest of a budget allows."""
        with self.annealing.tightening(partial(self.search.is_early, BOUND_SHARE)):
            if not self.drafts.work():
                return
            self._take_part("annealing", self.annealing.first_turns)
        if self.annealing.lacks_compiler:
            self.left_out.append(NOT_COMPILED)
        if self.annealing.suffices:
            self._take_part("annealing", self.annealing.selected_turn)
            self._take_part("annealing", self.annealing.gathered_turn)
            if not brief:
                self._take_part("annealing", self.annealing.last_turns)
        else:
            self._take_part("local_search", self._improve)
        if not self.stopping.reached and self._enumerate():
            self.finished.append("enumeration")
        elif not self.stopping.reached:
            self._search_on()

    def _take_part(self, name: str, member: Callable[[], bool]) -> None:
        if self.drafts.starts and not self.stopping.reached and member() and name not in self.finished:
            self.finished.append(name)

    def _search_on(self) -> None:
        """Spend what is left of a budget; last of all, so that a longer limit never changes the search before.

        Annealing continues if there is a budget. Then neighbourhood search follows, which gains so little after
        compiled annealing that it also needs a budget there; without a solver, local search spends the budget.
        """
        solves = self._may_solve and (self.stopping.has_budget or not self.annealing.is_compiled)
        if solves and self.search.best is not None and not is_installed():
            self.left_out.append(LEFT_OUT)
        if self.stopping.has_budget:
            self.annealing.insist()
        while self._goes_on and not self.stopping.reached and self._anneal_again():
            if not self.annealing.is_compiled:
                self._improve()
        if solves and is_installed() and not self.stopping.reached and self.search.best is not None:
            self._solve(self.search.best)
            self.finished.append("neighbourhoods")
        elif self.stopping.has_budget and not self.stopping.reached:
            self._improve(limited=False)

    def _anneal_again(self) -> bool:
        turns = self.annealing.turns
        self._take_part("annealing", self.annealing.turn)
        return self.annealing.turns > turns

    @property
    def _may_solve(self) -> bool:
        linear = self.devices.linear_pieces is not None
        return linear and Neighbourhoods.suit(self.problem)

    @property
    def _goes_on(self) -> bool:
        """Whether to anneal again: a budget is left, and it is not the solver's turn."""
        solves = self._may_solve and is_installed()
        annealed = solves and (not self.annealing.is_compiled or self.annealing.turns >= MOST_TURNS)
        return self.stopping.has_budget and not annealed

    def _improve(self, *, limited: bool = True) -> bool:
        """Local search from the best starts with a shared effort, or from the best start until the budget ends."""
        annealed = "annealing" in self.finished and not self.annealing.is_compiled  # then its best plan is a draft
        starts = self.drafts.starts[: MOST_STARTS if limited and not annealed else 1]
        improvement = Improvement(self.search, self.stopping, self.devices)
        improvement.run([draft for _, _, draft in starts], self.drafts.relaxation, limited=limited)
        return True

    def _enumerate(self) -> bool:
        """Try every plan of a handful of tables that may be better, if that is quick; returns whether none is left."""
        if len(self.problem.tables) > MOST_TABLES:
            return False
        shares = all_shares(self.evaluator)
        pieces = linear_pieces_of(self.evaluator, shares.terms)
        shares = shares if pieces is None else useful_shares(self.evaluator, shares)
        arrangements = arrangements_of(self.problem, shares, MOST_ARRANGEMENTS)
        if arrangements is None:
            return False
        tree = Enumeration(self.evaluator, shares, arrangements, self.search.total_s, monotone=pieces is not None)
        followed = 0
        while tree.open and not self.stopping.reached and followed < (FAR_PARTIAL if self._is_far else MOST_PARTIAL):
            tree.run(MOST_PARTIAL, self._hear)
            followed += MOST_PARTIAL
        return not tree.open

    @property
    def _is_far(self) -> bool:
        return self.search.total_s > self.stopping.bound_s * (1 + FAR_GAP)

    def _solve(self, best: Footprint) -> None:
        """Place a few tables of the best plan again at a time, with a solver; with a budget, until it is spent."""
        search, limit = self.search, self.search.budget.time_limit_s
        near = Neighbourhoods(self.evaluator, best, search.total_s, search.seed)
        while not (near.over or self.stopping.reached or (not self.stopping.has_budget and near.spent > WORK)):
            found = near.next(None if limit is None else search.started + limit - time.monotonic())
            before = search.total_s
            search.try_(found)
            if found is not None and search.total_s < before:
                near.take(found, search.total_s)

    def _hear(self, footprint: Footprint) -> bool:
        self.search.try_(footprint)
        return self.search.stop
