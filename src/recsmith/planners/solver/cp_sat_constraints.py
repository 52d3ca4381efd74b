"""What constraints ask of a solution of CP-SAT's model: ranks, pins, numbers of shards, and tables beside others.

Legend: T tables, N slots, W ranks, H hosts.
"""

from itertools import pairwise

import numpy as np
from ortools.sat.python import cp_model

from recsmith._types import Bools, Ints
from recsmith.planners.solver.cp_sat_variables import PlanVariables, Sum
from recsmith.planners.solver.fixed_tables import FixedTables
from recsmith.problems import Legality
from recsmith.problems.legality import Group
from recsmith.sharding.coverage import by_target


def keep_constraints(variables: PlanVariables, fixed: FixedTables) -> None:
    """Everything that constraints ask of the tables that are not fixed, beside those that are."""
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
    """Slots (N,) on ranks that are not open to their table, and those that a pinned table does not have."""
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
    """What holds between the tables of one group, rank by rank or host by host."""
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
    """A sum that is 1 where a table has a shard on a unit, and 0 where it has none."""
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
