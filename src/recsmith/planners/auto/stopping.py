"""When the default planner rests: at which gap to the bound nothing more is tried."""

from dataclasses import dataclass

from recsmith.planners.protocol import Budget, Search

CLOSE_ENOUGH = 1e-3  # relative gap below which only the quick changes are tried
GOOD_ENOUGH = 1e-5  # relative gap at which the search rests
LARGE, VAST = 1_000_000, 100_000_000  # tables times devices beyond which it rests earlier, unless a budget says more
AT_REST = {LARGE: CLOSE_ENOUGH, VAST: 3e-3}  # relative gaps


@dataclass(frozen=True)
class StoppingRule:
    """The search, the bound that it is held against, in seconds, and how many tables times devices there are."""

    search: Search
    bound: float
    cells: int

    @property
    def limited(self) -> bool:
        """Whether a budget says how long to search."""
        return self.search.budget != Budget()

    @property
    def large(self) -> bool:
        """Whether the problem is large."""
        return self.cells > LARGE

    @property
    def now(self) -> bool:
        """Whether the search is over, or its best plan good enough."""
        return self.search.stop or self.search.total_s <= self.bound * (1 + self._at_rest)

    def close(self, total_s: float) -> bool:
        """Whether a plan is so good that only quick changes are worth a try."""
        return total_s <= self.bound * (1 + CLOSE_ENOUGH)

    @property
    def _at_rest(self) -> float:
        if self.limited:
            return GOOD_ENOUGH
        return max((gap for size, gap in AT_REST.items() if self.cells > size), default=GOOD_ENOUGH)
