"""When the default planner stops: at which gap to the bound nothing more is tried."""

from dataclasses import dataclass

from recsmith.planners.protocol import Budget, Search

NEAR_GAP = 1e-3  # relative gap below which only quick changes are tried: there is little left to gain
LAST_GAP = 1e-5  # relative gap at which any search stops
LARGE, VAST = 1_000_000, 100_000_000  # tables times devices of problems that each round takes long on
LAST_GAPS = {LARGE: NEAR_GAP, VAST: 3e-3}  # relative gaps at which larger problems stop, unless a budget says more


@dataclass
class StoppingRule:
    """When to stop a search. bound_s: seconds that no plan goes below, as far as known; size: tables times devices."""

    search: Search
    bound_s: float
    size: int

    @property
    def has_budget(self) -> bool:
        """Whether a budget says how long to search."""
        return self.search.budget != Budget()

    @property
    def is_large(self) -> bool:
        """Whether the problem is large."""
        return self.size > LARGE

    @property
    def reached(self) -> bool:
        """Whether the budget is spent, the caller has cancelled, or the best plan is good enough."""
        return self.search.stop or self.search.total_s <= self.bound_s * (1 + self._last_gap)

    def near_bound(self, total_s: float) -> bool:
        """Whether a plan of so many seconds is so near the bound that only quick changes are worth a try."""
        return total_s <= self.bound_s * (1 + NEAR_GAP)

    @property
    def _last_gap(self) -> float:
        if self.has_budget:
            return LAST_GAP
        return max((gap for size, gap in LAST_GAPS.items() if self.size > size), default=LAST_GAP)
