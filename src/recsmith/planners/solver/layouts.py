"""The whole space of a problem: all layouts of all tables, of which the problem's options are a sample.

A layout is one rule for placing a whole table: a mode, with TorchRec's demands on its pieces: on which targets they may
be, and how wide. A share is the part of a layout on one target (rank, host, or the world): `count` pieces of `width`
columns each, because the pieces of a table on one rank must be equally wide. A plan gives each table one layout and
shares of it, at most one per target, whose columns add up to the table's.

Shares that others can replace at no higher cost are left out of the search (`useful_shares`; proof: docs/bounds.md).

Legend: T tables, L layouts, S shares, k work terms, G fusion groups.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.groups import demands_no_more, shared_no_more
from recsmith.costs import Evaluator
from recsmith.elementary import distinct
from recsmith.problems import Footprint, Problem, ordered_footprint
from recsmith.problems.space import torchrec_width
from recsmith.sharding import SHARDING_TYPES, WIDTH_STEP

Pairs = list[tuple[int, int]]  # (width, count) of the shares of a layout
SharedWidth = tuple[str, int]  # (collection, width): all column-wise sequences of a collection must have one width
ROUNDING = 1e-12  # relative: demands that differ by less are equal; well above rounding errors of sums (about 1e-15)


@dataclass(frozen=True, slots=True)
class ModeLayout:
    """A mode of a table, its fusion group, and the targets that may hold its pieces.

    coverage: ranks that a piece covers. shared_width: of column-wise sequences, (collection, width); None for layouts
    that may be combined with any other.
    """

    table: int
    mode: int
    group: int
    coverage: int
    targets: range
    shared_width: SharedWidth | None = None


@dataclass(frozen=True)
class Shares:
    """All shares (S,) of all layouts, in the order of the layouts.

    layout, width, count (S,): the layout's index, and the columns and number of the pieces. terms (S, k), and head and
    tail, (S, 2) bytes on device and host: of all pieces of a share together, on each rank that it covers; the tail on
    the last of these ranks, the head on the others.
    """

    layouts: list[ModeLayout]
    layout: Ints
    width: Ints
    count: Ints
    terms: Floats
    head: Ints
    tail: Ints

    @property
    def columns(self) -> Ints:
        """Columns of each share (S,)."""
        return self.width * self.count

    @property
    def table(self) -> Ints:
        """Table of each share (S,)."""
        return np.array([layout.table for layout in self.layouts], dtype=np.int64)[self.layout]

    @property
    def group(self) -> Ints:
        """Fusion group of each share (S,)."""
        return np.array([layout.group for layout in self.layouts], dtype=np.int64)[self.layout]

    @property
    def coverage(self) -> Ints:
        """Ranks that each share (S,) covers."""
        return np.array([layout.coverage for layout in self.layouts], dtype=np.int64)[self.layout]

    @property
    def by_columns(self) -> list[dict[int, list[int]]]:
        """For each layout (L,), its shares by their number of columns."""
        found: list[dict[int, list[int]]] = [{} for _ in self.layouts]
        layouts: list[int] = self.layout.tolist()
        columns: list[int] = self.columns.tolist()
        for share, (layout, size) in enumerate(zip(layouts, columns, strict=True)):
            found[layout].setdefault(size, []).append(share)
        return found

    def take(self, selected: Bools) -> "Shares":
        """The selected shares (S,), and the layouts that still have a share."""
        left, layout = np.unique(self.layout[selected], return_inverse=True)
        return Shares(
            [self.layouts[i] for i in left.tolist()], layout, self.width[selected], self.count[selected],
            self.terms[selected], self.head[selected], self.tail[selected],
        )  # fmt: skip

    def footprint(self, problem: Problem, share: Ints, target: Ints) -> Footprint:
        """The plan with these shares on these targets."""
        count = self.count[share]
        mode = np.array([layout.mode for layout in self.layouts], dtype=np.int64)[self.layout[share]].repeat(count)
        return ordered_footprint(problem, mode, self.width[share].repeat(count), target.repeat(count))


def all_shares(evaluator: Evaluator) -> Shares:
    """Every share of every layout in a problem's space."""
    problem = evaluator.problem
    found = [(layout, kept) for layout, pairs in _layouts(problem, evaluator.group.tolist())
             if (kept := _kept_pairs(problem, layout, pairs))]  # fmt: skip
    rows = [(i, width, count) for i, (_, pairs) in enumerate(found) for width, count in pairs]
    layouts = [layout for layout, _ in found]
    layout, width, count = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    mode = np.array([each.mode for each in layouts], dtype=np.int64)[layout]
    head, tail = (np.stack([end.device, end.host], axis=1) * count[:, None] for end in problem.memory(mode, width))
    return Shares(layouts, layout, width, count, evaluator.terms(mode, width) * count[:, None], head, tail)


def _kept_pairs(problem: Problem, layout: ModeLayout, pairs: Pairs) -> Pairs:
    """The (width, count) pairs of a layout's shares that the rules for its table allow."""
    rule = problem.legality.splits.get(layout.table)
    if rule is None:
        return pairs
    held = dict.fromkeys(rule.pinned, 0)
    for each in rule.pinned:
        held[each] += 1
    counts = {(width, count) for (width, _), count in held.items()}
    most = rule.max_shards // layout.coverage if rule.max_shards else None
    return [
        (width, count)
        for width, count in pairs
        if rule.allows_width(width)
        and (most is None or count <= most)
        and (not rule.pinned or (width, count) in counts)
    ]


def choices_of(problem: Problem) -> int:
    """Widths of all tables times devices: about as many as the whole space has shares times targets."""
    splitting = [i for i, kind in enumerate(SHARDING_TYPES) if kind.splits_columns]
    split = distinct(problem.modes.table[np.isin(problem.modes.type, splitting)])
    widths = np.ones(len(problem.tables), dtype=np.int64)
    if problem.space.widths == "any":
        widths[split] = problem.demand.dim[split] // WIDTH_STEP
    return int(widths.sum()) * problem.cluster.world_size


def width_agrees(shared_width: SharedWidth | None, widths: dict[str, int]) -> bool:
    """Whether a layout may be combined with column-wise sequences of these widths, by collection."""
    return shared_width is None or widths.get(shared_width[0], shared_width[1]) == shared_width[1]


def _layouts(problem: Problem, group: list[int]) -> Iterator[tuple[ModeLayout, Pairs]]:
    """Every layout, with the (width, count) pairs of its shares."""
    cluster, modes = problem.cluster, problem.modes
    tables: list[int] = modes.table.tolist()
    kinds: list[int] = modes.type.tolist()
    for mode, (t, number) in enumerate(zip(tables, kinds, strict=True)):
        kind, table = SHARDING_TYPES[number], problem.tables[t]
        targets = range(cluster.world_size // kind.coverage(cluster))
        whole = ModeLayout(t, mode, group[mode], kind.coverage(cluster), targets)
        if not kind.splits_columns:
            yield whole, [(table.embedding_dim, 1)]
            continue
        local = cluster.local_world_size if kind.name == "table_column_wise" else len(targets)
        for shared_width, pairs in _splits(problem, t, number):
            for first in targets[::local]:
                yield (
                    ModeLayout(t, mode, whole.group, whole.coverage, targets[first : first + local], shared_width),
                    pairs,
                )


def _splits(problem: Problem, t: int, number: int) -> Iterator[tuple[SharedWidth | None, Pairs]]:
    """(width shared by sequences, shares) for each rule by which a sharding type may split a table's columns."""
    kind, table, least = SHARDING_TYPES[number], problem.tables[t], int(problem.least_width[t])
    dim = table.embedding_dim
    if problem.space.widths == "torchrec":
        widths = [torchrec_width(dim, least or None)]
    else:
        widths = [width for width in range(WIDTH_STEP, dim + 1, WIDTH_STEP) if width >= min(least, dim)]
    if problem.space.widths == "any" and not kind.equal_widths(table, problem.cluster):
        yield None, [(width, n + 1) for width in widths for n in range(dim // width)]
        return
    fewest, most = kind.column_counts(table, problem.cluster)
    for width in widths:
        if dim % width == 0 and fewest <= dim // width <= most:
            shared_width = None if table.pooled else (table.collection, width)
            yield shared_width, [(width, n + 1) for n in range(dim // width)]


def rank_marks(problem: Problem) -> Ints:
    """Numbers (W,), equal for ranks that are open to the same tables; all differ if a table is pinned."""
    legality, world = problem.legality, problem.cluster.world_size
    if legality.pinned.any():
        return np.arange(world)
    if legality.open is None:
        return np.zeros(world, dtype=np.int64)
    return np.unique(legality.open, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


# --- shares that no best plan needs -----------------------------------------------------------------------------------


def useful_shares(evaluator: Evaluator, shares: Shares) -> Shares:
    """The shares that a best plan may need, for cost models that are the largest of nondecreasing linear pieces."""
    if evaluator.problem.legality.counts_shards:
        return shares  # a share's replacement may have more pieces
    shares = shares.take(~_dominated(shares))
    return shares.take(~_groups_dominated_by_shares(evaluator, shares)[shares.group])


def _demands(shares: Shares) -> Floats:
    """The demands of each share on the ranks that it covers: work terms and bytes (S, k + 4)."""
    return np.hstack([shares.terms, shares.head.astype(np.float64), shares.tail.astype(np.float64)])


def _dominated(shares: Shares) -> Bools:
    """Shares (S,) that a share of the same layout can replace: as many columns, cut differently, no higher demand."""
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
    """Groups (G,) that another group can replace: for each of their shares it has one that demands no more.

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


def _reaches(other: ModeLayout, mine: ModeLayout) -> bool:
    """Whether a layout may use every target of another layout of the table, combined with the same sequences."""
    same = other.table == mine.table and other.coverage == mine.coverage
    width = other.shared_width in (None, mine.shared_width)
    return same and width and other.targets.start <= mine.targets.start and mine.targets.stop <= other.targets.stop
