"""Drafts: whole plans that quick members of the default planner's team find, and local search goes on from."""

from itertools import islice

from recsmith.bounds import lower_bound
from recsmith.bounds.relaxation import Relaxation
from recsmith.costs import step_seconds
from recsmith.errors import NoPlanFound
from recsmith.planners.auto.stopping import StoppingRule
from recsmith.planners.greedy import GREEDIES, place_simplest, placed_in_order
from recsmith.planners.ldm import differenced
from recsmith.planners.neuroshard.planner import NeuroShard
from recsmith.planners.protocol import Planner, Search
from recsmith.planners.search.assignment import Assignment
from recsmith.planners.search.candidates import candidates, light_candidates, place_candidate
from recsmith.planners.search.device_state import DeviceState

MOST_STARTS_ANNEALED = 16  # drafts that annealing starts from
DIFFERENCED = 8  # picks that are also placed by differencing
QUICK = 4_000  # tables times devices up to which other planners take part
LEAST_DRAFTS, MOST_DRAFTS, DRAFT_WORK = 14, 100, 40_000  # drafts: DRAFT_WORK over the number of tables
DRAWS, FEW_DRAWS = 200, 40  # of light options, where nothing else found room; with other widths of sequences


class Drafts:
    """The members that draft. search keeps the best plan; starts are the best MOST_STARTS_ANNEALED drafts, best first.

    starts: seconds, a number that settles ties, and the draft. finished: names of members that did their part.
    """

    def __init__(
        self, search: Search, ledger: DeviceState, relaxation: Relaxation, rest: StoppingRule, seed: int
    ) -> None:
        self.search, self.ledger, self.relaxation, self.rest, self.seed = search, ledger, relaxation, rest, seed
        self.problem, self.evaluator = ledger.problem, ledger.evaluator
        self.starts: list[tuple[float, int, Assignment]] = []
        self.finished: list[str] = []

    def work(self) -> bool:
        """Picks first, then other planners where they are quick; False where the plan is already good enough."""
        others = (("ldm", self._ldm), ("neuroshard", self._neuroshard)) if self._quick else ()
        for name, member in (("picks", self._picks), ("cost_greedy", self._greedy), *others):
            if self.search.best is not None and self.rest.now:
                return False
            if member():
                self.finished.append(name)
        self._find_any()
        return True

    def keep(self, draft: Assignment | None) -> None:
        """Count a draft, and keep it as a start if it is among the best."""
        footprint = draft.footprint(self.problem) if draft else None
        self.search.try_(footprint)
        if draft is not None and footprint is not None:
            self.starts.append((step_seconds(self.evaluator, footprint), len(self.starts), draft))
            self.starts = sorted(self.starts, key=lambda start: start[:2])[:MOST_STARTS_ANNEALED]

    @property
    def _quick(self) -> bool:
        return self.rest.cells <= QUICK

    def _picks(self) -> bool:
        """What tables pick under the terms that the bound found promising, placed longest first."""
        most = max(LEAST_DRAFTS, min(MOST_DRAFTS, DRAFT_WORK // len(self.problem.tables)))
        for choice in islice(candidates(self.relaxation, lower_bound(self.evaluator).promising), most):
            self.keep(place_candidate(self.ledger, self.relaxation, choice))
            if self.rest.now:
                break
        return True

    def _greedy(self) -> bool:
        """As few pieces as possible; for large problems only where no pick found room."""
        if self._quick or not self.starts:
            self.keep(place_simplest(self.ledger, self.relaxation))
        return self._quick or bool(self.starts)

    def _ldm(self) -> bool:
        """The first picks placed by differencing."""
        for choice in islice(candidates(self.relaxation, lower_bound(self.evaluator).promising), DIFFERENCED):
            self.keep(differenced(self.ledger, choice))
            if self.rest.now:
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
        for choice in islice(light_candidates(self.relaxation, self.seed), most):
            draft = placed_in_order(self.ledger, choice.option, self.relaxation.piece_bytes)
            self.keep(draft if draft.complete else None)
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
            self.keep(draft)
