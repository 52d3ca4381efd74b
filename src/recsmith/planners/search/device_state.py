"""What a search has placed: the option and targets of every table, and what every device carries.

Legend: T tables, N pieces of the options taken, P pieces, W ranks, H hosts, L ranks a host, G fusion groups, F phases
of the step, k work terms, O options. A piece's targets are the ranks, the hosts, or the one world, by its span;
sharding/coverage.py defines which ranks these are.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.linear_bounds import piece_work
from recsmith.costs import Evaluator, phase_seconds
from recsmith.costs.group_loads import GroupLoads, HasGroupLoads
from recsmith.planners.search.smooth_max import LEAST_LOAD, power
from recsmith.planners.solver.linear_pieces import LinearPieces, linear_pieces_of
from recsmith.problems import NO_PIECE, Footprint, Problem
from recsmith.problems.footprint import ordered_footprint
from recsmith.sharding import TYPE_NAMES, Span
from recsmith.sharding.coverage import by_target, first_rank, last_rank

NOWHERE = -1  # the target of a piece that is not placed
QUANTUM = (
    2.0**-20
)  # relative: loads are compared as multiples of this share of the mean load, so rounding decides nothing
BALANCE = 8  # power of relative loads: high enough that the fullest phase or memory decides where a piece is placed


@dataclass
class Assignment:
    """One option per table (T,), and for each of its pieces (N,) the table, the piece, and its target or NOWHERE."""

    option: Ints
    table: Ints
    piece: Ints
    target: Ints

    @classmethod
    def of(cls, problem: Problem, choice: Ints) -> "Assignment":
        """The pieces of the chosen options (T,), in order of tables, wide first, none placed yet."""
        piece, count = problem.options.piece[choice], problem.options.count[choice]
        table = np.repeat(np.arange(len(choice)), count.sum(axis=1))
        pieces = np.repeat(piece.ravel(), count.ravel())
        return cls(choice, table, pieces[pieces != NO_PIECE], np.full(len(table), NOWHERE))

    @staticmethod
    def options_of(problem: Problem, footprint: Footprint) -> Ints:
        """The option of each table (T,) from placed pieces; NO_PIECE if a table's split matches none of its options."""
        placed = ordered_footprint(problem, footprint.mode, footprint.width, footprint.target)
        mode, width, tables = placed.mode, placed.width, np.arange(len(problem.tables) + 1)
        start = np.searchsorted(problem.modes.table[mode], tables).tolist()
        return np.array([_option_of(problem, t, int(mode[a]), width[a:b]) for t, (a, b) in enumerate(pairwise(start))])

    @classmethod
    def from_footprint(cls, problem: Problem, footprint: Footprint) -> "Assignment | None":
        """The assignment of placed pieces; None if a table's split matches none of its options."""
        choice = cls.options_of(problem, footprint)
        if (choice == NO_PIECE).any():
            return None
        made = cls.of(problem, choice)
        made.target[:] = ordered_footprint(problem, footprint.mode, footprint.width, footprint.target).target
        return made

    @classmethod
    def of_table(cls, option: int, piece: Ints, target: Ints) -> "Assignment":
        """The pieces of one table alone."""
        return cls(np.array([option]), np.zeros(len(piece), dtype=np.int64), piece, target)

    def footprint(self, problem: Problem) -> Footprint:
        """The placed pieces, in order of tables."""
        return Footprint(problem.pieces.mode[self.piece], problem.pieces.width[self.piece], self.target)

    @property
    def complete(self) -> bool:
        """Whether every piece is placed."""
        return bool((self.target != NOWHERE).all())

    def siblings(self, i: int) -> Ints:
        """The other pieces of the table of piece i."""
        first, last = np.searchsorted(self.table, [self.table[i], self.table[i] + 1])
        return np.array([j for j in range(first, last) if j != i], dtype=np.int64)


def _option_of(problem: Problem, table: int, mode: int, widths: Ints) -> int:
    """The option of a table with this mode and these widths (wide first), or NO_PIECE."""
    options = problem.options
    own = np.arange(int(options.start[table]), int(options.start[table + 1]))
    own = own[(options.mode[own] == mode) & (options.count[own].sum(axis=1) == len(widths))]
    for option in own.tolist():
        pieces = np.repeat(options.piece[option], options.count[option])
        if np.array_equal(problem.pieces.width[pieces], widths):
            return option
    return NO_PIECE


# --- devices ----------------------------------------------------------------------------------------------------------


class DeviceState:
    """What every device carries. `weights` (P,) replaces the cost model's seconds by a plain score to balance.

    loads (F, W): seconds of the pieces on each rank. common (F,): seconds that every rank spends in addition, whatever
    it holds. expected (F,): mean loads once all pieces are placed; only their proportions matter. memory_weight: how
    much a full device counts compared with its load: 1 as much as an expected load, 0 nothing. on (R, W): shards of
    tables in groups (problems/legality.py). free (W,), host_free (H,): bytes. bytes_held: bytes that pieces (P,) take,
    as four arrays: of each rank but the last, of the last rank, of each host but the last, and of the last host.
    effort: numbers that local search has worked on, a clock that runs at the same speed on every machine.
    """

    def __init__(self, evaluator: Evaluator, weights: Floats | None = None) -> None:
        problem = self.problem = evaluator.problem
        self.evaluator, self._by_model = evaluator, weights is None
        self.terms = piece_work(evaluator).terms
        alone = evaluator.loads(self.terms) if weights is None else weights[None]
        self.phases: Floats = alone  # (F, P)
        self.seconds: Floats = alone.sum(axis=0)
        self.marginal: Floats = self._marginal() if weights is None else alone
        self.additive = weights is not None or (evaluator.additive and len(alone) == 1)
        self.shared: Floats = phase_seconds(evaluator, evaluator.shared).T  # (G, F)
        self.any_shared = weights is None and bool(self.shared.any())
        self.expected = np.ones(len(alone))
        self.memory_weight = 0.0
        self.effort = 0
        self.span = problem.modes.span[problem.pieces.mode]
        self.coverage = problem.modes.coverage[problem.pieces.mode]
        self.hosts, self.local = problem.cluster.hosts, problem.cluster.local_world_size
        self.group: Ints = evaluator.group[problem.pieces.mode]
        mixed = (problem.options.count > 0).sum(axis=1) > 1
        host_bound = problem.modes.type == TYPE_NAMES.index("table_column_wise")
        self.on_one_host: Bools = host_bound[problem.options.mode] & (self.hosts > 1)  # (O,)
        self.tied: Bools = mixed | self.on_one_host  # (O,): whether pieces restrict their siblings' targets
        # The methods below look up one piece at a time, for which plain lists are faster than arrays.
        self._size: list[int] = self.coverage.tolist()
        self._seconds: list[float] = self.seconds.tolist()
        self._group: list[int] = self.group.tolist()
        self._head: list[int] = problem.pieces.head.device.tolist()
        self._tail: list[int] = problem.pieces.tail.device.tolist()
        before_tail = np.minimum(self.coverage, self.local) - 1  # ranks before the tail's rank on the tail's host
        on_last_host: Ints = before_tail * problem.pieces.head.host + problem.pieces.tail.host
        on_other_hosts: Ints = self.local * problem.pieces.head.host
        self.bytes_held = (problem.pieces.head.device, problem.pieces.tail.device, on_other_hosts, on_last_host)
        self._last_host: list[int] = on_last_host.tolist()
        self._other_hosts: list[int] = on_other_hosts.tolist()
        self._one_rank: list[bool] = (self.span == int(Span.RANK)).tolist()
        self.legality, table = problem.legality, problem.modes.table[problem.pieces.mode]
        self._table: list[int] = table.tolist()
        self._row: list[int] = problem.legality.row[table].tolist()
        self.clear()

    def _marginal(self) -> Floats:
        """Seconds per phase (F, P) that a piece adds to a group that already holds an equal piece."""
        return self.evaluator.loads(2 * self.terms) - self.evaluator.loads(self.terms)

    @cached_property
    def linear_pieces(self) -> LinearPieces | None:
        """The cost model as the largest of linear functions; None if it has no such form or a score is balanced."""
        return linear_pieces_of(self.evaluator, self.terms) if self._by_model else None

    @cached_property
    def compiled_loads(self) -> GroupLoads | None:
        """The cost model in the form of compiled annealing; None if the compiled code does not support it."""
        if self.linear_pieces is not None:
            return self.linear_pieces.group_loads
        if not self._by_model or not isinstance(self.evaluator, HasGroupLoads):
            return None
        return self.evaluator.group_loads

    def clear(self) -> None:
        """Remove all pieces."""
        world, groups, phases = self.problem.cluster.world_size, self.evaluator.groups, len(self.phases)
        self.loads = np.zeros((phases, world))
        self.common = np.zeros(phases)
        self.free = self.problem.capacity.copy()
        self.host_free = self.problem.host_capacity.copy()
        self.in_group = [0] * groups
        self.on = self.legality.nothing_placed()
        detail = 0 if self.additive else groups
        self.sums = np.zeros((detail, world, self.terms.shape[1]))
        self.group_loads = np.zeros((detail, phases, world))

    def expect(self, pieces: Ints) -> None:
        """Set `expected` from the pieces that will be placed, so that phases are weighed by their total load."""
        total = (self.phases[:, pieces] * self.coverage[pieces]).sum(axis=1) / self.loads.shape[1]
        self.expected = np.maximum(total, max(float(total.max(initial=0.0)) * QUANTUM, LEAST_LOAD))

    @property
    def balances_powers(self) -> bool:
        """Whether `preference` is a growth of powers, because several phases, or bytes too, are balanced at once."""
        return len(self.loads) > 1 or self.memory_weight > 0

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
        on_last_host, tail = self._last_host[piece], self._tail[piece]
        if self._one_rank[piece]:
            room = self.free >= tail
            return np.logical_and(room, np.repeat(self.host_free >= on_last_host, self.local)) if on_last_host else room
        free = by_target(self.free, self._size[piece])
        room = (free[:, :-1] >= self._head[piece]).all(axis=1) & (free[:, -1] >= tail)
        hosts = self.host_free.reshape(len(free), -1)
        return room & (hosts[:, :-1] >= self._other_hosts[piece]).all(axis=1) & (hosts[:, -1] >= on_last_host)

    def may_hold(self, piece: int) -> Bools:
        """Which targets the constraints allow for a piece, given what is placed."""
        return self.legality.targets(self._table[piece], self._size[piece], self.on)

    def preference(self, piece: int) -> Floats:
        """What each target costs for a piece, lower being better: its load with the piece, or the growth of powers.

        The load decides if it is the only balanced quantity. If several phases, or bytes too, are balanced, the growth
        of the powers of each decides, relative to its expected value.
        """
        after = self.loads + self._seconds[piece] if self.additive else self._loads_with(piece)
        score = after[0]
        if self.balances_powers:
            expected = self.expected[:, None]
            growth = power(after / expected, BALANCE) - power(self.loads / expected, BALANCE)
            score = (expected * growth).sum(axis=0)
        if self.memory_weight:
            score = score + self.expected.sum() * self._memory_growth(piece)
        return score if self._one_rank[piece] else by_target(score, self._size[piece]).max(axis=1)

    def _memory_growth(self, piece: int) -> Floats:
        """Growth of the power of each rank's used share of memory (W,) if the piece were placed on it."""
        scale = self.memory_weight / self.problem.capacity
        used, size = self.memory_weight - self.free * scale, self._tail[piece] * scale
        return power(used + size, BALANCE) - power(used, BALANCE)

    def _loads_with(self, piece: int) -> Floats:
        """Loads (F, W) of each rank if the piece were placed on it."""
        group = self._group[piece]
        after = self.evaluator.loads(self.sums[group] + self.terms[piece])
        return self.loads - self.group_loads[group] + after

    def place(self, piece: int, target: int, sign: int = 1) -> None:
        """Place a piece on a target; sign -1 removes it."""
        size = self._size[piece]
        first, last = first_rank(target, size), last_rank(target, size)
        ranks = slice(first, last + 1)
        if self._row[piece] >= 0:
            self.on[self._row[piece], ranks] += sign
        self.free[ranks] -= sign * self._head[piece]
        self.free[last] += sign * (self._head[piece] - self._tail[piece])
        if self._last_host[piece]:
            self.host_free[first // self.local : last // self.local] -= sign * self._other_hosts[piece]
            self.host_free[last // self.local] -= sign * self._last_host[piece]
        if self.additive:
            self.loads[0, ranks] += sign * self._seconds[piece]
            return
        group = self._group[piece]
        self.in_group[group] += sign
        if self.any_shared and self.in_group[group] == max(sign, 0):  # the first to come, or the last to go
            self.common += sign * self.shared[group]
        self.sums[group, ranks] += sign * self.terms[piece]
        after = self.evaluator.loads(self.sums[group, ranks])
        self.loads[:, ranks] += after - self.group_loads[group][:, ranks]
        self.group_loads[group][:, ranks] = after

    def count_groups(self, pieces: Ints) -> None:
        """Count pieces in their groups, and add the shared seconds of newly used groups; all else is placed already."""
        for group in self.group[pieces].tolist():
            self.in_group[group] += 1
            if self.any_shared and self.in_group[group] == 1:
                self.common += self.shared[group]
