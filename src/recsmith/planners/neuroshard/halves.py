"""The pieces that planner neuroshard places: whole tables, and what halving their columns again and again makes.

Legend: T tables that the search places, P pieces (of every width that halving can make), k work terms.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.costs import Evaluator
from recsmith.problems import NO_PIECE, Problem
from recsmith.sharding import FUSED, SHARDING_TYPES, TYPE_NAMES, WIDTH_STEP


@dataclass(frozen=True)
class ColumnHalves:
    """Every piece that halving can make (P,), table by table, each followed by its half.

    table, mode, width: what a piece is. half: the piece of half the width, NO_PIECE where that is not legal. whole
    (T,): the piece of each whole table. terms (P, k): work terms. seconds: of compute, alone on a device. bytes: on a
    device. order: the place of each piece when all are sorted, dearest first. shape: equal for pieces that differ in
    name only.
    """

    table: Ints
    mode: Ints
    width: Ints
    half: Ints
    whole: Ints
    terms: Floats
    seconds: Floats
    bytes: Ints
    order: Ints
    shape: Ints

    @classmethod
    def of(cls, problem: Problem, evaluator: Evaluator) -> "ColumnHalves":
        """All halvings of all tables that may be on single devices."""
        rows: list[tuple[int, int, int, int]] = []
        whole: list[int] = []
        for t, mode in enumerate(_modes(problem)):
            if mode is None:
                continue
            whole.append(len(rows))
            widths = list(_halvings(problem, t, mode))
            last = len(rows) + len(widths) - 1
            rows += [(t, mode, width, min(len(rows) + i + 1, last)) for i, width in enumerate(widths)]
        table, mode, width, half = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        half = np.where(half == np.arange(len(half)), NO_PIECE, half)
        terms = evaluator.terms(mode, width)
        seconds = evaluator.compute(terms)
        _, tail = problem.memory(mode, width)  # of pieces on a single rank, which is their last
        sort = np.lexsort((-width, table, -seconds))
        order = np.empty(len(sort), dtype=np.int64)
        order[sort] = np.arange(len(sort))
        demands = np.column_stack(
            [
                terms,
                tail.device,
                width,
                evaluator.group[mode],
                problem.least_width[table],
                *kinds_of_tables(problem, table),
            ]
        )
        shape = np.unique(demands, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
        return cls(table, mode, width, half, np.array(whole, dtype=np.int64), terms, seconds, tail.device, order, shape)

    def sorted(self, pieces: Ints) -> Ints:
        """Pieces in the order in which they are placed: dearest first, then by table, then wide first."""
        return pieces[np.argsort(self.order[pieces], kind="stable")]


def kinds_of_tables(problem: Problem, table: Ints) -> list[Ints]:
    """Columns (P,) that tell pieces apart by what constraints say of their tables; none without constraints."""
    legality = problem.legality
    marks: list[Ints] = []
    if legality.open is not None:
        kind = np.unique(legality.open, axis=0, return_inverse=True)[1].reshape(-1)
        marks.append(kind[table])
    if legality.groups:
        marks.append(legality.row[table])
    return marks


def _modes(problem: Problem) -> list[int | None]:
    """The mode of each table: column_wise where it may be split, so that whole and split tables share a kernel."""
    wanted = [TYPE_NAMES.index("column_wise"), TYPE_NAMES.index("table_wise")]
    fused = FUSED.number
    found: dict[tuple[int, int], int] = {}
    for mode in np.flatnonzero(np.isin(problem.modes.type, wanted) & (problem.modes.kernel == fused)).tolist():
        found[int(problem.modes.table[mode]), int(problem.modes.type[mode])] = mode
    modes: list[int | None] = []
    for t, table in enumerate(problem.tables):
        if problem.legality.limited[t]:
            modes.append(None)  # placed in an option that its rules leave it
            continue
        splits = table.pooled and problem.space.widths == "any"
        names = wanted if splits else wanted[1:]  # TorchRec's one width, and sequences', leave nothing to halve
        modes.append(next((found[t, kind] for kind in names if (t, kind) in found), None))
    return modes


def _halvings(problem: Problem, table: int, mode: int) -> Iterator[int]:
    """Widths of a table's pieces: its own, and halves of it while they stay legal."""
    width = problem.tables[table].embedding_dim
    yield width
    kind = SHARDING_TYPES[int(problem.modes.type[mode])]
    splits = kind.splits_columns and problem.tables[table].pooled
    least = max(int(problem.least_width[table]), WIDTH_STEP)
    while splits and problem.space.widths == "any" and width % (2 * WIDTH_STEP) == 0 and width // 2 >= least:
        width //= 2
        yield width
