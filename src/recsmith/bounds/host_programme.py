"""Prices for the seconds of two hosts, by a small linear programme over what earlier prices selected.

The programme mixes these selections, and its duals say what a second of each host is worth. Tables answer them by a new
selection, and so on. Any prices give a valid bound, so that may end at any time.

Legend: S selections, m rows.
"""

import numpy as np

from recsmith._types import Floats
from recsmith.bounds.host_prices import DISCOUNT, HOSTS, LATER, OF_HOST, OF_RANKS, READY, REST, HostNode, Selections
from recsmith.bounds.simplex import Simplex

MISSING = 100.0  # times the seconds of a node: cost of a selection that is missing, or of seconds that a host lacks
JIGGLE = 1e-7  # of those seconds: by how much rows are apart, so that few pivots gain nothing
MOST_PIVOTS = 200
PIVOT = 200_000  # numbers that could be worked on while Python sets up one pivot
SETUP = 5  # pivots that could be made while a programme is set up


class HostProgramme:
    """The programme of one node. prices (hosts, 3): its duals; value: seconds, certain ones of groups apart."""

    def __init__(self, node: HostNode, limits: Floats, known: Selections, ranks: int) -> None:
        """limits: what the node allows; ranks: of a host."""
        (r0, r1), (s0, s1) = node.node.ranges.ready, node.node.ranges.rest
        scale, many = r1 + s1, len(known.worldwide)
        used = known.used / (ranks * scale)
        rows: Floats = np.zeros((4 * HOSTS + 3, many + 2 + HOSTS))
        right, own_cost = np.zeros(len(rows)), np.zeros(len(rows))
        for host, (least, most) in enumerate(node.seconds):
            rank, own, later = used[:, host, OF_RANKS], used[:, host, OF_HOST], used[:, host, LATER]
            ready, rest, above, below = range(4 * host, 4 * host + 4)
            rows[ready, :many], rows[ready, many], right[ready] = rank * limits[6 + 3 * host] + own, -1, r0
            rows[rest, :many], rows[rest, many + 1], right[rest] = later, -1, s0
            rows[above, :many], right[above] = own, most
            rows[below, :many], rows[below, many + 2 + host], right[below] = own, -1, least
            own_cost[below] = MISSING if least > 0 else 0.0
        right /= scale
        rows[-3, :many], right[-3], own_cost[-3] = 1.0, 1.0, MISSING
        rows[-2, many], right[-2] = 1.0, (r1 - r0) / scale
        rows[-1, many + 1], right[-1] = 1.0, (s1 - s0) / scale
        right += JIGGLE * np.arange(1, len(rows) + 1)
        simplex = Simplex(right, own_cost)
        simplex.solve(rows, np.concatenate([known.worldwide / scale, [1.0, 1.0], np.zeros(HOSTS)]), MOST_PIVOTS)
        duals = -simplex.duals
        self.prices: Floats = np.zeros((HOSTS, 3))
        for host in range(HOSTS):
            ready, rest, above, below = duals[4 * host : 4 * host + 4].tolist()
            self.prices[host, READY], self.prices[host, REST] = HOSTS * max(ready, 0.0), HOSTS * max(rest, 0.0)
            self.prices[host, DISCOUNT] = -HOSTS * (above + below)
        self.value = float((simplex.duals * right).sum()) * scale + r0 + s0
        self.work = (simplex.pivots + SETUP) * (PIVOT + rows.size)
