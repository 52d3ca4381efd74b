"""A problem's whole space as a model of integers, for CP-SAT of OR-Tools.

Variables: which layout each table takes, and which of its shares sits on which target. Constraints: all columns of a
table are there, sequences of a collection are equally wide, and every device and host has room, byte by byte.
Objective: the seconds of the phases; in each, a rank takes the longest of its faces, group by group.

Seconds are rounded down to 2^-30 of the best plan known, so a bound of the integers is one of the seconds. Three kinds
of constraint lose no best plan and make the proof shorter: an open group carries no more than a plan may take
(`_load`), a table's pieces, in the mean, end in time (`_meet_means`), and equal ranks come in order (`_order_ranks`).

Legend: T tables, L layouts, S shares, N seats (a share on a target), W ranks, G fusion groups, F phases, J faces.
"""

from itertools import pairwise
from typing import Any, cast

import numpy as np
from ortools.sat.python import cp_model

from recsmith._types import Bools, Floats, Ints
from recsmith.costs import Evaluator, phase_seconds
from recsmith.planners.solver.fixed_tables import FixedTables
from recsmith.planners.solver.layouts import Shares
from recsmith.planners.solver.linear_pieces import LinearPieces

TOP = 2**30  # units of the best plan known: what rounding takes from a rank is a unit for each of its pieces at most
ROUNDING = 1e-12  # of floating point, before seconds are rounded down

Sum = list[tuple[cp_model.IntVar, int]]  # variables times weights


class SpaceModel:
    """The plans of a space: those of at most total_s and at least bound_s seconds, or all for None."""

    def __init__(
        self, evaluator: Evaluator, shares: Shares, faces: LinearPieces, total_s: float | None = None,
        bound_s: float = 0.0,
        kept: FixedTables | None = None,
    ) -> None:  # fmt: skip
        self.evaluator, self.problem, self.faces = evaluator, evaluator.problem, faces
        self.kept = kept or FixedTables.nothing(evaluator)
        allowed = np.array([self.kept.allows(layout.alike) for layout in shares.layouts], dtype=bool)[shares.layout]
        shares = shares.take(allowed)
        self.shares = shares if total_s is None else shares.take(_worth_it(evaluator, shares, total_s))
        self.tables = np.flatnonzero(~self.kept.tables).tolist()
        self.unit = 0.0 if total_s is None else total_s / TOP
        self.model = cp_model.CpModel()
        self.one = self.model.new_constant(1)
        self._seat()
        self._lay_tables()
        self._agree_on_widths()
        self._keep_memory()
        if total_s is not None:
            if not self.kept.tables.any():
                self._order_ranks()
            self._minimise(bound_s)

    # --- what sits where ----------------------------------------------------------------------------------------------

    def _seat(self) -> None:
        """A variable for each layout, and for each share on each of its targets; where that is one, the layout's."""
        shares, layouts = self.shares, self.shares.layouts
        self.layout_table = np.array([layout.table for layout in layouts], dtype=np.int64)  # (L,)
        self.dim: Ints = self.problem.demand.dim[self.layout_table]  # (L,)
        self.taken = [self.model.new_bool_var("") for _ in layouts]
        whole = shares.columns == self.dim[shares.layout]
        numbers: list[int] = shares.layout.tolist()
        targets = [layouts[number].targets for number in numbers]
        seats = [(s, t) for s, on in enumerate(targets) if len(on) > 1 or whole[s] for t in on]
        self.share, self.target = np.array(seats, dtype=np.int64).reshape(-1, 2).T  # (N,), (N,)
        self.layout: Ints = shares.layout[self.share]
        self.table, self.columns = self.layout_table[self.layout], shares.columns[self.share]
        self.coverage = np.array([layout.coverage for layout in layouts], dtype=np.int64)[self.layout]
        self.first: Ints = self.target * self.coverage  # the first rank that a seat covers
        numbers = self.layout.tolist()
        self.held = [
            self.model.new_bool_var("") if len(layouts[number].targets) > 1 else self.taken[number]
            for number in numbers
        ]

    def _lay_tables(self) -> None:
        """Each table takes one layout, whose seats hold all columns, at most one seat a target."""
        for table in self.tables:
            self.model.add_exactly_one(self.taken[i] for i in np.flatnonzero(self.layout_table == table).tolist())
        for number, layout in enumerate(self.shares.layouts):
            mine, taken = self.layout == number, self.taken[number]
            if len(layout.targets) > 1 or not mine.any():
                self._limit([*self._sum(mine, self.columns), (taken, -int(self.dim[number]))], 0, at_least=0)
                for target in layout.targets:
                    self._limit([*self._sum(mine & (self.target == target)), (taken, -1)], 0)

    def _agree_on_widths(self) -> None:
        """The column-wise sequences of a collection take one width."""
        alike = [layout.alike for layout in self.shares.layouts]
        kinds = sorted({each for each in alike if each})
        chosen = {kind: self._whether_any(np.array([each == kind for each in alike])) for kind in kinds}
        for collection in sorted({name for name, _ in kinds}):
            self.model.add_at_most_one(chosen[kind] for kind in kinds if kind[0] == collection)

    def _keep_memory(self) -> None:
        """Device bytes of every rank, and host bytes of every host, are there."""
        local = self.problem.cluster.local_world_size
        device_room = (self.problem.capacity - self.kept.device).tolist()
        for host, room in enumerate((self.problem.host_capacity - self.kept.host).tolist()):
            used = np.zeros(len(self.share), dtype=np.int64)
            for rank in range(host * local, (host + 1) * local):
                size = self._bytes_on(rank)
                self._hold(size[:, 0], device_room[rank])
                used += size[:, 1]
            self._hold(used, room)

    def _hold(self, size: Ints, room: int) -> None:
        """Bytes (N,) of the seats that are held fit a room; more than all of it counts as little more."""
        self._limit(self._sum(size > 0, np.minimum(size, room + 1)), room)

    def _bytes_on(self, rank: int) -> Ints:
        """Device and host bytes (N, 2) of each seat on a rank."""
        tail = self.first + self.coverage - 1 == rank
        size = np.where(tail[:, None], self.shares.tail[self.share], self.shares.head[self.share])
        return np.where(self._covers(rank)[:, None], size, 0)

    def _order_ranks(self) -> None:
        """Of ranks that are alike, earlier ones hold no fewer columns of the dearest table."""
        seconds = self.evaluator.loads(self.shares.terms).sum(axis=0)[self.share] * (self.coverage == 1)
        self.dearest = int(self.table[seconds.argmax()])
        ordered = (self.coverage == 1) & (self.table == self.dearest)
        for run in self.alike_ranks():
            for rank, after in pairwise(run):
                here, there = (ordered & self._covers(each) for each in (rank, after))
                self._limit([*self._sum(there, self.columns), *self._sum(here, -self.columns)], 0)

    def alike_ranks(self) -> list[list[int]]:
        """Ranks of a host that may trade places: as large, and without the last where that holds other bytes."""
        capacity, local = self.problem.capacity.tolist(), self.problem.cluster.local_world_size
        tails = bool((self.shares.head != self.shares.tail).any())
        alike: dict[tuple[int, int, bool], list[int]] = {}
        for rank, size in enumerate(capacity):
            alike.setdefault((rank // local, size, tails and rank % local == local - 1), []).append(rank)
        return list(alike.values())

    # --- what it costs ------------------------------------------------------------------------------------------------

    def _minimise(self, bound_s: float) -> None:
        """The phases one after the other, none of which ends before its slowest rank."""
        group = np.array([layout.group for layout in self.shares.layouts], dtype=np.int64)  # (L,)
        self.group: Ints = group[self.layout]
        groups = np.union1d(self.group, np.flatnonzero(self.kept.groups)).tolist()
        self.used = {each: self.one if self.kept.groups[each] else self._whether_any(group == each) for each in groups}
        shared = self._integer(phase_seconds(self.evaluator, self.evaluator.shared))  # (F, G)
        phases = [self.model.new_int_var(0, TOP, "") for _ in self.faces.slopes]
        for phase, end in enumerate(phases):
            fixed: Sum = [(used, int(shared[phase, group])) for group, used in self.used.items()]
            loads, everywhere = self._loads(phase)
            for load in loads:
                self._limit([*load, *fixed, (end, -1)], 0)
            self._meet_means(phase, [*everywhere, *fixed, (end, -1)])
        self._limit([(end, 1) for end in phases], TOP, at_least=int(self._integer(np.array(bound_s))))
        self.model.minimize(_total([(end, 1) for end in phases]))

    def _loads(self, phase: int) -> tuple[list[Sum], Sum]:
        """(the load of each rank (W,), what of it is the same on all ranks)."""
        world, everywhere = self.problem.cluster.world_size, list[tuple[cp_model.IntVar, int]]()
        costs = self._integer(self.faces.slopes[phase] @ self.shares.terms.T)[:, self.share]  # (J, N)
        loads: list[Sum] = [[] for _ in range(world)]
        for group in self.used:
            mine = self.group == group
            size = int(
                self.problem.modes.coverage[self.evaluator.group == group].min()
            )  # of blocks that carry the same
            for first in range(0, world, size):
                load = self._load(group, phase, costs, mine & self._covers(first), first, size)
                for rank in range(first, first + size):
                    loads[rank] += load
                if size == world:
                    everywhere += load
        return loads, everywhere

    def _load(self, group: int, phase: int, costs: Ints, on: Bools, first: int, size: int) -> Sum:
        """Time of a group on a block of ranks: its longest face, and its opening where it is open."""
        kept = self._integer(self.faces.slopes[phase] @ self.kept.sums[group, first])  # (J,)
        opening = int(self._integer(self.faces.opening)[phase])
        stands = bool(self.kept.pieces[group, first])
        if not on.any():
            return [(self.one, int(kept.max()) + opening * stands)] if stands else []
        faces = [[*self._sum(on, cost), *self._fixed(base)] for cost, base in _highest(costs, kept, on)]
        load = faces[0]
        if len(faces) > 1 or size > 1:
            longest = self.model.new_int_var(0, TOP, "")
            load = [(longest, 1)]
            for face in faces:
                self._limit([*face, (longest, -1)], 0)
        if not opening or stands:
            return [*load, *self._fixed(opening * stands)]
        is_open = self._is_open(group, on)
        for face in faces:
            self._limit([*face, (is_open, opening - TOP)], 0)
        return [*load, (is_open, opening)]

    def _fixed(self, units: int) -> Sum:
        return [(self.one, int(units))] if units else []

    def _is_open(self, group: int, on: Bools) -> cp_model.IntVar:
        """Whether a group holds anything on a rank; for a group that spans the world, whether it is used."""
        if (self.coverage[on] == self.problem.cluster.world_size).all():
            return self.used[group]
        is_open = self.model.new_bool_var("")
        self.model.add_implication(is_open, self.used[group])
        for table in np.unique(self.table[on]).tolist():
            self._limit([*self._sum(on & (self.table == table)), (is_open, -1)], 0)
        return is_open

    def _meet_means(self, phase: int, rest: Sum) -> None:
        """No piece ends later than the phase, alone beside what every rank carries; so neither does a table's mean.

        The mean is over the table's columns; pieces that span the world are in what every rank carries.
        """
        alone = self.faces.loads(self.shares.terms)[phase] * self.shares.columns / self.dim[self.shares.layout]
        cost, local = self._integer(alone)[self.share], self.coverage < self.problem.cluster.world_size
        for table in np.unique(self.table[local]).tolist():
            self._limit([*self._sum(local & (self.table == table), cost), *rest], 0)

    # --- sums ---------------------------------------------------------------------------------------------------------

    def _integer(self, seconds: Floats) -> Ints:
        """Seconds in units, rounded down."""
        return np.floor(seconds / self.unit * (1 - ROUNDING)).astype(np.int64)

    def _covers(self, rank: int) -> Bools:
        """Which seats (N,) are on a rank."""
        return (self.first <= rank) & (rank < self.first + self.coverage)

    def _sum(self, seats: Bools, weights: Ints | None = None) -> Sum:
        """Some seats, each times its weight (N,)."""
        chosen = np.flatnonzero(seats)
        weight = np.ones_like(chosen) if weights is None else weights[chosen]
        return [(self.held[seat], w) for seat, w in zip(chosen.tolist(), weight.tolist(), strict=True)]

    def _limit(self, terms: Sum, at_most: int, at_least: int = cp_model.INT_MIN) -> None:
        self.model.add_linear_constraint(_total(terms), at_least, at_most)

    def _whether_any(self, layouts: Bools) -> cp_model.IntVar:
        """Whether any table takes one of these layouts (L,)."""
        any_ = self.model.new_bool_var("")
        for table in np.unique(self.layout_table[layouts]).tolist():
            mine = np.flatnonzero(layouts & (self.layout_table == table)).tolist()
            self._limit([*((self.taken[i], 1) for i in mine), (any_, -1)], 0)
        return any_


def _total(terms: Sum) -> cp_model.LinearExpr:
    expressions = cast(Any, cp_model.LinearExpr)  # its stubs leave types out
    return expressions.weighted_sum([term for term, _ in terms], [weight for _, weight in terms])


def _worth_it(evaluator: Evaluator, shares: Shares, total_s: float) -> Bools:
    """Which shares (S,) may be in a plan of at most total_s: alone they take no longer."""
    alone = evaluator.loads(shares.terms).sum(axis=0) + evaluator.shared.sum(axis=1)[shares.group]
    return alone <= total_s * (1 + ROUNDING)


def _highest(costs: Ints, kept: Ints, seats: Bools) -> list[tuple[Ints, int]]:
    """Rows of costs (J, N), and what is kept (J,), without those that no seat of some makes the highest."""
    left = list(zip(costs, kept.tolist(), strict=True))
    for row in list(left):
        if any(other is not row and row[1] <= other[1] and (row[0][seats] <= other[0][seats]).all() for other in left):
            left = [other for other in left if other is not row]
    return left
