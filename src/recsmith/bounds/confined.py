"""A bound from tables that constraints confine to some ranks: pinned ones, and those that may only be on these.

What a set of ranks must carry, divided by their number, is a bound, for no rank's parts exceed the step. Every rank,
every host, every set of ranks that some table is confined to, and all ranks together are asked. docs/bounds.md proves
it.

Legend: T tables, W ranks, S sets of ranks, R different rows of open ranks.
"""

from typing import cast

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.linear_bounds import linear_seconds
from recsmith.bounds.selection import LinearBound, SelectionLimits
from recsmith.bounds.table_totals import TableTotals
from recsmith.bounds.tolerances import ROUNDING
from recsmith.costs.protocol import Evaluator

MOST_SETS = 256  # sets that tables are confined to, beside ranks and hosts: those that carry most


def confined_bound(evaluator: Evaluator, linear: LinearBound) -> float:
    """Seconds that no plan can undercut because of what its ranks must carry; 0 where tables may be on all ranks."""
    legality, tables = evaluator.problem.legality, len(evaluator.problem.tables)
    if legality.open is None:
        return 0.0
    least = TableTotals(evaluator, linear).per_table(SelectionLimits()).value
    pinned: Bools = np.isin(np.arange(tables), [t for t, rule in legality.splits.items() if rule.pinned])
    if not np.isfinite(least).all():
        return 0.0  # no plan exists, which others say
    fixed = _pinned_seconds(evaluator, linear, np.flatnonzero(pinned))
    own, carried = _confined(legality.open[~pinned], least[~pinned])
    sets = _sets(own, evaluator.problem.cluster.local_world_size)
    inside = (
        own.astype(np.float32) @ (~sets).T.astype(np.float32) == 0
    )  # (R, S): no rank of a row is outside of the set
    return float(((carried @ inside + sets @ fixed) / sets.sum(axis=1)).max()) * (1 - ROUNDING)


def _confined(open_: Bools, seconds: Floats) -> tuple[Bools, Floats]:
    """Different rows (R, W) of open ranks, and the seconds (R,) of their tables; rows beyond MOST_SETS are left out."""
    rows, row = cast(tuple[Bools, Ints], np.unique(open_, axis=0, return_inverse=True))
    total: Floats = np.bincount(row.ravel(), seconds, minlength=len(rows)).astype(np.float64)
    heaviest = np.argsort(-total, kind="stable")[:MOST_SETS]
    return rows[heaviest], total[heaviest]


def _pinned_seconds(evaluator: Evaluator, linear: LinearBound, pinned: Ints) -> Floats:
    """Seconds (W,) of each rank for the pieces of pinned tables, and for their groups: openings, and what all share."""
    problem = evaluator.problem
    seconds: Floats = np.zeros(problem.cluster.world_size)
    held: Bools = np.zeros((problem.cluster.world_size, evaluator.groups), dtype=bool)
    for t in pinned.tolist():
        modes = np.unique(problem.options.mode[problem.options.start[t] : problem.options.start[t + 1]])
        if len(modes) != 1:
            continue
        size, pieces = int(problem.modes.coverage[modes[0]]), problem.legality.splits[t].pinned
        widths = np.array([width for width, _ in pieces])
        each = linear_seconds(evaluator, linear, np.repeat(modes, len(pieces)), widths)[0]
        for (_, target), more in zip(pieces, each.tolist(), strict=True):
            seconds[target * size : (target + 1) * size] += more
            held[target * size : (target + 1) * size, evaluator.group[modes[0]]] = True
    return seconds + linear.opening * held.sum(axis=1) + evaluator.shared[held.any(axis=0)].sum()


def _sets(own: Bools, local: int) -> Bools:
    """Sets of ranks (S, W), none empty: each rank, each host, all, and those that tables are confined to."""
    world: Ints = np.arange(own.shape[1], dtype=np.int64)
    hosts: Bools = world[: len(world) // local, None] == world // local
    every: Bools = np.vstack([world[:, None] == world, hosts, np.ones((1, len(world)), dtype=bool), own])
    return every[every.any(axis=1)]
