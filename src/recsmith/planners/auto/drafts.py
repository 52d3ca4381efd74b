"""Drafts: whole plans that quick members of the default planner's team find, and slower members go on from."""

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
DIFFERENCED = 8  # candidates that are also placed by differencing; trade-off: more find more, cost more time
QUICK = 4_000  # tables times devices up to which other planners take part; beyond, they take too long for what they add
LEAST_DRAFTS, MOST_DRAFTS, DRAFT_WORK = 14, 100, 40_000  # candidates placed: DRAFT_WORK over the number of tables
LARGE_DRAFTS = 6  # complete ones of large problems that compiled code anneals, which gains more in the time of others
VAST_DRAFTS = 3  # complete ones of vast problems, each of which takes a second or more; later ones were no better
FAR = 2.0  # times the bound: mean seconds of a rank beyond which a candidate is tried last
DRAWS, FEW_DRAWS = 200, 40  # of light options, where nothing else found room; with other widths of sequences


class Drafts:
    """The members that draft. search keeps the best plan; starts are the best drafts, best first.

    starts: seconds, a number that settles ties, and the draft. finished: the names of members that did their part are
    added to it.
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
        """Candidates first, then other planners where they are quick; False where the plan is already good enough."""
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

        total_s: its seconds, where they are known; otherwise it is priced here, once.
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
        """Whether compiled annealing goes on from the drafts."""
        return is_compiled() and self.devices.compiled_loads is not None

    def _candidates(self) -> bool:
        """What tables select under the limits that the bound found promising, placed longest first."""
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
        """As many candidates; those that cost ranks far more than the bound in the mean at last, if nothing was found.

        The limits of branches that the bound left early are among the promising ones.
        """
        far: list[Choice] = []
        for choice in islice(candidates(self.relaxation, first_bound(self.evaluator).promising), most):
            if choice.seconds.sum() > FAR * self.stopping.bound_s * len(self.devices.free):
                far.append(choice)
            else:
                yield choice
        yield from () if self.starts else far

    def _greedy(self) -> bool:
        """As few pieces as possible; for large problems only where no candidate found room."""
        if self._quick or not self.starts:
            self.keep(place_in_fewest_pieces(self.devices, self.relaxation))
        return self._quick or bool(self.starts)

    def _ldm(self) -> bool:
        """The first candidates placed by differencing."""
        for choice in islice(candidates(self.relaxation, first_bound(self.evaluator).promising), DIFFERENCED):
            self.keep(differenced(self.devices, choice))
            if self.stopping.reached:
                break
        return True

    def _neuroshard(self) -> bool:
        """NeuroShard's beam over columns, which adds nothing where annealing goes on from other drafts."""
        if self._is_annealed and self.starts:
            return False
        from recsmith.planners.neuroshard import NeuroShard  # which few searches ask

        self._borrow(NeuroShard())
        return True

    def _find_any(self) -> None:
        """Where nothing found room: greedy planners that balance something else than seconds; then chance."""
        for planner in GREEDIES:
            if self.search.best is None and planner.name not in self.finished:
                self._borrow(planner)
                self.finished.append(planner.name)
        if self.search.best is None and self._quick:
            self._light_options()
            self.finished.append("light_options")

    def _light_options(self) -> None:
        """Options drawn at random, those of few bytes more often; then with other widths of column-wise sequences."""
        self._draw(DRAWS)
        for barred in self.problem.other_openings():
            if self.search.best is None and not self.search.stop:
                self.relaxation = self.relaxation.reopened(barred)
                self._draw(FEW_DRAWS)

    def _draw(self, most: int) -> None:
        """Light options by chance, until a plan is found; search goes on among the options that were open to it."""
        for choice in islice(light_candidates(self.relaxation, self.seed), most):
            draft = place_and_repair(self.devices, choice.option, self.relaxation.piece_bytes)
            self.keep(draft if draft.complete else None)
            if self.search.best is not None or self.search.stop:
                return

    def _borrow(self, planner: Planner) -> None:
        """Count another planner's plan; a start where each table takes one of the problem's options.

        Its order of pieces may change on the way, but not within a rank, so its seconds stay the same to the last bit.
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
