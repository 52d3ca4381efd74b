"""A plan of another planner rebuilt from shares, so that a search over shares can go on from it.

Legend: L layouts, S shares, N placed pieces.
"""

from dataclasses import dataclass

import numpy as np

from recsmith.costs import Evaluator
from recsmith.planners.solver.layouts import Shares
from recsmith.problems import Footprint, Problem


@dataclass(frozen=True, slots=True)
class PlacedTable:
    """How a plan places one table: its mode and coverage, its pieces in the footprint, and its columns by target."""

    mode: int
    coverage: int
    pieces: list[int]
    columns: dict[int, int]

    @classmethod
    def of(cls, problem: Problem, footprint: Footprint, table: int) -> "PlacedTable":
        """The table with this number."""
        pieces: list[int] = np.flatnonzero(problem.modes.table[footprint.mode] == table).tolist()
        mode, columns = int(footprint.mode[pieces[0]]), dict[int, int]()
        for piece in pieces:
            target = int(footprint.target[piece])
            columns[target] = columns.get(target, 0) + int(footprint.width[piece])
        return cls(mode, int(problem.modes.coverage[mode]), pieces, columns)


def rebuilt_from(evaluator: Evaluator, shares: Shares, footprint: Footprint) -> Footprint | None:
    """The plan rebuilt from these shares, with each table's columns where they were; None where the shares lack some.

    Of several layouts one of the same mode is taken, then the one whose shares cost most nearly what the pieces do.
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
