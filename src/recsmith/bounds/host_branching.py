"""The search of phase_branching.py continued with the load of each of two hosts, if tables may cover a host.

It begins with the open nodes of such a search, joining those that use the same groups. A node also has a range for the
seconds that pieces of hosts take on each host (host_prices.py): a host that holds much of them has no room for large
pieces of single ranks. The least bound of all open nodes holds for every plan (docs/bounds.md).

Legend: K price lists, C different tables, G fusion groups.
"""

import heapq
from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.host_prices import (
    HOSTS,
    PRICES,
    READY,
    REST,
    STEP,
    USED,
    HostNode,
    HostPrices,
    Selections,
    can_tell_hosts_apart,
)
from recsmith.bounds.host_programme import HostProgramme
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.bounds.phase_nodes import FINE, PhaseNode, PhaseRanges, split_by_range
from recsmith.costs.protocol import Evaluator

FINE_SECONDS = 5 * FINE  # of a node's bound: a narrower range of a host's seconds is not split
FINEST = 1 / 16  # least factor on FINE and FINE_SECONDS
NARROWER = 0.2  # of the wider range of the phases: a narrower range of a host is not split either
FIRST_ROUNDS, ROUNDS, LAST_ROUNDS = 15, 4, 40  # of prices: of a first node, a half, and a node that cannot be split
STEPS = (1.0, 0.5, 0.2)  # how far each round moves from the best prices to those of the programme
CHANGES = ((0.85, 1), (1.15, 1), (1, 0.85), (1, 1.15))  # factors on the prices of both phases, tried after it
CLOSE = 3e-4  # of a node's bound: this near the programme's value, other prices gain little
BEYOND = 1.01  # times a node's bound: no more is sought at once
MOST_KNOWN = 40  # selections that a node passes on to its halves
MOST_RECENT = 2  # prices of other nodes that are tried
MOST_SELECTED = 10  # lowest nodes with different selections, one of which must have a table that covers a host
WORSE_CAP, BETTER_CAP, BETTER_WEIGHT = 1.05, 1.2, 0.1  # as in phase_branching.py

Halves = tuple[HostNode, HostNode]


class HostBranching:
    """The search; call `solve(work)` again to continue, until it is `done` or its bound is high enough."""

    def __init__(self, search: PhaseBranching, *, joined: bool = True) -> None:
        """search: whose open nodes, at least one, it begins with. joined: whether nodes of equal groups are joined."""
        lowest = search.heap[0].multipliers
        self.search, self.begun = search, alike(search.heap) if joined else [[node] for node in search.heap]
        self.prices, self.done = HostPrices(search.prices, lowest.mix), False
        self._ascent = search.ascent
        self._ranks = search.prices.world // HOSTS
        self._finer = 1.0  # factor on FINE and FINE_SECONDS
        self._work, self._recent = 0, list[Floats]()
        self.heap = [self._begun(number, _joined(nodes)) for number, nodes in enumerate(self.begun)]
        self.impossible: list[HostNode] = []  # parts without a plan, by their prices
        self.waiting = {node.number for node in self.heap}  # nodes whose prices have not been sought yet
        self.made = len(self.heap)
        heapq.heapify(self.heap)

    @property
    def bound(self) -> float:
        """Seconds that no plan can undercut; infinite if no plan is below the limit that matters."""
        return self.heap[0].value if self.heap else np.inf

    @property
    def work(self) -> int:
        """Numbers worked on so far, approximately; the same on every machine."""
        return self._work + self.prices.work

    def solve(self, work: int, enough: float = np.inf) -> None:
        """Branch until the bound reaches `enough`, `work` numbers have been worked on, or nothing is left to split."""
        while self.heap and self.work < work and self.bound < enough and not self.done:
            lowest = heapq.heappop(self.heap)
            if lowest.number in self.waiting:
                self.waiting.remove(lowest.number)
                self._push(lowest, FIRST_ROUNDS)
            elif splits := self._splits(lowest):
                for half in self._best(lowest, splits):
                    half.number, half.settled = self.made, False
                    self.made += 1
                    self._push(half, ROUNDS)
                    self._recent = [*self._recent, half.prices][-MOST_RECENT:]
            elif not lowest.settled:
                lowest.settled = True
                self._push(lowest, LAST_ROUNDS)
            else:
                heapq.heappush(self.heap, lowest)
                self.done = True

    def go_finer(self) -> bool:
        """Allow splits of ranges half as wide, for when nothing is left to split; False if that is too narrow."""
        self._finer, self.done = self._finer / 2, self._finer <= FINEST
        return not self.done

    def _begun(self, number: int, node: PhaseNode) -> HostNode:
        most, multipliers = node.ranges.ready[1], node.multipliers
        prices: Floats = np.zeros((HOSTS, len(PRICES)))
        prices[:, READY], prices[:, REST] = multipliers.ready_multiplier, multipliers.rest_multiplier
        prices[:, STEP] = multipliers.step_multiplier
        none = Selections(np.zeros((0, HOSTS, len(USED))), np.zeros(0), np.zeros((0, 2 * HOSTS + 2)),
                          np.zeros((0, len(node.open)), dtype=np.int64))  # fmt: skip
        return HostNode(
            node.value, number, node, ((0.0, most),) * HOSTS, prices, multipliers.plane, none, root=number
        )  # fmt: skip

    def _push(self, node: HostNode, rounds: int) -> None:
        """Seek better prices of a node, and keep it if it may hold a plan that matters."""
        self._improve(node, rounds)
        if node.value < np.inf:
            heapq.heappush(self.heap, node)
        else:
            self.impossible.append(node)

    # --- better prices -----------------------------------------------------------------------------------------------

    def _improve(self, node: HostNode, rounds: int) -> None:
        enough = BEYOND * node.value
        known = node.known.of(self.prices.possible(node, node.known))
        value, new = self._tried(node, node.prices[None], np.array([node.plane]))
        programme = HostProgramme(node, self.prices.limits(node), self._ranks, steps=self._step_s(node) > 0)
        known = new = known.and_of(new)
        for _ in range(rounds):
            if value > enough:
                break
            programme.solve(new)
            if programme.value + self.prices.prices.costs.certain(node.node.paid) < value + CLOSE * node.value:
                break
            steps = np.array(STEPS)[:, None, None]
            lists = node.prices + steps * (programme.prices - node.prices)
            found, new = self._tried(node, lists, np.full(len(lists), node.plane), value)
            value, known = max(value, found), known.and_of(new)
        self._work += programme.work
        if value <= enough:
            known = known.and_of(self._tried(node, *self._changes(node), value)[1])
        node.known = known.of(slice(-MOST_KNOWN, None))

    def _tried(self, node: HostNode, prices: Floats, planes: Ints, least: float = -np.inf) -> tuple[float, Selections]:
        """(the highest bound by some prices, what these select); a node keeps prices that beat `least`."""
        values, new = self.prices.evaluate([node], np.zeros(len(prices), dtype=np.int64), prices, planes)
        best = int(values.argmax())
        value = float(values[best])
        if value > node.value:
            node.value, node.proof = value, node.proven_by(prices[best], int(planes[best]))
        if value > least:
            node.prices, node.plane = prices[best], int(planes[best])
        return value, new.of(values < np.inf)

    def _changes(self, node: HostNode) -> tuple[Floats, Ints]:
        """Changes of a node's prices, and of its plane, because the programme does not know what big pieces pay for."""
        others = [plane for plane in range(self.prices.planes) if plane != node.plane]
        lists = [node.prices] * len(others) + [node.prices * (ready, rest, 1, rest) for ready, rest in CHANGES]
        return np.array(lists), np.array(others + [node.plane] * len(CHANGES))

    # --- halves of nodes ---------------------------------------------------------------------------------------------

    def _splits(self, node: HostNode) -> list[Halves]:
        """Splits by the costliest group in use that is not paid for, by ranges of the phases, and by those of hosts."""
        costs, inner = self.prices.prices.costs, node.node
        used: Bools = np.zeros(len(inner.paid), dtype=bool)
        used[node.known.cells[-1] % len(used)] = True
        cost = np.where(used & ~inner.paid, costs.added(inner.paid), 0.0)
        group, pairs = int(cost.argmax()), list[tuple[PhaseNode, PhaseNode]]()
        if cost[group] > FINE * node.value:
            paid, open_ = inner.paid.copy(), inner.open.copy()
            paid[group], open_[:, group] = True, False
            pairs.append(inner.halved("group", group, 0.0, {"open": open_}, {"paid": paid}))
        pairs += split_by_range(inner, self._step_s(node), self._finer * FINE)
        halves = [tuple(replace(node, node=half, seconds=_within(node.seconds, half.ranges.ready[1])) for half in pair)
                  for pair in pairs]  # fmt: skip
        widths = [high - low for low, high in (inner.ranges.ready, inner.ranges.rest)]
        least = max(self._finer * FINE_SECONDS * node.value, NARROWER * max(widths))
        halves += [self._split_host(node, host) for host, (low, high) in enumerate(node.seconds) if high - low > least]
        return [(one, other) for one, other in halves]

    def _step_s(self, node: HostNode) -> float:
        """Seconds of a step of width in the later phases if a rank holds few steps, else 0."""
        return self._ascent.prices.pieces.step_s if self._ascent.has_few_steps(node.node) else 0.0

    def _split_host(self, node: HostNode, host: int) -> Halves:
        """Split by fewer or more seconds of a host. Hosts are alike, so the first one has no more than the other."""
        low, high = node.seconds[host]
        middle = (low + high) / 2
        one, other = list(node.seconds), list(node.seconds)
        one[host], other[host] = (low, middle), (middle, high)
        first, second = node.node.halved("host", host, middle, {}, {})
        return (
            replace(node, node=first, seconds=_ordered(one)), replace(node, node=second, seconds=_ordered(other))
        )  # fmt: skip

    def _best(self, node: HostNode, splits: list[Halves]) -> list[HostNode]:
        """The halves of the split that raises the bound most, the worse half first, by prices of other nodes too."""
        halves = [half for pair in splits for half in pair]
        live = [half for half in halves if _is_possible(half)]
        lists = np.array([node.prices, *self._recent])
        which = np.repeat(np.arange(len(live)), len(lists))
        planes = np.full(len(which), node.plane)
        values, _ = self.prices.evaluate(live, which, np.tile(lists, (len(live), 1, 1)), planes, tells=False)
        values = np.maximum(values.reshape(len(live), -1), node.value)
        for half, own in zip(live, values, strict=True):
            best = int(own.argmax())
            half.value, half.prices = float(own[best]), lists[best]
            if half.value > node.value:
                half.proof = half.proven_by(half.prices, half.plane)
        value = np.array([half.value if _is_possible(half) else np.inf for half in halves]).reshape(-1, 2)
        worse = np.minimum(value.min(axis=1), WORSE_CAP * node.value)
        chosen = int((worse + BETTER_WEIGHT * np.minimum(value.max(axis=1), BETTER_CAP * node.value)).argmax())
        kept = [_is_possible(half) and half.value < np.inf for half in splits[chosen]]
        self.impossible += [
            replace(half, proof=half.proven_by(half.prices, half.plane))
            for half, keep in zip(splits[chosen], kept, strict=True) if not keep
        ]  # fmt: skip
        return [half for half, keep in zip(splits[chosen], kept, strict=True) if keep]


def _is_possible(node: HostNode) -> bool:
    return all(low <= high for low, high in node.seconds)


def _within(seconds: tuple[tuple[float, float], ...], most: float) -> tuple[tuple[float, float], ...]:
    """Ranges of hosts, cut at the most that `ready` may be."""
    return tuple((low, min(high, most)) for low, high in seconds)


def _ordered(seconds: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Ranges of two hosts, cut because the first has no more seconds than the second."""
    (low, high), (other_low, other_high) = seconds
    return (low, min(high, other_high)), (max(low, other_low), other_high)


def alike(nodes: Sequence[PhaseNode]) -> list[list[PhaseNode]]:
    """Lists of nodes that use and pay for the same groups, each with the lowest node first."""
    found: dict[bytes, list[PhaseNode]] = {}
    for node in sorted(nodes):
        found.setdefault(node.open.any(axis=0).tobytes() + node.paid.tobytes(), []).append(node)
    return list(found.values())


def _joined(nodes: Sequence[PhaseNode]) -> PhaseNode:
    """A node that allows all that these nodes allow, which use and pay for the same groups."""
    joined = copy(nodes[0])
    joined.open = np.logical_or.reduce([node.open for node in nodes])
    joined.ranges = PhaseRanges(
        _hull([node.ranges.ready for node in nodes]), _hull([node.ranges.rest for node in nodes])
    )
    joined.path = ()
    return joined


def _hull(ranges: list[tuple[float, float]]) -> tuple[float, float]:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def host_branching(evaluator: Evaluator, search: PhaseBranching, *, joined: bool = True) -> HostBranching | None:
    """A search with two hosts distinguished; None unless there are two equal hosts and tables that cover one.

    Tables must cover a host in the nodes with the lowest bounds. joined: whether open nodes of `search` that use the
    same groups are joined at first.
    """
    if not search.heap or not can_tell_hosts_apart(search.prices, evaluator.problem):
        return None
    pieces = search.prices.pieces
    selected = np.concatenate(search.selections(MOST_SELECTED))
    return HostBranching(search, joined=joined) if np.isin(selected, pieces.group[pieces.size != 1]).any() else None
