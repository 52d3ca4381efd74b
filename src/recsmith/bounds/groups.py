"""Fusion groups: the least cost of those in use, and those that a best plan can do without.

Every rank pays the latencies of each group in use, and the opening (the launches) of each group that spans the world.
If a plan uses any other group, some rank pays one more opening; a single device pays that of each group in use.

Group A dominates group B if whatever may be placed in B can be placed in A, on the same ranks, with no more of any work
term and of memory, and if A's collectives cost every rank no more. Merging B into A then makes no rank slower: a convex
nondecreasing head costs one group of two sets of pieces at most as much as two groups.

Bounds apply this to sharding types (`groups_dominated_by_type`): they compare whole tables of a few pairs of types,
which is quick for problems of any size. The solver (planners/solver) applies it to all shares of all layouts that are
left in its model. That finds more groups, but is affordable for small problems only. Each comparison has its own
tolerance for rounding, so that neither changes with the other.

Legend: G fusion groups, k work terms.
"""

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.linear_bounds import ROUNDING, kept_for
from recsmith.costs.protocol import Evaluator
from recsmith.elementary import distinct
from recsmith.sharding import SHARDING_TYPES, TYPE_NAMES, Span

REPLACEMENTS = (
    ("table_wise", "column_wise"), ("table_column_wise", "column_wise"), ("table_row_wise", "row_wise"),
    ("row_wise", "table_wise"), ("grid_shard", "column_wise"), ("data_parallel", "table_wise"),
)  # fmt: skip
"""(sharding type, the type that may replace it): the pairs whose pieces are the same on some clusters; no circle."""


def demands_no_more(theirs: Floats, mine: Floats, rounding: float) -> Bools:
    """Whether (...) some demands (..., k) are nowhere above others (..., k), up to a relative rounding error."""
    return np.asarray((theirs <= mine * (1 + rounding)).all(axis=-1))


def shared_no_more(evaluator: Evaluator, others: Ints | int, groups: Ints | int) -> bool:
    """Whether the collectives of some groups cost every rank no more than those of others, pair by pair."""
    return bool((evaluator.shared[others] <= evaluator.shared[groups]).all())


def groups_dominated_by_type(evaluator: Evaluator) -> Bools:
    """Groups (G,) of a sharding type that another type can replace at no higher cost, found by comparing whole tables.

    On one host row_wise replaces table_row_wise; column_wise, which may leave a table whole, replaces table_wise. On
    one device more types are equivalent. The solver's relation compares every share of every table, and finds more.
    """
    return np.isin(np.arange(evaluator.groups), list(replacements_by_type(evaluator)))


def replacements_by_type(evaluator: Evaluator) -> dict[int, int]:
    """The groups that another group can replace, each with that group; found once for each evaluator."""
    return kept_for(evaluator, "replacements", lambda: _replacements(evaluator))


def _replacements(evaluator: Evaluator) -> dict[int, int]:
    modes, replaced = evaluator.problem.modes, dict[int, int]()
    columns = [np.unique(each, return_inverse=True)[1] for each in (modes.kernel, modes.load_factor)]
    key = np.ravel_multi_index((modes.table, *columns), (modes.table.max() + 1, *(each.max() + 1 for each in columns)))
    for mine, other in REPLACEMENTS:
        kinds = TYPE_NAMES.index(mine), TYPE_NAMES.index(other)
        theirs = np.flatnonzero(modes.type == kinds[1])
        theirs = theirs[np.argsort(key[theirs], kind="stable")]
        for group in distinct(evaluator.group[modes.type == kinds[0]]).tolist():
            members = np.flatnonzero(evaluator.group == group)
            place = np.minimum(key[theirs].searchsorted(key[members]), len(theirs) - 1)
            if not len(theirs) or (modes.type[members] != kinds[0]).any() or (key[theirs[place]] != key[members]).any():
                continue
            others: Ints = theirs[place]
            into = distinct(evaluator.group[others]).tolist()
            if len(into) == 1 and _replaced_by(evaluator, members, others):
                replaced[group] = into[0]
    return replaced


def _replaced_by(evaluator: Evaluator, modes: Ints, others: Ints) -> bool:
    """Whether whole tables cost no more in the other modes, take the same memory, and may be split as freely."""
    problem, table = evaluator.problem, evaluator.problem.modes.table[modes]
    dim = problem.demand.dim[table]
    same_bytes = all(
        np.array_equal(a.device, b.device) and np.array_equal(a.host, b.host)
        for a, b in zip(problem.least_memory(modes, dim), problem.least_memory(others, dim), strict=True)
    ) and not (problem.memory_model.mixed and problem.memory_model.shared[modes].any())
    no_more = bool(demands_no_more(evaluator.terms(others, dim), evaluator.terms(modes, dim), ROUNDING).all())
    splits = SHARDING_TYPES[problem.modes.type[others[0]]].splits_columns
    any_width = problem.space.widths == "any" and bool(problem.demand.pooled[table].all())
    same_ranks = np.array_equal(problem.modes.coverage[modes], problem.modes.coverage[others])
    latencies = shared_no_more(evaluator, evaluator.group[others], evaluator.group[modes])
    return same_bytes and no_more and latencies and same_ranks and (any_width or not splits)


class GroupCosts:
    """Seconds that a set of fusion groups costs, whatever they hold.

    worldwide (G,): groups whose pieces span the world. everywhere (G,): groups that every rank opens if any does: the
    worldwide groups, and on a single device all. fixed (G,): seconds that each group in use costs every rank.
    """

    def __init__(self, evaluator: Evaluator, opening: float) -> None:
        """opening: the least seconds that a rank pays for holding a piece of a group."""
        self.opening = opening
        self.worldwide: Bools = np.zeros(evaluator.groups, dtype=bool)
        self.worldwide[evaluator.group[evaluator.problem.modes.span == Span.WORLD]] = True
        self.everywhere: Bools = self.worldwide | (evaluator.problem.cluster.world_size == 1)
        self.fixed = evaluator.shared.sum(axis=1) + np.where(self.everywhere, opening, 0.0)
        self._certain: dict[bytes, float] = {}

    def certain(self, paid: Bools) -> float:
        """Seconds that these groups (G,) cost the slowest rank at least, before any piece."""
        key = paid.tobytes()
        if key not in self._certain:  # searches look up few sets thousands of times
            self._certain[key] = float(self.fixed[paid].sum()) + (self.opening if self._any_local(paid) else 0.0)
        return self._certain[key]

    def added(self, paid: Bools) -> Floats:
        """Seconds (G,) that each group would add to `certain`, given the groups that are already paid."""
        return self.fixed + np.where(self.everywhere | self._any_local(paid), 0.0, self.opening)

    def _any_local(self, groups: Bools) -> bool:
        return bool((groups & ~self.everywhere).any())
