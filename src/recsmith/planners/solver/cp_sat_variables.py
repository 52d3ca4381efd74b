"""The plans of a model for CP-SAT: each table's layout, the slots that hold its columns, and the rules of legal plans.

A *slot* is a share (layouts.py) on one of the targets that its layout allows. A model has one variable of 0 or 1 for
each layout (chosen or not) and for each slot (filled or not). If a layout has a single target, only the share with all
columns can be there, and the slot's variable is the layout's own. A solution is a legal plan if all columns are placed,
widths agree, memory suffices, and the constraints are kept.

Legend: T tables, L layouts, S shares, N slots, W ranks, H hosts.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
from ortools.sat.python import cp_model

from recsmith._types import Bools, Ints
from recsmith.costs import Evaluator
from recsmith.planners.solver.layouts import Shares, rank_marks
from recsmith.planners.solver.placed_tables import FixedTables
from recsmith.problems import Legality, Problem
from recsmith.problems.legality import Group
from recsmith.sharding.coverage import by_target, bytes_on, covers, holds_tail

Sum = list[tuple[cp_model.IntVar, int]]  # variables times weights


class PlanVariables:
    """The variables of the plans that some shares allow, and linear constraints on sums of them.

    Per layout (L,): chosen (the variable), layout_table, layout_dim. Per slot (N,): filled (the variable), share,
    target, layout, table, columns and coverage. covers (W, N): whether a slot's pieces cover a rank. one: a variable
    that is always 1.
    """

    def __init__(self, problem: Problem, shares: Shares) -> None:
        self.problem, self.shares, layouts = problem, shares, shares.layouts
        self.model = cp_model.CpModel()
        self.one = self.model.new_constant(1)
        self.layout_table = np.array([layout.table for layout in layouts], dtype=np.int64)
        self.layout_dim: Ints = problem.demand.dim[self.layout_table]
        self.chosen = [self.model.new_bool_var("") for _ in layouts]
        self.share, self.target = self._slots()
        self.layout: Ints = shares.layout[self.share]
        self.table: Ints = self.layout_table[self.layout]
        self.columns: Ints = shares.columns[self.share]
        self.coverage: Ints = shares.coverage[self.share]
        self.covers: Bools = covers(self.target, self.coverage, np.arange(len(problem.capacity))[:, None])
        numbers: list[int] = self.layout.tolist()
        self.filled = [
            self.model.new_bool_var("") if len(layouts[number].targets) > 1 else self.chosen[number]
            for number in numbers
        ]

    def _slots(self) -> tuple[Ints, Ints]:
        """(share, target) of every slot (N,)."""
        whole = self.shares.columns == self.layout_dim[self.shares.layout]
        numbers: list[int] = self.shares.layout.tolist()
        targets = [self.shares.layouts[number].targets for number in numbers]
        slots = [(s, t) for s, on in enumerate(targets) if len(on) > 1 or whole[s] for t in on]
        share, target = np.array(slots, dtype=np.int64).reshape(-1, 2).T
        return share, target

    def weighted(self, slots: Bools, weights: Ints | None = None) -> Sum:
        """The selected slots (N,), each times its weight (N,) or 1."""
        selected = np.flatnonzero(slots)
        weight = np.ones_like(selected) if weights is None else weights[selected]
        return [(self.filled[slot], w) for slot, w in zip(selected.tolist(), weight.tolist(), strict=True)]

    def constant(self, value: int) -> Sum:
        """A sum that is always this value."""
        return [(self.one, int(value))] if value else []

    def any_chosen(self, layouts: Bools) -> cp_model.IntVar:
        """A variable that is 1 if any table takes one of these layouts (L,)."""
        any_ = self.model.new_bool_var("")
        for table in np.unique(self.layout_table[layouts]).tolist():
            own = np.flatnonzero(layouts & (self.layout_table == table)).tolist()
            self.limit([*((self.chosen[i], 1) for i in own), (any_, -1)], 0)
        return any_

    def limit(self, weighted: Sum, at_most: int, at_least: int = cp_model.INT_MIN) -> None:
        """Constrain a sum to at most, and at least, these values."""
        self.model.add_linear_constraint(total(weighted), at_least, at_most)


def total(weighted: Sum) -> cp_model.LinearExpr:
    """A sum as an expression of OR-Tools."""
    expressions = cast(Any, cp_model.LinearExpr)  # its stubs lack some types
    return expressions.weighted_sum([variable for variable, _ in weighted], [weight for _, weight in weighted])


# --- legal plans ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RankOrder:
    """Which of equal plans is kept: in each run of equal ranks, earlier ranks hold no fewer columns of one table."""

    table: int
    runs: tuple[tuple[int, ...], ...]


def add_placement(variables: PlanVariables, fixed: FixedTables) -> None:
    """Add the constraints of a legal plan of all tables that are not fixed, given those that are."""
    _place_all_columns(variables, np.flatnonzero(~fixed.tables).tolist())
    _agree_on_widths(variables)
    _keep_memory(variables, fixed)
    if variables.problem.legality.any:
        keep_constraints(variables, fixed)


def rank_order(evaluator: Evaluator, variables: PlanVariables) -> RankOrder:
    """The order of interchangeable ranks: by the table that has the costliest share on a single rank."""
    shares, on_one_rank = variables.shares, variables.coverage == 1
    seconds = evaluator.loads(shares.terms).sum(axis=0)[variables.share] * on_one_rank
    return RankOrder(int(variables.table[seconds.argmax()]), _interchangeable_ranks(evaluator.problem, shares))


def add_rank_order(variables: PlanVariables, order: RankOrder) -> None:
    """Keep one or few of the plans that differ only in the order of interchangeable ranks."""
    ordered = (variables.coverage == 1) & (variables.table == order.table)
    for run in order.runs:
        for rank, after in pairwise(run):
            here, there = (ordered & variables.covers[each] for each in (rank, after))
            more = [*variables.weighted(there, variables.columns), *variables.weighted(here, -variables.columns)]
            variables.limit(more, 0)


def _interchangeable_ranks(problem: Problem, shares: Shares) -> tuple[tuple[int, ...], ...]:
    """Runs of a host's ranks with equal capacity and open tables; its last rank is apart if tails differ from heads."""
    capacity, local = problem.capacity.tolist(), problem.cluster.local_world_size
    marks = rank_marks(problem)
    tails = bool((shares.head != shares.tail).any())
    alike: dict[tuple[int, int, bool, int], list[int]] = {}
    for rank, size in enumerate(capacity):
        tail = tails and bool(holds_tail(rank, local))
        alike.setdefault((rank // local, size, tail, int(marks[rank])), []).append(rank)
    return tuple(tuple(run) for run in alike.values())


def _place_all_columns(variables: PlanVariables, tables: list[int]) -> None:
    """Each table takes one layout, whose filled slots hold all columns, with at most one slot per target."""
    for table in tables:
        own = np.flatnonzero(variables.layout_table == table).tolist()
        variables.model.add_exactly_one(variables.chosen[i] for i in own)
    for number, layout in enumerate(variables.shares.layouts):
        own, chosen = variables.layout == number, variables.chosen[number]
        if len(layout.targets) > 1 or not own.any():
            columns = variables.weighted(own, variables.columns)
            variables.limit([*columns, (chosen, -int(variables.layout_dim[number]))], 0, at_least=0)
            for target in layout.targets:
                variables.limit([*variables.weighted(own & (variables.target == target)), (chosen, -1)], 0)


def _agree_on_widths(variables: PlanVariables) -> None:
    """Make the column-wise sequences of a collection take one width."""
    widths = [layout.shared_width for layout in variables.shares.layouts]
    kinds = sorted({each for each in widths if each})
    chosen = {kind: variables.any_chosen(np.array([each == kind for each in widths])) for kind in kinds}
    for collection in sorted({name for name, _ in kinds}):
        variables.model.add_at_most_one(chosen[kind] for kind in kinds if kind[0] == collection)


def _keep_memory(variables: PlanVariables, fixed: FixedTables) -> None:
    """Keep the bytes on every rank's device and in every host's memory within the capacity."""
    problem, shares, coverage = variables.problem, variables.shares, variables.coverage[:, None]
    head, tail = shares.head[variables.share], shares.tail[variables.share]  # (N, 2)
    local = problem.cluster.local_world_size
    device_room: list[int] = (problem.capacity - fixed.device).tolist()
    host_room: list[int] = (problem.host_capacity - fixed.host).tolist()
    for host, room in enumerate(host_room):
        used = np.zeros(len(variables.share), dtype=np.int64)
        for rank in range(host * local, (host + 1) * local):
            size = np.where(variables.covers[rank][:, None], bytes_on(rank, coverage, head, tail), 0)
            _fit(variables, size[:, 0], device_room[rank])
            used += size[:, 1]
        _fit(variables, used, room)


def _fit(variables: PlanVariables, size: Ints, room: int) -> None:
    """The bytes (N,) of filled slots fit a room; a slot that exceeds it alone counts as one byte more than the room."""
    variables.limit(variables.weighted(size > 0, np.minimum(size, room + 1)), room)


# --- constraints ------------------------------------------------------------------------------------------------------


def keep_constraints(variables: PlanVariables, fixed: FixedTables) -> None:
    """Add all constraints on the tables that are not fixed, given those that are."""
    legality = variables.problem.legality
    for slot in np.flatnonzero(_forbidden(variables, legality)).tolist():
        variables.limit([(variables.filled[slot], 1)], 0)
    shards = variables.shares.count[variables.share] * variables.coverage
    for table, rule in legality.splits.items():
        if rule.max_shards and not fixed.tables[table]:
            variables.limit(variables.weighted(variables.table == table, shards), rule.max_shards)
    for group in legality.groups:
        _keep_group(variables, fixed, group)


def _forbidden(variables: PlanVariables, legality: Legality) -> Bools:
    """Slots (N,) on ranks that are not open to their table, and slots that a pinned table does not have."""
    forbidden = np.zeros(len(variables.share), dtype=bool)
    if legality.open is not None:
        closed = ~legality.open[variables.table].T  # (W, N)
        forbidden |= (variables.covers & closed).any(axis=0)
    width, count = variables.shares.width[variables.share], variables.shares.count[variables.share]
    for table, rule in legality.splits.items():
        if rule.pinned:
            held: dict[tuple[int, int], int] = {}
            for each in rule.pinned:
                held[each] = held.get(each, 0) + 1
            own = np.flatnonzero(variables.table == table)
            slots = zip(width[own].tolist(), variables.target[own].tolist(), count[own].tolist(), strict=True)
            forbidden[own] |= np.array([held.get((w, t), 0) != n for w, t, n in slots], dtype=bool)
    return forbidden


def _keep_group(variables: PlanVariables, fixed: FixedTables, group: Group) -> None:
    """Add what must hold between the tables of one group, rank by rank or host by host."""
    legality = variables.problem.legality
    tables = np.flatnonzero(np.isin(legality.row, group.rows) & (legality.row >= 0)).tolist()
    held = by_target(fixed.on[legality.row[tables]], group.local).sum(axis=-1)  # (m, units)
    for unit in range(held.shape[1]):
        if group.kind == "shards":
            own = np.isin(variables.table, tables)
            weights = variables.shares.count[variables.share] * _ranks_covered(variables, unit, group.local)
            variables.limit(variables.weighted(own & (weights > 0), weights), group.most - int(held[:, unit].sum()))
            continue
        pairs = zip(tables, held[:, unit].tolist(), strict=True)
        present = [_present(variables, fixed, t, unit, group.local, n) for t, n in pairs]
        if group.kind == "tables":
            variables.limit([each for some in present for each in some], group.most)
            continue
        for one, other in pairwise(present):
            variables.limit([*one, *((variable, -weight) for variable, weight in other)], 0, at_least=0)


def _ranks_covered(variables: PlanVariables, unit: int, local: int) -> Ints:
    """How many ranks of a unit each slot (N,) covers."""
    return variables.covers[unit * local : (unit + 1) * local].sum(axis=0)


def _present(variables: PlanVariables, fixed: FixedTables, table: int, unit: int, local: int, held: int) -> Sum:
    """A sum that is 1 if a table has a shard on a unit, else 0."""
    if fixed.tables[table]:
        return variables.constant(int(held > 0))
    here = (variables.table == table) & (_ranks_covered(variables, unit, local) > 0)
    slots = variables.weighted(here)
    if local == 1:
        return slots  # at most one slot of a table covers a rank
    there: cp_model.IntVar = variables.model.new_bool_var("")
    for slot, _ in slots:
        variables.limit([(slot, 1), (there, -1)], 0)
    variables.limit([(there, 1), *((slot, -1) for slot, _ in slots)], 0)
    return [(there, 1)]
