"""Loads and memory of all devices while a search places pieces and takes them back.

Legend: P pieces, W ranks, H hosts, L ranks a host, G fusion groups, k work terms. A piece's targets are the ranks,
the hosts, or the one world, by its span.
"""

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.costs import Evaluator
from recsmith.sharding import TYPE_NAMES, Span

QUANTUM = 2.0**-20  # loads are compared as integers of this share of the mean load, so rounding decides nothing


class Ledger:
    """What every device carries. `weights` (P,) replaces the cost model's seconds by a plain score to balance."""

    def __init__(self, evaluator: Evaluator, weights: Floats | None = None) -> None:
        problem = self.problem = evaluator.problem
        self.evaluator = evaluator
        self.terms = evaluator.terms(problem.pieces.mode, problem.pieces.width)
        self.seconds = evaluator.head(self.terms).sum(axis=-1) if weights is None else weights
        self.additive = evaluator.additive or weights is not None
        self.span = problem.modes.span[problem.pieces.mode]
        self.coverage = problem.modes.coverage[problem.pieces.mode]
        self.hosts, self.local = problem.cluster.hosts, problem.cluster.local_world_size
        # One piece at a time is asked for below, and plain lists answer faster than arrays.
        self._size: list[int] = self.coverage.tolist()
        self._seconds: list[float] = self.seconds.tolist()
        self._group: list[int] = evaluator.group[problem.pieces.mode].tolist()
        self._head: list[int] = problem.pieces.head.device.tolist()
        self._tail: list[int] = problem.pieces.tail.device.tolist()
        on_hosts = np.minimum(self.coverage, self.local) - 1
        self._held: list[int] = (on_hosts * problem.pieces.head.host + problem.pieces.tail.host).tolist()  # last host
        self._full: list[int] = (self.local * problem.pieces.head.host).tolist()  # hosts before the last
        mixed = (problem.options.count > 0).all(axis=1)
        self.on_one_host: Bools = problem.modes.type[problem.options.mode] == TYPE_NAMES.index("table_column_wise")
        self.tied: Bools = mixed | self.on_one_host  # options (O,) whose pieces may not stand anywhere
        self._one_rank: list[bool] = (self.span == int(Span.RANK)).tolist()
        self.clear()

    def clear(self) -> None:
        """Take everything back."""
        world, groups = self.problem.cluster.world_size, self.evaluator.groups
        self.load = np.zeros(world)
        self.free = self.problem.capacity.copy()
        self.host_free = self.problem.host_capacity.copy()
        self.sums = np.zeros((0 if self.additive else world, groups, self.terms.shape[1]))
        self.group_load = np.zeros((0 if self.additive else world, groups))

    def fits(self, piece: int) -> Bools:
        """Which targets have room for a piece."""
        held, tail = self._held[piece], self._tail[piece]
        if self._one_rank[piece]:
            room = self.free >= tail
            return np.logical_and(room, np.repeat(self.host_free >= held, self.local)) if held else room
        free = self.free.reshape(-1, self._size[piece])
        room = (free[:, :-1] >= self._head[piece]).all(axis=1) & (free[:, -1] >= tail)
        hosts = self.host_free.reshape(len(free), -1)
        return room & (hosts[:, :-1] >= self._full[piece]).all(axis=1) & (hosts[:, -1] >= held)

    def load_with(self, piece: int) -> Floats:
        """Load of each target, were the piece there: its rank's, or the largest of its ranks'."""
        if self.additive:
            load = self.load + self._seconds[piece]
        else:
            group = self._group[piece]
            after = self.evaluator.head(self.sums[:, group] + self.terms[piece]).sum(axis=-1)
            load = self.load - self.group_load[:, group] + after
        return load if self._one_rank[piece] else load.reshape(-1, self._size[piece]).max(axis=1)

    def place(self, piece: int, target: int, sign: int = 1) -> None:
        """Put a piece on a target; sign -1 takes it back."""
        size = self._size[piece]
        ranks = slice(target * size, (target + 1) * size)
        self.free[ranks] -= sign * self._head[piece]
        self.free[(target + 1) * size - 1] += sign * (self._head[piece] - self._tail[piece])
        if self._held[piece]:
            first, last = target * size // self.local, ((target + 1) * size - 1) // self.local
            self.host_free[first:last] -= sign * self._full[piece]
            self.host_free[last] -= sign * self._held[piece]
        if self.additive:
            self.load[ranks] += sign * self._seconds[piece]
            return
        group = self._group[piece]
        self.sums[ranks, group] += sign * self.terms[piece]
        after = self.evaluator.head(self.sums[ranks, group]).sum(axis=-1)
        self.load[ranks] += after - self.group_load[ranks, group]
        self.group_load[ranks, group] = after
