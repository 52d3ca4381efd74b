"""Which shares no best plan needs: those that others replace at no higher cost (proof: docs/bounds.md).

It holds for cost models that are the largest of linear pieces that never fall (linear_pieces.py). A share demands of a
rank its work terms and its bytes; one that demands no less than another with as many columns of the same layout can be
replaced by that other. So can a whole fusion group whose every share has such a replacement in another group.

Legend: L layouts, S shares, k work terms, G fusion groups.
"""

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.bounds.groups import demands_no_more, shared_no_more
from recsmith.costs import Evaluator
from recsmith.planners.solver.layouts import Layout, Shares

ROUNDING = 1e-12  # relative: demands that differ by less are equal; well above rounding errors of sums (about 1e-15)


def useful_shares(evaluator: Evaluator, shares: Shares) -> Shares:
    """The shares that a best plan may need, for cost models that are the largest of linear pieces that never fall."""
    if evaluator.problem.legality.counts_shards:
        return shares  # what replaces a share may be of more pieces
    shares = shares.take(~_dominated(shares))
    return shares.take(~_groups_dominated_by_shares(evaluator, shares)[shares.group])


def _demands(shares: Shares) -> Floats:
    """All that each share demands of the ranks that it covers: work terms and bytes (S, k + 4)."""
    return np.hstack([shares.terms, shares.head.astype(np.float64), shares.tail.astype(np.float64)])


def _dominated(shares: Shares) -> Bools:
    """Shares (S,) for which the same layout has another with as many columns, cut otherwise, that demands no more."""
    demands, dominated = _demands(shares), np.zeros(len(shares.layout), dtype=bool)
    order = np.lexsort((shares.columns, shares.layout))
    same = (np.diff(shares.layout[order]) == 0) & (np.diff(shares.columns[order]) == 0)
    for rivals in np.split(order, np.flatnonzero(~same) + 1):
        if len(rivals) > 1:
            no_more = demands_no_more(demands[rivals][:, None], demands[rivals], ROUNDING)  # [i, j]: i than j
            earlier = np.arange(len(rivals))[:, None] < np.arange(len(rivals))
            dominated[rivals] = (no_more & (~no_more.T | earlier)).any(axis=0)
    return dominated


def _groups_dominated_by_shares(evaluator: Evaluator, shares: Shares) -> Bools:
    """Groups (G,) that another can replace: every share of theirs has one there that demands no more.

    The relation is that of bounds/groups.py, here between all shares instead of whole tables of some types.
    """
    by_columns, demands = shares.by_columns, list(_demands(shares))
    limits = [each * (1 + ROUNDING) for each in demands]
    members: list[list[int]] = [[] for _ in range(evaluator.groups)]
    for number, layout in enumerate(shares.layouts):
        members[layout.group].append(number)

    def replaces(other: int, mine: int) -> bool:
        return _reaches(shares.layouts[other], shares.layouts[mine]) and all(
            any((demands[there] <= limits[here]).all() for there in by_columns[other].get(columns, ()))
            for columns, held in by_columns[mine].items()
            for here in held
        )

    dominated = np.zeros(evaluator.groups, dtype=bool)
    for group in reversed(range(evaluator.groups)):
        dominated[group] = any(
            shared_no_more(evaluator, other, group)
            and all(any(replaces(there, here) for there in members[other]) for here in members[group])
            for other in np.flatnonzero(~dominated).tolist()
            if other != group
        )
    return dominated


def _reaches(other: Layout, mine: Layout) -> bool:
    """Whether a layout may use every target that another of the table may, beside the same sequences."""
    same = other.table == mine.table and other.coverage == mine.coverage
    width = other.shared_width in (None, mine.shared_width)
    return same and width and other.targets.start <= mine.targets.start and mine.targets.stop <= other.targets.stop
