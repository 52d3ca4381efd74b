"""Every way to lay every table: the whole space of a problem, of which its options are a sample.

A layout is a mode with what TorchRec asks of its pieces: where they may stand, and how wide they are. A share is what
one target (rank, host, or the world) holds of a layout: `count` pieces of `width` columns, for pieces of a table on one
rank are equally wide. A table takes one layout, and shares of it, at most one a target, that add up to its columns.

Legend: L layouts, S shares, k work terms, G fusion groups.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs import Evaluator
from recsmith.problems import Footprint, Problem
from recsmith.problems.widths import torchrec_width
from recsmith.sharding import SHARDING_TYPES, WIDTH_STEP

ROUNDING = 1e-12  # relative; costs that differ by less are equal

Pairs = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Layout:
    """A mode of a table, its fusion group, and the targets that its pieces may stand on.

    coverage: ranks that a piece covers. alike: (collection, width) of column-wise sequences; all of a collection share
    one width.
    """

    table: int
    mode: int
    group: int
    coverage: int
    targets: range
    alike: tuple[str, int] | None = None


@dataclass(frozen=True)
class Shares:
    """All shares (S,) of all layouts, in their order.

    terms (S, k), and head and tail, (S, 2) bytes on device and host: of all pieces of a share together, on each rank
    that it covers; the last of these holds the tail.
    """

    layouts: list[Layout]
    layout: Ints
    width: Ints
    count: Ints
    terms: Floats
    head: Ints
    tail: Ints

    @property
    def columns(self) -> Ints:
        """Columns of a share (S,)."""
        return self.width * self.count

    @property
    def group(self) -> Ints:
        """Fusion group of a share (S,)."""
        return np.array([layout.group for layout in self.layouts], dtype=np.int64)[self.layout]

    def take(self, kept: Bools) -> "Shares":
        """Some of the shares, and the layouts that still have one."""
        left, layout = np.unique(self.layout[kept], return_inverse=True)
        return Shares(
            [self.layouts[i] for i in left.tolist()], layout, self.width[kept], self.count[kept],
            self.terms[kept], self.head[kept], self.tail[kept],
        )  # fmt: skip

    def footprint(self, problem: Problem, share: Ints, target: Ints) -> Footprint:
        """The plan in which these shares stand on these targets."""
        count = self.count[share]
        mode = np.array([layout.mode for layout in self.layouts], dtype=np.int64)[self.layout[share]].repeat(count)
        width, target = self.width[share].repeat(count), target.repeat(count)
        order = np.lexsort((target, -width, problem.modes.table[mode]))
        return Footprint(mode[order], width[order], target[order])


def all_shares(evaluator: Evaluator) -> Shares:
    """Every share of a problem's space."""
    problem = evaluator.problem
    found = list(_layouts(problem, evaluator.group.tolist()))
    rows = [(i, width, count) for i, (_, pairs) in enumerate(found) for width, count in pairs]
    layouts = [layout for layout, _ in found]
    layout, width, count = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    mode = np.array([each.mode for each in layouts], dtype=np.int64)[layout]
    head, tail = (np.stack([end.device, end.host], axis=1) * count[:, None] for end in problem.memory(mode, width))
    return Shares(layouts, layout, width, count, evaluator.terms(mode, width) * count[:, None], head, tail)


def useful_shares(evaluator: Evaluator, shares: Shares) -> Shares:
    """The shares that a best plan may need, for cost models that are the longest of planes that do not fall."""
    shares = shares.take(~_outdone(shares))
    return shares.take(~_needless_groups(evaluator, shares)[shares.group])


def choices_of(problem: Problem) -> int:
    """Widths of all tables times devices: about how many seats all shares have."""
    splitting = [i for i, kind in enumerate(SHARDING_TYPES) if kind.splits_columns]
    split = np.unique(problem.modes.table[np.isin(problem.modes.type, splitting)])
    widths = np.ones(len(problem.tables), dtype=np.int64)
    if problem.space.widths == "any":
        widths[split] = problem.demand.dim[split] // WIDTH_STEP
    return int(widths.sum()) * problem.cluster.world_size


def settled(evaluator: Evaluator, shares: Shares, footprint: Footprint) -> Footprint | None:
    """A plan by useful shares, if they hold it: as many columns where they stood, laid and cut most like they were."""
    problem = evaluator.problem
    alone: list[float] = evaluator.loads(shares.terms).sum(axis=0).tolist()
    pieces: list[float] = evaluator.loads(evaluator.terms(footprint.mode, footprint.width)).sum(axis=0).tolist()
    cuts: list[dict[int, list[int]]] = [{} for _ in shares.layouts]  # by columns
    numbers: list[int] = shares.layout.tolist()
    sizes: list[int] = shares.columns.tolist()
    for share, (number, size) in enumerate(zip(numbers, sizes, strict=True)):
        cuts[number].setdefault(size, []).append(share)
    seats: list[tuple[int, int]] = []
    for table in range(len(problem.tables)):
        mine = np.flatnonzero(problem.modes.table[footprint.mode] == table).tolist()
        mode, columns, seconds = int(footprint.mode[mine[0]]), Counter[int](), dict[int, float]()
        for piece in mine:
            target = int(footprint.target[piece])
            columns[target] += int(footprint.width[piece])
            seconds[target] = seconds.get(target, 0.0) + pieces[piece]
        found: list[tuple[bool, float, list[tuple[int, int]]]] = []
        for layout, known in zip(shares.layouts, cuts, strict=True):
            same = layout.table == table and layout.coverage == int(problem.modes.coverage[mode])
            if same and columns.keys() <= set(layout.targets) and set(columns.values()) <= known.keys():
                nearest = [min((abs(alone[s] - seconds[t]), s, t) for s in known[n]) for t, n in columns.items()]
                off = sum(each for each, _, _ in nearest)
                found.append((layout.mode != mode, off, [(s, t) for _, s, t in nearest]))
        if not found:
            return None
        seats += min(found)[2]
    share, target = np.array(seats, dtype=np.int64).T
    return shares.footprint(problem, share, target)


def _layouts(problem: Problem, group: list[int]) -> Iterator[tuple[Layout, Pairs]]:
    """Every layout, with the (width, count) of its shares."""
    cluster, modes = problem.cluster, problem.modes
    tables: list[int] = modes.table.tolist()
    kinds: list[int] = modes.type.tolist()
    for mode, (t, number) in enumerate(zip(tables, kinds, strict=True)):
        kind, table = SHARDING_TYPES[number], problem.tables[t]
        targets = range(cluster.world_size // kind.coverage(cluster))
        whole = Layout(t, mode, group[mode], kind.coverage(cluster), targets)
        if not kind.splits_columns:
            yield whole, [(table.embedding_dim, 1)]
            continue
        local = cluster.local_world_size if kind.name == "table_column_wise" else len(targets)
        for alike, pairs in _splits(problem, t, number):
            for first in targets[::local]:
                yield Layout(t, mode, whole.group, whole.coverage, targets[first : first + local], alike), pairs


def _splits(problem: Problem, t: int, number: int) -> Iterator[tuple[tuple[str, int] | None, Pairs]]:
    """(what sequences must share, shares) of each rule by which a type may split a table's columns."""
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
            alike = None if table.pooled else (table.collection, width)
            yield alike, [(width, n + 1) for n in range(dim // width)]


# --- what no best plan needs ----------------------------------------------------------------------------------------


def _looks(shares: Shares) -> Floats:
    """All that a share asks of a rank (S, k + 4)."""
    return np.hstack([shares.terms, shares.head.astype(np.float64), shares.tail.astype(np.float64)])


def _outdone(shares: Shares) -> Bools:
    """Shares (S,) beside which the same layout has as many columns for no more of anything: other cuts of them."""
    looks, out = _looks(shares), np.zeros(len(shares.layout), dtype=bool)
    order = np.lexsort((shares.columns, shares.layout))
    alike = (np.diff(shares.layout[order]) == 0) & (np.diff(shares.columns[order]) == 0)
    for same in np.split(order, np.flatnonzero(~alike) + 1):
        if len(same) > 1:
            no_more = (looks[same][:, None] <= looks[same] * (1 + ROUNDING)).all(axis=2)  # [i, j]: i no more than j
            earlier = np.arange(len(same))[:, None] < np.arange(len(same))
            out[same] = (no_more & (~no_more.T | earlier)).any(axis=0)
    return out


def _needless_groups(evaluator: Evaluator, shares: Shares) -> Bools:
    """Groups (G,) that another stands in for: all that may be laid in them can be laid there at no higher cost."""
    columns: list[int] = shares.columns.tolist()
    layouts: list[int] = shares.layout.tolist()
    asked: list[dict[int, list[Floats]]] = [{} for _ in shares.layouts]
    for layout, size, look in zip(layouts, columns, _looks(shares), strict=True):
        asked[layout].setdefault(size, []).append(look)
    members: list[list[int]] = [[] for _ in range(evaluator.groups)]
    for number, layout in enumerate(shares.layouts):
        members[layout.group].append(number)

    def stands_in(other: int, mine: int) -> bool:
        return _reaches(shares.layouts[other], shares.layouts[mine]) and all(
            any((there <= here * (1 + ROUNDING)).all() for there in asked[other].get(size, ()))
            for size, held in asked[mine].items()
            for here in held
        )

    needless = np.zeros(evaluator.groups, dtype=bool)
    for group in reversed(range(evaluator.groups)):
        needless[group] = any(
            (evaluator.shared[other] <= evaluator.shared[group]).all()
            and all(any(stands_in(there, here) for there in members[other]) for here in members[group])
            for other in np.flatnonzero(~needless).tolist()
            if other != group
        )
    return needless


def _reaches(other: Layout, mine: Layout) -> bool:
    """Whether the pieces of a layout may stand wherever those of another may, and beside the same sequences."""
    same = other.table == mine.table and other.coverage == mine.coverage and other.alike in (None, mine.alike)
    return same and other.targets.start <= mine.targets.start and mine.targets.stop <= other.targets.stop
