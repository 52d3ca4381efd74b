"""Loads and memory of all devices while a search places pieces and takes them back.

Legend: P pieces, W ranks, H hosts, L ranks a host, G fusion groups, F phases of the step, k work terms. A piece's
targets are the ranks, the hosts, or the one world, by its span.
"""

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs import Evaluator, phase_seconds
from recsmith.sharding import TYPE_NAMES, Span

QUANTUM = 2.0**-20  # loads are compared as integers of this share of the mean load, so rounding decides nothing


class DeviceState:
    """What every device carries. `weights` (P,) replaces the cost model's seconds by a plain score to balance.

    loads (F, W): seconds of the pieces on each rank; common (F,): what every rank spends on top, whatever it holds.
    level (F,): mean loads to expect; only their proportion matters.
    crowding: what a full device counts for beside its load: 1 as much as one at the level, 0 not at all.
    """

    def __init__(self, evaluator: Evaluator, weights: Floats | None = None) -> None:
        problem = self.problem = evaluator.problem
        self.evaluator = evaluator
        self.terms = evaluator.terms(problem.pieces.mode, problem.pieces.width)
        alone = evaluator.loads(self.terms) if weights is None else weights[None]
        self.phases: Floats = alone  # (F, P)
        self.seconds: Floats = alone.sum(axis=0)
        self.marginal: Floats = self._marginal() if weights is None else alone
        self.additive = weights is not None or (evaluator.additive and len(alone) == 1)
        self.shared: Floats = phase_seconds(evaluator, evaluator.shared).T  # (G, F)
        self.shares = weights is None and bool(self.shared.any())
        self.level = np.ones(len(alone))
        self.crowding = 0.0
        self.effort = 0  # numbers worked on by local search: a clock that runs alike on every machine
        self.span = problem.modes.span[problem.pieces.mode]
        self.coverage = problem.modes.coverage[problem.pieces.mode]
        self.hosts, self.local = problem.cluster.hosts, problem.cluster.local_world_size
        # One piece at a time is asked for below, and plain lists answer faster than arrays.
        self._size: list[int] = self.coverage.tolist()
        self._seconds: list[float] = self.seconds.tolist()
        self.group: Ints = evaluator.group[problem.pieces.mode]
        self._group: list[int] = self.group.tolist()
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

    def _marginal(self) -> Floats:
        """Seconds per phase (F, P) that a piece adds to a group that holds its like already."""
        return self.evaluator.loads(2 * self.terms) - self.evaluator.loads(self.terms)

    def clear(self) -> None:
        """Take everything back."""
        world, groups, phases = self.problem.cluster.world_size, self.evaluator.groups, len(self.phases)
        self.loads = np.zeros((phases, world))
        self.common = np.zeros(phases)
        self.free = self.problem.capacity.copy()
        self.host_free = self.problem.host_capacity.copy()
        self.in_group = [0] * groups
        detail = 0 if self.additive else groups
        self.sums = np.zeros((detail, world, self.terms.shape[1]))
        self.group_loads = np.zeros((detail, phases, world))

    def expect(self, pieces: Ints) -> None:
        """Tell what is going to be placed, so that phases are weighed by how much there is of each."""
        total = (self.phases[:, pieces] * self.coverage[pieces]).sum(axis=1) / self.loads.shape[1]
        self.level = np.maximum(total, max(float(total.max(initial=0.0)) * QUANTUM, 1e-300))

    @property
    def powered(self) -> bool:
        """Whether `preference` is a growth of powers."""
        return len(self.loads) > 1 or self.crowding > 0

    @property
    def load(self) -> Floats:
        """Seconds of the pieces on each rank (W,), over all phases."""
        return self.loads[0] if len(self.loads) == 1 else self.loads.sum(axis=0)

    @property
    def total(self) -> float:
        """Seconds of the step."""
        return float((self.loads.max(axis=1) + self.common).sum())

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

    def preference(self, piece: int) -> Floats:
        """How unwelcome a piece is on each target: its load then; beside other phases or bytes, growth of powers."""
        after = self.loads + self._seconds[piece] if self.additive else self._loads_with(piece)
        score = after[0]
        if self.powered:
            level = self.level[:, None]
            score = (level * (_eighth(after / level) - _eighth(self.loads / level))).sum(axis=0)
        if self.crowding:
            score = score + self.level.sum() * self._crowded(piece)
        return score if self._one_rank[piece] else score.reshape(-1, self._size[piece]).max(axis=1)

    def _crowded(self, piece: int) -> Floats:
        """Growth of the power of each rank's used share of memory (W,), were the piece on it."""
        scale = self.crowding / self.problem.capacity
        used, size = self.crowding - self.free * scale, self._tail[piece] * scale
        return _eighth(used + size) - _eighth(used)

    def _loads_with(self, piece: int) -> Floats:
        """Loads (F, W) of each rank, were the piece on it."""
        group = self._group[piece]
        after = self.evaluator.loads(self.sums[group] + self.terms[piece])
        return self.loads - self.group_loads[group] + after

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
            self.loads[0, ranks] += sign * self._seconds[piece]
            return
        group = self._group[piece]
        self.in_group[group] += sign
        if self.shares and self.in_group[group] == max(sign, 0):  # the first to come, or the last to go
            self.common += sign * self.shared[group]
        self.sums[group, ranks] += sign * self.terms[piece]
        after = self.evaluator.loads(self.sums[group, ranks])
        self.loads[:, ranks] += after - self.group_loads[group][:, ranks]
        self.group_loads[group][:, ranks] = after


def _eighth(ratio: Floats) -> Floats:
    """The eighth power, by squaring: high enough that balance in the fullest dimension decides."""
    square = ratio * ratio
    square *= square
    return square * square
