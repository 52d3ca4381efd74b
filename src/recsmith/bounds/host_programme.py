"""Prices for the seconds of two hosts, by a small linear programme over the selections of earlier prices.

The programme mixes these selections, and its duals give the worth of a second of each host. Tables answer them with a
new selection, and so on. Any prices give a valid bound, so this may end at any time.

Legend: S selections, m rows.
"""

import numpy as np

from recsmith._types import Floats
from recsmith.bounds.host_prices import (
    DISCOUNT,
    HOST_LIMITS,
    HOSTS,
    OF_HOSTS,
    PRICES,
    READY,
    REST,
    STEP,
    STEPPED,
    TIMES,
    HostNode,
    Selections,
)
from recsmith.bounds.simplex import Simplex

MISSING = 100.0  # times the seconds of a node: cost of a missing selection, or of seconds that a host lacks
JIGGLE = 1e-7  # of those seconds: differences between rows, so that few pivots gain nothing
MOST_PIVOTS = 200
PIVOT = 200_000  # numbers that could be worked on while Python sets up one pivot
SETUP = 5  # pivots that could be made while a programme is set up


class HostProgramme:
    """The programme of one node, which continues from its last solution when selections are added.

    prices (hosts, 4): its duals; value: seconds, without the certain ones of groups. work: numbers worked on so far,
    approximately.
    """

    def __init__(self, node: HostNode, limits: Floats, ranks: int, *, steps: bool) -> None:
        """limits: of the node; ranks: of a host; steps: whether whole steps of width have prices."""
        (r0, r1), (s0, s1) = node.node.ranges.ready, node.node.ranges.rest
        self._scale, self._least, each = r1 + s1, r0 + s0, 5 if steps else 4
        self._per_second, self._each = ranks * self._scale, each
        self._times = limits[OF_HOSTS:].reshape(HOSTS, HOST_LIMITS)[:, TIMES]
        rows: Floats = np.zeros((each * HOSTS + 3, 2 + HOSTS))
        right, own_cost = np.zeros(len(rows)), np.zeros(len(rows))
        for host, (least, most) in enumerate(node.seconds):
            ready, rest, above, below = range(each * host, each * host + 4)
            rows[ready, 0], rows[rest, 1], rows[below, 2 + host] = -1, -1, -1
            right[ready], right[rest], right[above], right[below] = r0, s0, most, least
            own_cost[below] = MISSING if least > 0 else 0.0
            if steps:
                right[below + 1] = limits[STEPPED]
        right /= self._scale
        right[-3], own_cost[-3] = 1.0, MISSING
        rows[-2, 0], right[-2] = 1.0, (r1 - r0) / self._scale
        rows[-1, 1], right[-1] = 1.0, (s1 - s0) / self._scale
        self._right = right + JIGGLE * np.arange(1, len(rows) + 1)
        self._rows, self._cost = rows, np.array([1.0, 1.0, *[0.0] * HOSTS])
        self._simplex = Simplex(self._right, own_cost)
        self.work = SETUP * PIVOT

    def solve(self, known: Selections) -> None:
        """Add these selections to the mix, and compute what seconds are then worth."""
        rank, own, later, whole = np.moveaxis(known.used / self._per_second, 2, 0)  # each (K, hosts)
        of_host = [rank * self._times + own, later, own, own, whole][: self._each]
        more: Floats = np.zeros((len(self._rows), len(known.worldwide)))
        more[: HOSTS * self._each] = np.stack(of_host, axis=2).reshape(len(rank), -1).T
        more[-3] = 1.0
        self._rows = np.hstack([self._rows, more])
        self._cost = np.concatenate([self._cost, known.worldwide / self._scale])
        before = self._simplex.pivots
        self._simplex.solve(self._rows, self._cost, MOST_PIVOTS)
        self.work += (self._simplex.pivots - before + 1) * (PIVOT + self._rows.size)
        duals = -self._simplex.duals[: HOSTS * self._each].reshape(HOSTS, self._each)
        self.prices: Floats = np.zeros((HOSTS, len(PRICES)))
        self.prices[:, READY], self.prices[:, REST] = HOSTS * np.maximum(duals[:, :2], 0.0).T
        self.prices[:, DISCOUNT] = -HOSTS * duals[:, 2:4].sum(axis=1)
        if self._each > 4:
            self.prices[:, STEP] = HOSTS * np.maximum(duals[:, 4], 0.0)
        self.value = float((self._simplex.duals * self._right).sum()) * self._scale + self._least
