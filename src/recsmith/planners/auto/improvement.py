"""Local search in planner auto: which plans it starts from and with how much effort; and when all searches stop."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from recsmith.bounds.relaxation import Relaxation
from recsmith.planners.protocol import Budget, Search
from recsmith.planners.search.device_state import Assignment, DeviceState
from recsmith.planners.search.local_search import SHARPNESS, LocalSearch

NEAR_GAP = 1e-3  # relative gap below which only quick changes are tried: there is little left to gain
LAST_GAP = 1e-5  # relative gap at which any search stops
LARGE, VAST = 1_000_000, 100_000_000  # tables times devices of problems whose rounds take long
LAST_GAPS = {LARGE: NEAR_GAP, VAST: 3e-3}  # relative gaps at which larger problems stop, unless there is a budget
IDLE_ROUNDS = 6  # and one per table: rounds in a row without a gain before a descent ends
# Effort in numbers worked on, a clock that runs alike on every machine: at least; for each piece and device of small
# problems; at most; and for each piece and device of any problem, which is added up to the same maximum.
LEAST_EFFORT, SMALL_EFFORT, MOST_EFFORT, LARGE_EFFORT = 2_000_000, 60_000, 15_000_000, 200
GAINS = 20  # gains between two pricings of a large problem's whole plan, each as slow as some rounds


@dataclass
class StoppingRule:
    """When to stop a search. bound_s: the best known lower bound on a plan's seconds; size: tables times devices."""

    search: Search
    bound_s: float
    size: int

    @property
    def has_budget(self) -> bool:
        """Whether a budget limits the search."""
        return self.search.budget != Budget()

    @property
    def is_large(self) -> bool:
        """Whether rounds take long on a problem of this size."""
        return self.size > LARGE

    @property
    def is_vast(self) -> bool:
        """Whether the problem is so large that a single placement takes long."""
        return self.size > VAST

    @property
    def reached(self) -> bool:
        """Whether the budget is spent, the caller has cancelled, or the best plan is good enough."""
        return self.search.stop or self.search.total_s <= self.bound_s * (1 + self._last_gap)

    def near_bound(self, total_s: float) -> bool:
        """Whether a plan of this many seconds is so near the bound that only quick changes are worth a try."""
        return total_s <= self.bound_s * (1 + NEAR_GAP)

    @property
    def _last_gap(self) -> float:
        if self.has_budget:
            return LAST_GAP
        return max((gap for size, gap in LAST_GAPS.items() if self.size > size), default=LAST_GAP)


# --- local search -----------------------------------------------------------------------------------------------------


class Improvement:
    """Local search from one draft after the other, each with one sharpness of the smoothed maximum after the other."""

    def __init__(self, search: Search, stopping: StoppingRule, devices: DeviceState) -> None:
        self.search, self.stopping, self.devices = search, stopping, devices

    def run(
        self, drafts: Sequence[Assignment], relaxation: Relaxation, *, limited: bool, effort: int | None = None
    ) -> None:
        """Improve drafts; limited: until the effort that they share is spent, otherwise until the budget is spent.

        effort: numbers that may be worked on; None: as many as suit the pieces and devices of a draft.
        """
        before = self.devices.effort
        for number, draft in enumerate(drafts):
            local = LocalSearch(self.devices, relaxation, draft, self.search.seed)
            limit = before + (effort or self._effort(draft)) * (number + 1) // len(drafts) if limited else None
            for sharpness in SHARPNESS if limited else cycle(SHARPNESS):
                local.sharpness = sharpness
                if not self._descend(local, limit):
                    break
            if self.stopping.reached:
                break

    def _effort(self, draft: Assignment) -> int:
        """How many numbers local search from a draft may work on."""
        cells = len(draft.piece) * len(self.devices.free)
        return min(MOST_EFFORT, LEAST_EFFORT + SMALL_EFFORT * cells) + min(MOST_EFFORT, LARGE_EFFORT * cells)

    def _descend(self, local: LocalSearch, limit: int | None) -> bool:
        """Make rounds until many in a row find no gain; returns False if the search is to end."""
        most = IDLE_ROUNDS + len(self.devices.problem.tables)
        patience, gains = most, 0
        while patience > 0 and not self.stopping.reached:
            several = not self.stopping.near_bound(local.total)
            better = local.round(several=several)
            if self.stopping.is_vast:  # on smaller problems trials do nearly all of the work, and count it themselves
                self.devices.effort += local.round_effort
            patience = most if better else patience - 1 if several else 0
            gains += better and local.total < self.search.total_s
            if gains >= (GAINS if self.stopping.is_large else 1) or (gains and not patience):
                self._try(local)
                gains = 0
            elif limit is None:
                self.search.try_(None)  # a round counts against the budget even if it finds no gain
            if limit is not None and self.devices.effort > limit:
                break
        if gains:
            self._try(local)
        spent = limit is not None and self.devices.effort > limit
        return not spent and not self.stopping.reached and not self.stopping.near_bound(local.total)

    def _try(self, local: LocalSearch) -> None:
        self.search.try_(local.assignment().footprint(self.devices.problem))
