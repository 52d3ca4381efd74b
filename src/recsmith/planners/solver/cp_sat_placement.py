"""The constraints that make a solution of CP-SAT's model a legal plan: all columns placed, widths agreed, memory kept.

Legend: T tables, L layouts, S shares, N slots, W ranks, H hosts.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from recsmith._types import Ints
from recsmith.costs import Evaluator
from recsmith.planners.solver.cp_sat_constraints import keep_constraints
from recsmith.planners.solver.cp_sat_variables import PlanVariables
from recsmith.planners.solver.fixed_tables import FixedTables
from recsmith.planners.solver.layouts import Shares, rank_marks
from recsmith.problems import Problem
from recsmith.sharding.coverage import bytes_on, holds_tail


@dataclass(frozen=True, slots=True)
class RankOrder:
    """Which of equal plans counts: in each run of equal ranks, earlier ones hold no fewer columns of one table."""

    table: int
    runs: tuple[tuple[int, ...], ...]


def add_placement(variables: PlanVariables, fixed: FixedTables) -> None:
    """The constraints of a legal plan of all tables that are not fixed, beside those that are."""
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
    """Of plans that differ only in the order of interchangeable ranks, leave one or few."""
    ordered = (variables.coverage == 1) & (variables.table == order.table)
    for run in order.runs:
        for rank, after in pairwise(run):
            here, there = (ordered & variables.covers[each] for each in (rank, after))
            more = [*variables.weighted(there, variables.columns), *variables.weighted(here, -variables.columns)]
            variables.limit(more, 0)


def _interchangeable_ranks(problem: Problem, shares: Shares) -> tuple[tuple[int, ...], ...]:
    """Ranks of a host that are as large; without the host's last one where tails weigh other than heads."""
    capacity, local = problem.capacity.tolist(), problem.cluster.local_world_size
    marks = rank_marks(problem)
    tails = bool((shares.head != shares.tail).any())
    alike: dict[tuple[int, int, bool, int], list[int]] = {}
    for rank, size in enumerate(capacity):
        tail = tails and bool(holds_tail(rank, local))
        alike.setdefault((rank // local, size, tail, int(marks[rank])), []).append(rank)
    return tuple(tuple(run) for run in alike.values())


def _place_all_columns(variables: PlanVariables, tables: list[int]) -> None:
    """Each table takes one layout, whose filled slots hold all columns, at most one slot a target."""
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
    """The column-wise sequences of a collection take one width."""
    widths = [layout.shared_width for layout in variables.shares.layouts]
    kinds = sorted({each for each in widths if each})
    chosen = {kind: variables.any_chosen(np.array([each == kind for each in widths])) for kind in kinds}
    for collection in sorted({name for name, _ in kinds}):
        variables.model.add_at_most_one(chosen[kind] for kind in kinds if kind[0] == collection)


def _keep_memory(variables: PlanVariables, fixed: FixedTables) -> None:
    """Every rank has room on its device, and every host in its memory, byte by byte."""
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
    """The bytes (N,) of filled slots fit a room; a slot of more than all of it counts as little more."""
    variables.limit(variables.weighted(size > 0, np.minimum(size, room + 1)), room)
