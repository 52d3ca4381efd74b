"""Drafts: whole plans from the quick members of the default planner's team, from which slower members continue."""

from collections.abc import Iterator
from itertools import islice

from recsmith.bounds import first_bound
from recsmith.bounds.relaxation import Choice, Relaxation
from recsmith.errors import NoPlanFound
from recsmith.planners.annealing.kernel import is_compiled
from recsmith.planners.auto.improvement import StoppingRule
from recsmith.planners.greedy import GREEDIES
from recsmith.planners.ldm import differenced
from recsmith.planners.protocol import Planner, Search
from recsmith.planners.search.candidates import candidates, light_candidates, place_candidate
from recsmith.planners.search.device_state import Assignment, DeviceState
from recsmith.planners.search.placement import mended_draft, place_and_repair, place_in_fewest_pieces

MOST_STARTS = 16  # best drafts that are kept: annealing begins from all of them, with at least as many plans
DIFFERENCED = 8  # candidates that are also placed by differencing; trade-off: more find better plans, cost more time
QUICK = 4_000  # most tables times devices for which other planners take part; on more they take long and gain little
LEAST_DRAFTS, MOST_DRAFTS, DRAFT_WORK = 14, 100, 40_000  # candidates placed: DRAFT_WORK / tables, within limits
LARGE_DRAFTS = 6  # complete drafts of large problems, if compiled annealing follows: it gains more than further drafts
VAST_DRAFTS = 3  # complete drafts of vast problems; each takes a second or more, and later ones were no better
FAR = 2.0  # times the bound: if a candidate costs the mean rank more seconds, it is tried last
DRAWS, FEW_DRAWS = 200, 40  # draws of light options if nothing found room; draws with other sequence widths


class Drafts:
    """The members that draft. search keeps the best plan, starts the best drafts, best first.

    starts: seconds, a number that breaks ties, and the draft. finished: names of members that did their part, to which
    drafting members are added.
    """

    def __init__(
        self,
        search: Search,
        devices: DeviceState,
        relaxation: Relaxation,
        stopping: StoppingRule,
        finished: list[str],
    ) -> None:
        self.search, self.devices, self.relaxation, self.seed = search, devices, relaxation, search.seed
        self.stopping, self.finished = stopping, finished
        self.problem, self.evaluator = devices.problem, devices.evaluator
        self.starts: list[tuple[float, int, Assignment]] = []

    def work(self) -> bool:
        """Candidates first, then other planners if they are quick; False if the plan is already good enough."""
        others = (("ldm", self._ldm), ("neuroshard", self._neuroshard)) if self._quick else ()
        for name, member in (("candidates", self._candidates), ("cost_greedy", self._greedy), *others):
            if self.search.best is not None and self.stopping.reached:
                return False
            if member():
                self.finished.append(name)
        self._find_any()
        return True

    def keep(self, draft: Assignment | None, total_s: float | None = None) -> None:
        """Count a draft (None for one that found no room), and keep it as a start if it is among the best.

        total_s: its seconds, if they are known; otherwise the draft is priced here, once.
        """
        if draft is not None and not self.problem.legality.holds(draft.footprint(self.problem)):
            draft, total_s = mended_draft(self.evaluator, draft.footprint(self.problem)), None
        seconds = self.search.try_(draft.footprint(self.problem) if draft else None, total_s)
        if draft is not None:
            self.starts.append((seconds, len(self.starts), draft))
            self.starts = sorted(self.starts, key=lambda start: start[:2])[:MOST_STARTS]

    @property
    def _quick(self) -> bool:
        return self.stopping.size <= QUICK

    @property
    def _is_annealed(self) -> bool:
        """Whether compiled annealing continues from the drafts."""
        return is_compiled() and self.devices.compiled_loads is not None

    def _candidates(self) -> bool:
        """Place, longest first, what tables select under the limits that the bound found promising."""
        most = max(LEAST_DRAFTS, min(MOST_DRAFTS, DRAFT_WORK // len(self.problem.tables)))
        enough = VAST_DRAFTS if self.stopping.is_vast else most
        if self._is_annealed and not self._quick and not self.evaluator.additive:
            enough = min(enough, LARGE_DRAFTS)
        for choice in self._near_first(most):
            self.keep(place_candidate(self.devices, self.relaxation, choice))
            if self.stopping.reached or len(self.starts) >= enough:
                break
        return True

    def _near_first(self, most: int) -> Iterator[Choice]:
        """At most `most` candidates; those far above the bound on the mean rank come last, if there is no start.

        The promising limits include those of branches that the bound abandoned early.
        """
        far: list[Choice] = []
        for choice in islice(candidates(self.relaxation, first_bound(self.evaluator).promising), most):
            if choice.seconds.sum() > FAR * self.stopping.bound_s * len(self.devices.free):
                far.append(choice)
            else:
                yield choice
        yield from () if self.starts else far

    def _greedy(self) -> bool:
        """Place tables in as few pieces as possible; for large problems only if no candidate found room."""
        if self._quick or not self.starts:
            self.keep(place_in_fewest_pieces(self.devices, self.relaxation))
        return self._quick or bool(self.starts)

    def _ldm(self) -> bool:
        """Place the first candidates by differencing."""
        for choice in islice(candidates(self.relaxation, first_bound(self.evaluator).promising), DIFFERENCED):
            self.keep(differenced(self.devices, choice))
            if self.stopping.reached:
                break
        return True

    def _neuroshard(self) -> bool:
        """NeuroShard's beam over columns; left out if annealing follows, because it then gains nothing."""
        if self._is_annealed and self.starts:
            return False
        from recsmith.planners.neuroshard import NeuroShard  # imported here because few searches need it

        self._borrow(NeuroShard())
        return True

    def _find_any(self) -> None:
        """If nothing found room: greedy planners that balance other costs than seconds, then random light options."""
        for planner in GREEDIES:
            if self.search.best is None and planner.name not in self.finished:
                self._borrow(planner)
                self.finished.append(planner.name)
        if self.search.best is None and self._quick:
            self._light_options()
            self.finished.append("light_options")

    def _light_options(self) -> None:
        """Draw options at random, light ones more often; then again with other widths of column-wise sequences."""
        self._draw(DRAWS)
        for barred in self.problem.other_openings():
            if self.search.best is None and not self.search.stop:
                self.relaxation = self.relaxation.reopened(barred)
                self._draw(FEW_DRAWS)

    def _draw(self, most: int) -> None:
        """Draw light options at random until a plan is found, from the options that are open now."""
        for choice in islice(light_candidates(self.relaxation, self.seed), most):
            draft = place_and_repair(self.devices, choice.option, self.relaxation.piece_bytes)
            self.keep(draft if draft.complete else None)
            if self.search.best is not None or self.search.stop:
                return

    def _borrow(self, planner: Planner) -> None:
        """Count another planner's plan, and keep it as a start if each table takes one of the problem's options.

        The order of pieces may change on the way, but not within a rank, so the seconds stay the same to the last bit.
        """
        try:
            found = planner.plan(self.problem, self.evaluator, seed=self.seed)
        except NoPlanFound:
            return
        draft = Assignment.from_footprint(self.problem, found.footprint)
        if draft is None:
            self.search.try_(found.footprint, found.total_s)
        else:
            self.keep(draft, found.total_s)
