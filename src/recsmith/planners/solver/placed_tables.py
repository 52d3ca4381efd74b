"""The tables of a given plan: some held fixed while others are placed again, or all rebuilt from shares.

Legend: T tables, L layouts, S shares, W ranks, H hosts, G fusion groups, N placed pieces, k work terms.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs import Evaluator, device_sums
from recsmith.planners.solver.layouts import SharedWidth, Shares, width_agrees
from recsmith.problems import Footprint, Problem, memory_used, ordered_footprint, sum_per_group
from recsmith.sharding import SHARDING_TYPES


@dataclass(frozen=True)
class FixedTables:
    """Which tables (T,) are fixed, and what they put on every rank and host.

    sums (G, W, k): summed work terms. pieces (G, W): how many. device (W,), host (H,): bytes. groups (G,): whether a
    fusion group holds any. widths: of column-wise sequences, one for each collection that has them. on (R, W): shards
    of tables in groups (problems/legality.py).
    """

    tables: Bools
    sums: Floats
    pieces: Ints
    device: Ints
    host: Ints
    groups: Bools
    widths: dict[str, int]
    on: Ints

    @classmethod
    def nothing(cls, evaluator: Evaluator) -> "FixedTables":
        """No table is fixed."""
        none = np.empty(0, dtype=np.int64)
        return cls.of(evaluator, Footprint(none, none, none), np.ones(len(evaluator.problem.tables), dtype=bool))

    @classmethod
    def of(cls, evaluator: Evaluator, footprint: Footprint, free: Bools) -> "FixedTables":
        """All tables of a plan are fixed except the free ones (T,)."""
        problem = evaluator.problem
        fixed = _pieces_of(problem, footprint, ~free)
        group = evaluator.group[fixed.mode]
        device, host = memory_used(problem, fixed)
        ones = np.ones(len(group), dtype=np.int64)
        return cls(
            tables=~free, sums=np.moveaxis(device_sums(evaluator, fixed), 0, 1),
            pieces=sum_per_group(ones, group, evaluator.groups, fixed, problem).T, device=device, host=host,
            groups=np.bincount(group, minlength=evaluator.groups) > 0, widths=_sequence_widths(problem, fixed),
            on=problem.legality.placed(fixed),
        )  # fmt: skip

    def allows(self, shared_width: SharedWidth | None) -> bool:
        """Whether column-wise sequences of this (collection, width) may be combined with the fixed tables."""
        return width_agrees(shared_width, self.widths)


def merged(problem: Problem, footprint: Footprint, free: Bools, replacement: Footprint) -> Footprint:
    """The plan with the free tables' pieces (T,) replaced by others."""
    fixed = _pieces_of(problem, footprint, ~free)
    mode = np.append(fixed.mode, replacement.mode)
    width = np.append(fixed.width, replacement.width)
    return ordered_footprint(problem, mode, width, np.append(fixed.target, replacement.target))


def _pieces_of(problem: Problem, footprint: Footprint, tables: Bools) -> Footprint:
    """The pieces of some tables (T,) of a plan."""
    of_them = tables[problem.modes.table[footprint.mode]]
    return Footprint(footprint.mode[of_them], footprint.width[of_them], footprint.target[of_them])


def _sequence_widths(problem: Problem, footprint: Footprint) -> dict[str, int]:
    """The width of the column-wise sequences of each collection that has them."""
    widths: dict[str, int] = {}
    for mode, width in zip(footprint.mode.tolist(), footprint.width.tolist(), strict=True):
        owner = problem.tables[problem.modes.table[mode]]
        if not owner.pooled and SHARDING_TYPES[problem.modes.type[mode]].splits_columns:
            widths[owner.collection] = width
    return widths


# --- plans rebuilt from shares ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlacedTable:
    """How a plan places one table: its mode and coverage, its pieces in the footprint, and its columns by target."""

    mode: int
    coverage: int
    pieces: list[int]
    columns: dict[int, int]

    @classmethod
    def of(cls, problem: Problem, footprint: Footprint, table: int) -> "PlacedTable":
        """The placement of the table with this index."""
        pieces: list[int] = np.flatnonzero(problem.modes.table[footprint.mode] == table).tolist()
        mode, columns = int(footprint.mode[pieces[0]]), dict[int, int]()
        for piece in pieces:
            target = int(footprint.target[piece])
            columns[target] = columns.get(target, 0) + int(footprint.width[piece])
        return cls(mode, int(problem.modes.coverage[mode]), pieces, columns)


def rebuilt_from(evaluator: Evaluator, shares: Shares, footprint: Footprint) -> Footprint | None:
    """The plan rebuilt from these shares, with each table's columns where they were; None if shares are missing.

    Of several layouts, one of the same mode is preferred, then the one whose shares' costs are nearest to the pieces'.
    """
    problem = evaluator.problem
    alone: list[float] = evaluator.loads(shares.terms).sum(axis=0).tolist()  # (S,)
    pieces: list[float] = evaluator.loads(evaluator.terms(footprint.mode, footprint.width)).sum(axis=0).tolist()  # (N,)
    by_columns = shares.by_columns
    chosen: list[tuple[int, int]] = []  # (share, target)
    for table in range(len(problem.tables)):
        placed = PlacedTable.of(problem, footprint, table)
        seconds = dict.fromkeys(placed.columns, 0.0)
        for piece in placed.pieces:
            seconds[int(footprint.target[piece])] += pieces[piece]
        found: list[tuple[bool, float, list[tuple[int, int]]]] = []
        for layout, known in zip(shares.layouts, by_columns, strict=True):
            same = layout.table == table and layout.coverage == placed.coverage
            if same and placed.columns.keys() <= set(layout.targets) and set(placed.columns.values()) <= known.keys():
                nearest = [min((abs(alone[s] - seconds[t]), s, t) for s in known[n]) for t, n in placed.columns.items()]
                off = sum(each for each, _, _ in nearest)
                found.append((layout.mode != placed.mode, off, [(s, t) for _, s, t in nearest]))
        if not found:
            return None
        chosen += min(found)[2]
    share, target = np.array(chosen, dtype=np.int64).T
    return shares.footprint(problem, share, target)
