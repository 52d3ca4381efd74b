"""The least cost of tables if two hosts are distinguished, by prices for the seconds of each.

A node gives T, the seconds that pieces of hosts take on each of two hosts. Every rank of a host has these T seconds, so
only the rest of the node's `ready`, minus one more launch, is left there for pieces of single ranks. A piece that takes
longer is not on that host. docs/bounds.md proves it.

Legend: K price lists, U nodes, N pieces, C different tables, G fusion groups, P planes, o options that span the world.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from recsmith._compiled import call_compiled, compiled
from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.linear_bounds import ROUNDING
from recsmith.bounds.phase_nodes import STEPS_SAFE, Halving, PhaseNode, in_steps, least_product
from recsmith.bounds.phase_prices import TablePrices
from recsmith.bounds.table_totals import MOST_STEPS
from recsmith.elementary import distinct
from recsmith.problems import Problem

CODE = "bounds._hosts"
HOSTS = 2
PRICES = READY, REST, DISCOUNT, STEP = range(4)  # of a host: per second in each phase; deducted per second of its own
# pieces; per second in the later phases, counted in whole steps of width
USED = OF_RANKS, OF_HOST, LATER, WHOLE = range(4)  # seconds on a host, over all of its ranks: of pieces of ranks; of
# pieces of the host; in the later phases; and these in whole steps
STEPPED, OF_HOSTS = 4, 5  # limits of a node: ends of both ranges, a rank's seconds in whole steps; then those of hosts
HOST_LIMITS, TIMES = 3, 2  # of a host: most seconds of a rank's piece, of the host's, and how often the former count
SAFE = 1 + 1e-9  # times the most seconds of a piece, above rounding errors
LEAST_LEFT = 1e-3  # of the room on a host: with less left after a launch, rounding could count seconds too often
OPERATIONS = 150  # operations on each piece, roughly: counts work equally on every machine
CALL = 500_000  # numbers that could be worked on while Python sets up one evaluation


class Selections(NamedTuple):
    """What price lists select: on each host what its ranks take (K, hosts, 4), and seconds of worldwide options (K,).

    largest (K, 6): seconds of the largest piece of a rank, and of the host, on each host; and of any piece, in both
    phases. cells (K, C): different table * G + group.
    """

    used: Floats
    worldwide: Floats
    largest: Floats
    cells: Ints

    def of(self, which: Ints | Bools | slice) -> "Selections":
        """Some of these selections."""
        return Selections(self.used[which], self.worldwide[which], self.largest[which], self.cells[which])

    def and_of(self, others: "Selections") -> "Selections":
        """These selections, followed by others."""
        return Selections(
            np.concatenate([self.used, others.used]), np.concatenate([self.worldwide, others.worldwide]),
            np.concatenate([self.largest, others.largest]), np.concatenate([self.cells, others.cells]),
        )  # fmt: skip


class HostProof(NamedTuple):
    """The proof of a node's value: prices for the node itself, or for one that it was split from, given by its path."""

    path: tuple[Halving, ...]
    prices: Floats
    plane: int


@dataclass(order=True)
class HostNode:
    """A part of the space: plans by the seconds that pieces of hosts take on each of two hosts.

    value: seconds that no plan of the part can undercut. node: what else the part fixes. seconds: (least, most) of each
    host. prices (hosts, 4), plane: the best found, and the plane that decides which pieces are big. known: what other
    prices select. settled: whether its prices were sought for long. root: number of the node that it came from. proof:
    of its value; None if that is from the search before.
    """

    value: float
    number: int
    node: PhaseNode = field(compare=False)
    seconds: tuple[tuple[float, float], ...] = field(compare=False)
    prices: Floats = field(compare=False)
    plane: int = field(compare=False)
    known: Selections = field(compare=False)
    settled: bool = field(compare=False, default=False)
    root: int = field(compare=False, default=0)
    proof: HostProof | None = field(compare=False, default=None)

    def proven_by(self, prices: Floats, plane: int) -> HostProof:
        """A proof of the node's value by prices of its own."""
        return HostProof(self.node.path, prices, plane)


def can_tell_hosts_apart(prices: TablePrices, problem: Problem) -> bool:
    """Whether there are two equal hosts with pieces of their own; False without compiled code, which is too slow."""
    pieces, cluster = prices.pieces, problem.cluster
    own: Bools = pieces.size != 1
    limited = problem.legality.open is not None or bool(problem.constraints.between)
    alike = cluster.hosts == HOSTS and not limited and len(distinct(problem.capacity)) == 1
    grouped_apart = not np.isin(pieces.group[own], pieces.group[~own]).any()
    of_hosts = bool(own.any() and (pieces.size[own] == cluster.local_world_size).all())
    known = prices.suits_fillings() and all(family.shape[1] <= MOST_STEPS for family in pieces.families)
    return bool(compiled(CODE) is not None and alike and grouped_apart and of_hosts and known)


class HostPrices:
    """The least prices of tables on two hosts, for many price lists at once; seconds by one mix of planes.

    mix: of each group, shares of the planes. work: numbers worked on so far, approximately; the same on every machine.
    """

    def __init__(self, prices: TablePrices, mix: Floats) -> None:
        """Take each group's seconds by a mix (G, J) of the planes."""
        self.prices, self.mix, self.launch, self.work = prices, mix, prices.planes.launch, 0
        pieces, planes = prices.pieces, mix.shape[1]
        seconds: Floats = np.zeros(len(pieces.group))
        for plane in range(planes):  # in this order: the same bits everywhere
            seconds += pieces.ready[:, plane] * mix[pieces.group, plane]
        worldwide: Floats = np.zeros(len(prices.worldwide_group))
        for plane in range(planes):
            worldwide += prices.worldwide[:, plane] * mix[prices.worldwide_group, plane]
        ready: Floats = np.column_stack([pieces.ready, seconds]).T
        usable, one = pieces.fits & (ready > 0), pieces.size == 1
        self.planes = len(ready)
        families = [family.shape for family in pieces.families]
        self._numbers = OPERATIONS * len(seconds) + 2 * sum(modes * steps * steps for modes, steps in families)
        self._arrays = (
            *map(_floats, (seconds, ready, np.divide(1.0, ready, where=usable, out=np.zeros_like(ready)))),
            np.where(pieces.fits, ready, np.inf).min(axis=1, initial=np.inf),
            *map(_floats, (pieces.rest, pieces.in_steps, pieces.alone, pieces.alone_rest)),
            np.where(pieces.fits, 0.0, np.inf), *map(_floats, (pieces.size, one)), _ints(families).ravel(),
            _floats(pieces.count), _ints(prices.key), _floats(worldwide), _floats(prices.copies),
        )  # fmt: skip

    def limits(self, node: HostNode) -> Floats:
        """The limits of a node (OF_HOSTS + hosts * HOST_LIMITS,)."""
        (r0, r1), (s0, s1) = node.node.ranges.ready, node.node.ranges.rest
        limits = [r0, r1, s0, s1, float(in_steps(np.array(s1), self.prices.pieces.step_s, STEPS_SAFE))]
        for least, most in node.seconds:
            room = r1 - least
            left = room - (self.launch if least > 0 else 0.0)
            limits += [left * SAFE, most * SAFE, room / left if left > LEAST_LEFT * room else 1.0]
        return np.array(limits)

    def possible(self, node: HostNode, known: Selections) -> Bools:
        """Which selections (K,) a node allows."""
        limits = self.limits(node)
        of_hosts = limits[OF_HOSTS:].reshape(HOSTS, HOST_LIMITS)
        most = [*of_hosts[:, :TIMES].ravel(), limits[1], limits[3]]
        large, open_ = known.largest > most, node.node.open.ravel()[known.cells]
        return ~np.logical_or.reduce(large, axis=1) & np.logical_and.reduce(open_, axis=1)

    def evaluate(
        self, nodes: Sequence[HostNode], which: Ints, prices: Floats, planes: Ints, *, tells: bool = True
    ) -> tuple[Floats, Selections]:
        """(bounds (K,) of nodes by prices (K, hosts, 4), what these select, which is only filled in if `tells`).

        which (K,): the node of each list. planes (K,): the planes that decide which pieces are big.
        """
        lists, tables, groups = len(which), len(self.prices.copies), self.prices.groups
        self.work += CALL + lists * self._numbers
        least, used = np.empty(lists), np.zeros((lists, len(USED) * HOSTS + 1))
        largest, cells = np.zeros((lists, 2 * HOSTS + 2)), np.zeros((lists, tables), dtype=np.int64)
        limits, pieces = np.array([self.limits(node) for node in nodes]), self.prices.pieces
        sizes = (len(pieces.group), self.planes, lists, len(nodes), tables, groups, len(self.prices.worldwide),
                 *pieces.count.shape, self.prices.world, tells)  # fmt: skip
        call_compiled(
            compiled(CODE).price,
            (_ints(sizes), *self._arrays, _ints([node.node.open for node in nodes]), limits, _ints(which),
             _floats(prices), _ints(planes), least, used, largest, cells),
        )  # fmt: skip
        selected = Selections(used[:, :-1].reshape(lists, HOSTS, len(USED)), used[:, -1], largest, cells)
        certain = np.array([self.prices.costs.certain(node.node.paid) for node in nodes])
        lowest = limits[:, 0] + limits[:, 2]
        value = np.maximum(least + self._constant(nodes, limits, which, prices), lowest[which]) + certain[which]
        return value * (1 - ROUNDING), selected

    def _constant(self, nodes: Sequence[HostNode], limits: Floats, which: Ints, prices: Floats) -> Floats:
        """What ranges add to the prices of tables (K,), at their worse ends."""
        seconds = np.array([node.seconds for node in nodes])[which]
        mean = prices.sum(axis=1) / HOSTS
        constant = least_product(1 - mean[:, READY], limits[which, 0:2])
        constant += least_product(1 - mean[:, REST], limits[which, 2:4]) - mean[:, STEP] * limits[which, STEPPED]
        for host in range(HOSTS):
            constant += least_product(prices[:, host, DISCOUNT], seconds[:, host]) / HOSTS
        return constant


def _ints(values: object) -> Ints:
    return np.ascontiguousarray(values, dtype=np.int64)  # pyright: ignore


def _floats(values: object) -> Floats:
    return np.ascontiguousarray(values, dtype=np.float64)  # pyright: ignore
