"""An assignment: the option that each table takes, and the target of each of its pieces.

Legend: T tables, N pieces of the options taken.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from recsmith._types import Ints
from recsmith.problems import NO_PIECE, Footprint, Problem
from recsmith.problems.footprint import ordered_footprint

NOWHERE = -1  # the target of a piece that is not placed


@dataclass
class Assignment:
    """One option per table (T,), and for each piece of it (N,) its table, the piece, and its target or NOWHERE."""

    option: Ints
    table: Ints
    piece: Ints
    target: Ints

    @classmethod
    def of(cls, problem: Problem, choice: Ints) -> "Assignment":
        """The pieces of the chosen options (T,), in order of tables, wide first, none placed yet."""
        piece, count = problem.options.piece[choice], problem.options.count[choice]
        table = np.repeat(np.arange(len(choice)), count.sum(axis=1))
        pieces = np.repeat(piece.ravel(), count.ravel())
        return cls(choice, table, pieces[pieces != NO_PIECE], np.full(len(table), NOWHERE))

    @staticmethod
    def options_of(problem: Problem, footprint: Footprint) -> Ints:
        """The option of each table (T,) of placed pieces, NO_PIECE where a table is split as by none of its options."""
        placed = ordered_footprint(problem, footprint.mode, footprint.width, footprint.target)
        mode, width, tables = placed.mode, placed.width, np.arange(len(problem.tables) + 1)
        start = np.searchsorted(problem.modes.table[mode], tables).tolist()
        return np.array([_option_of(problem, t, int(mode[a]), width[a:b]) for t, (a, b) in enumerate(pairwise(start))])

    @classmethod
    def from_footprint(cls, problem: Problem, footprint: Footprint) -> "Assignment | None":
        """The assignment of placed pieces; None where a table is split in a way that is none of its options."""
        choice = cls.options_of(problem, footprint)
        if (choice == NO_PIECE).any():
            return None
        made = cls.of(problem, choice)
        made.target[:] = ordered_footprint(problem, footprint.mode, footprint.width, footprint.target).target
        return made

    @classmethod
    def of_table(cls, option: int, piece: Ints, target: Ints) -> "Assignment":
        """The pieces of one table alone."""
        return cls(np.array([option]), np.zeros(len(piece), dtype=np.int64), piece, target)

    def footprint(self, problem: Problem) -> Footprint:
        """The placed pieces, in order of tables."""
        return Footprint(problem.pieces.mode[self.piece], problem.pieces.width[self.piece], self.target)

    @property
    def complete(self) -> bool:
        """Whether every piece is placed."""
        return bool((self.target != NOWHERE).all())

    def siblings(self, i: int) -> Ints:
        """The other pieces of the table of piece i."""
        first, last = np.searchsorted(self.table, [self.table[i], self.table[i] + 1])
        return np.array([j for j in range(first, last) if j != i], dtype=np.int64)


def _option_of(problem: Problem, table: int, mode: int, widths: Ints) -> int:
    """The option of a table with this mode and these widths (wide first), or NO_PIECE."""
    options = problem.options
    own = np.arange(int(options.start[table]), int(options.start[table + 1]))
    own = own[(options.mode[own] == mode) & (options.count[own].sum(axis=1) == len(widths))]
    for option in own.tolist():
        pieces = np.repeat(options.piece[option], options.count[option])
        if np.array_equal(problem.pieces.width[pieces], widths):
            return option
    return NO_PIECE
