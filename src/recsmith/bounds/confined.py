"""A bound from tables that constraints confine to some ranks: pinned ones, and those that may only be on these.

What a set of ranks must carry, divided by their number, is a bound, for no rank's parts exceed the step. Every rank,
every host, every set of ranks that some table is confined to, and all ranks together are asked. docs/bounds.md proves
it.

Legend: T tables, W ranks, S sets of ranks.
"""

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.linear_bounds import linear_seconds
from recsmith.bounds.selection import LinearBound, SelectionLimits
from recsmith.bounds.table_totals import TableTotals
from recsmith.bounds.tolerances import ROUNDING
from recsmith.costs.protocol import Evaluator

MOST_SETS = 256  # sets that tables are confined to, beside ranks and hosts; trade-off: each costs a pass over the tables


def confined_bound(evaluator: Evaluator, linear: LinearBound) -> float:
    """Seconds that no plan can undercut because of what its ranks must carry; 0 where tables may be on all ranks."""
    legality, tables = evaluator.problem.legality, len(evaluator.problem.tables)
    if legality.open is None:
        return 0.0
    least = TableTotals(evaluator, linear).per_table(SelectionLimits()).value
    pinned: Bools = np.isin(np.arange(tables), [t for t, rule in legality.splits.items() if rule.pinned])
    fixed = _pinned_seconds(evaluator, linear, np.flatnonzero(pinned))
    sets = _sets(legality.open, evaluator.problem.cluster.local_world_size)
    inside = ~(legality.open[:, None, :] & ~sets[None]).any(axis=2) & ~pinned[:, None]  # (T, S)
    carried = np.where(inside, least[:, None], 0.0).sum(axis=0) + sets @ fixed
    return float((carried / sets.sum(axis=1)).max()) * (1 - ROUNDING)


def _pinned_seconds(evaluator: Evaluator, linear: LinearBound, pinned: Ints) -> Floats:
    """Seconds (W,) of the pieces of pinned tables on each rank."""
    problem = evaluator.problem
    seconds: Floats = np.zeros(problem.cluster.world_size)
    for t in pinned.tolist():
        modes = np.unique(problem.options.mode[problem.options.start[t] : problem.options.start[t + 1]])
        for width, target in problem.legality.splits[t].pinned:
            each = linear_seconds(evaluator, linear, modes, np.full(len(modes), width))[0].min()
            size = int(problem.modes.coverage[modes[0]])
            seconds[target * size : (target + 1) * size] += each
    return seconds


def _sets(open_: Bools, local: int) -> Bools:
    """Sets of ranks (S, W), none empty: each rank, each host, all, and those that tables are confined to."""
    world = np.arange(open_.shape[1])
    hosts = world[: len(world) // local, None] == world // local
    own = np.unique(open_, axis=0)[:MOST_SETS]
    all_ = np.vstack([world[:, None] == world, hosts, np.ones((1, len(world)), dtype=bool), own])
    return all_[all_.any(axis=1)]
