"""Loads and memory of all devices while a search places pieces and takes them back.

Legend: P pieces, W ranks, H hosts, L ranks a host, G fusion groups, k work terms. A piece's targets are the ranks,
the hosts, or the one world, by its span.
"""

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs import Evaluator
from recsmith.sharding import Span

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
        self.group = evaluator.group[problem.pieces.mode]
        self.hosts, self.local = problem.cluster.hosts, problem.cluster.local_world_size
        self.clear()

    def clear(self) -> None:
        """Take everything back."""
        world, groups = self.problem.cluster.world_size, self.evaluator.groups
        self.load = np.zeros(world)
        self.free = self.problem.capacity.copy()
        self.host_free = self.problem.host_capacity.copy()
        self.sums = np.zeros((0 if self.additive else world, groups, self.terms.shape[1]))
        self.group_load = np.zeros((0 if self.additive else world, groups))

    def need(self, piece: int) -> Ints:
        """Device bytes of a piece on each rank that it covers."""
        size = self.coverage[piece]
        need = np.full(size, self.problem.pieces.head.device[piece])
        need[-1] = self.problem.pieces.tail.device[piece]
        return need

    def _host_need(self, piece: int, ranks: int) -> int:
        head, tail = self.problem.pieces.head.host[piece], self.problem.pieces.tail.host[piece]
        return int((ranks - 1) * head + tail)

    def fits(self, piece: int) -> Bools:
        """Which targets have room for a piece."""
        if self.span[piece] == Span.RANK:
            room = self.free >= self.problem.pieces.tail.device[piece]
            held = self.problem.pieces.tail.host[piece]
            return np.logical_and(room, np.repeat(self.host_free >= held, self.local)) if held else room
        held = self._host_need(piece, self.local)
        room = self.free.reshape(-1, len(self.need(piece))) >= self.need(piece)
        hosts = (self.host_free >= held).reshape(len(room), -1)
        return np.logical_and(room.all(axis=1), hosts.all(axis=1))

    def load_with(self, piece: int) -> Floats:
        """Load of each target, were the piece there: its rank's, or the largest of its ranks'."""
        if self.additive:
            load = self.load + self.seconds[piece]
        else:
            group = self.group[piece]
            after = self.evaluator.head(self.sums[:, group] + self.terms[piece]).sum(axis=-1)
            load = self.load - self.group_load[:, group] + after
        return load if self.span[piece] == Span.RANK else load.reshape(-1, len(self.need(piece))).max(axis=1)

    def place(self, piece: int, target: int, sign: int = 1) -> None:
        """Put a piece on a target; sign -1 takes it back."""
        size = int(self.coverage[piece])
        ranks = slice(target * size, (target + 1) * size)
        self.free[ranks] -= sign * self.need(piece)
        held = self._host_need(piece, min(size, self.local))
        if held:
            first = target * size // self.local
            self.host_free[first : first + max(1, size // self.local)] -= sign * held
        if self.additive:
            self.load[ranks] += sign * self.seconds[piece]
            return
        group = self.group[piece]
        self.sums[ranks, group] += sign * self.terms[piece]
        after = self.evaluator.head(self.sums[ranks, group]).sum(axis=-1)
        self.load[ranks] += after - self.group_load[ranks, group]
        self.group_load[ranks, group] = after
