"""Computes the lookups of a stream that a table of limited rows serves, and the rows that serve a requested share.

A lookup is served if its id has a row already. The first lookups of an id, up to the one that gives it a row, are
served by no table; a later lookup is not served if the id's row was given to another id in between.

K sampled lookups
"""

import math
from functools import cached_property

import numpy as np

from recsmith._types import Ints
from recsmith.streaming.capacity.caches import served
from recsmith.streaming.capacity.distances import distances
from recsmith.streaming.capacity.id_sample import GROUPS, Sampled

SIMULATED = 2**18  # lookups simulated one by one; more are not more accurate, and each takes 0.25 microseconds
FEW_IDS = 2**12  # number of different ids up to which all are simulated, since each would count too much in a sample
CLOSE = 1 / 400  # relative width of the rows' interval at which a search ends; for small tables it ends at 1 row
DEVIATIONS = 2.0  # half width of intervals, in standard deviations


class TableReads:
    """A stream that reads a table, which gives an id a row when it is seen for the `admit`-th time."""

    def __init__(self, sampled: Sampled, admit: int = 1) -> None:
        self.sampled, self.admit = sampled, admit
        self._runs: dict[tuple[str, int], float] = {}

    @cached_property
    def _distances(self) -> Ints:
        """Stack distances of the sampled lookups under LRU, sorted, without first lookups."""
        found = distances(self.sampled.ids)
        return np.sort(found[found >= 0])

    @cached_property
    def _small(self) -> tuple[Sampled, list[int], int, int]:
        """(sample to simulate, its ids, number of different ids, lookups of it that an unbounded table serves)."""
        few = len(np.unique(self.sampled.ids)) <= FEW_IDS
        small = self.sampled if few else self.sampled.fewer(SIMULATED)
        counts = np.unique(small.ids, return_counts=True)[1]
        return small, small.ids.tolist(), len(counts), len(small.ids) - int(np.minimum(counts, self.admit).sum())

    @cached_property
    def reachable(self) -> float:
        """Number of lookups that an unbounded table serves."""
        counts = np.unique(self.sampled.ids, return_counts=True)[1]
        first = float(np.minimum(counts, self.admit).sum()) / self.sampled.rate + self.sampled.hot_rows * self.admit
        return max(0.0, self.sampled.lookups - first)

    @cached_property
    def distinct(self) -> float:
        """Number of different ids."""
        return len(np.unique(self.sampled.ids)) / self.sampled.rate + self.sampled.hot_rows

    def _by_distance(self, policy: str) -> bool:
        return policy == "lru" and self.admit == 1

    def lost(self, policy: str, rows: float) -> float:
        """Number of lookups that a table of `rows` rows does not serve because the id's row was given away."""
        if self._by_distance(policy):
            held = (rows - self.sampled.hot_rows) * self.sampled.rate
            return float(len(self._distances) - np.searchsorted(self._distances, held)) / self.sampled.rate
        small = self._small[0]
        return self._simulated(policy, round((rows - small.hot_rows) * small.rate))

    def served(self, policy: str, rows: float) -> float:
        """Share of all lookups that a table of `rows` rows serves."""
        return max(0.0, self.reachable - self.lost(policy, rows)) / max(self.sampled.lookups, 1)

    def _simulated(self, policy: str, held: int) -> float:
        small, ids, _, reached = self._small
        key = (policy, max(held, 1))
        if key not in self._runs:
            self._runs[key] = (reached - served(ids, key[1], policy, self.admit)) / small.rate
        return self._runs[key]

    def rows(self, policy: str, serve: float) -> float:
        """Number of rows that serve the share `serve` of what an unbounded table serves."""
        allowed = (1 - serve) * self.reachable
        if self._by_distance(policy):
            left = len(self._distances) - 1 - math.floor(allowed * self.sampled.rate + 1e-9)
            held = 1 + int(self._distances[left]) if left >= 0 else 1
            return held / self.sampled.rate + self.sampled.hot_rows
        small, _, different, _ = self._small
        low, high = 0, max(different, 1)  # bounds of the rows; `high` serves the share
        middle = round((self._guess(serve) - small.hot_rows) * small.rate)
        while high - low > max(1, low * CLOSE):
            middle = middle if low < middle < high else (low + high) // 2
            if self._simulated(policy, middle) <= allowed:
                high = middle
            else:
                low = middle
            middle = (low + high) // 2
        return high / small.rate + small.hot_rows

    def _guess(self, serve: float) -> float:
        """Rows at which to start the search: those under LRU without admission."""
        return (self if self.admit == 1 else TableReads(self.sampled)).rows("lru", serve)

    def deviation(self, policy: str, serve: float) -> float:
        """Relative standard deviation of the rows, due to the sampling of ids; 0 if all lookups are kept.

        It is estimated from the rows under LRU of groups of the sampled ids.
        """
        told_by = self.sampled if self._by_distance(policy) else self._small[0]
        if told_by.exact:
            return 0.0
        found = [math.log(TableReads(part).rows("lru", serve)) for part in told_by.groups()]
        return float(np.std(found, ddof=1)) / math.sqrt(GROUPS)
