"""In which ways annealing may lay the tables of a problem, as padded arrays over options.

Legend: T tables, O options, P pieces of an option at most, N ways of a table at most, G fusion groups in reach,
F phases, k work terms.
"""

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.relaxation import Relaxation
from recsmith.planners.search.assignment import Assignment
from recsmith.planners.search.device_state import DeviceState
from recsmith.problems import NO_PIECE, Problem

MOST_TABLES = 300  # of a problem: with more, a table is hardly ever asked
WIDE = 4_000  # ranks times groups times terms of a plan up to which a step is quick
MOST_PIECES = 16  # of a table
WAYS_OF_A_KIND = 12  # options tried of each fusion group and number of pieces, the cheapest
DEAREST_WAY = 3.0  # of a table's cheapest option: dearer ones are not tried, but the lightest is


class AnnealingOptions:
    """Options that plans may hold.

    options (T, N): those tried, each table's repeated to fill up; count (T,): how many there are.
    near (O, 2): the next narrower and wider way of the same mode in as many pieces; the option itself at the ends.
    pieces, size, group, wide, narrow, first: of each option (O,), (O, P).
    """

    def __init__(self, ledger: DeviceState, relaxation: Relaxation) -> None:
        self.ledger, problem = ledger, ledger.problem
        options, pieces = problem.options, problem.pieces
        self.pieces: Ints = options.count.sum(axis=1)
        few = self.pieces <= min(MOST_PIECES, len(problem.capacity) + 4)
        self.fixed = ledger.on_one_host  # pieces that only move together
        self.apart: Bools = ledger.tied  # pieces of different widths may not meet
        room = self.pieces * problem.modes.coverage[options.mode] <= len(problem.capacity)
        tried = relaxation.option_fits & few & ~self.fixed & (room | ~self.apart)
        self.most = int(self.pieces[few & relaxation.option_fits].max(initial=1))
        listed = [_ways_of(relaxation, tried, table, self.pieces) for table in range(len(problem.tables))]
        self.count = np.array([len(each) for each in listed])
        self.options = np.stack([np.resize(each, max(1, self.count.max())) for each in listed])
        self.near = _neighbours(relaxation, np.concatenate(listed), self.pieces)
        self.reached: Bools = relaxation.option_fits & (self.pieces <= self.most)
        groups = np.unique(relaxation.option_group[self.reached])
        self.group, self.groups = np.searchsorted(groups, relaxation.option_group), len(groups)
        self.shared: Floats = ledger.shared[groups]  # (G, F)
        self.size: Ints = problem.modes.coverage[options.mode]
        empty = len(pieces.mode)  # stands for no piece
        both: Ints = np.where(options.piece == NO_PIECE, empty, options.piece)
        self.wide: Ints = both[:, 0]
        self.narrow: Ints = both[:, 1]
        self.first: Bools = np.arange(self.most) < options.count[:, :1]  # pieces of the first width
        self.terms = np.vstack([ledger.terms, np.zeros_like(ledger.terms[:1])])
        self.head, self.tail = np.append(pieces.head.device, 0), np.append(pieces.tail.device, 0)
        self.host_head, self.host_tail = np.append(pieces.head.host, 0), np.append(pieces.tail.host, 0)
        self.on_hosts = bool(self.host_tail.any() or self.host_head.any())
        self.numbers = self.groups * len(problem.capacity) * ledger.terms.shape[1]

    @property
    def usable(self) -> bool:
        """Whether every table has a way, and a plan is small enough to anneal."""
        return bool(self.count.all()) and self.numbers <= WIDE and self.suit(self.ledger.problem)

    @staticmethod
    def suit(problem: Problem) -> bool:
        """Whether a problem has few enough tables for annealing."""
        return len(problem.tables) <= MOST_TABLES

    def reaches(self, draft: Assignment) -> bool:
        """Whether a draft's options are among those that plans may hold."""
        return bool(self.reached[draft.option].all())


def _ways_of(relaxation: Relaxation, tried: Bools, table: int, pieces: Ints) -> Ints:
    """The options of a table worth trying: of each group and number of pieces the cheapest, and the lightest of all."""
    start = relaxation.problem.options.start
    own = np.arange(int(start[table]), int(start[table + 1]))
    own = own[tried[own]]
    if not own.size:
        return own
    seconds = relaxation.option_seconds[own]
    kinds: dict[tuple[int, int], list[int]] = {}
    for option in own[np.argsort(seconds, kind="stable")].tolist():
        kinds.setdefault((int(relaxation.option_group[option]), int(pieces[option])), []).append(option)
    kept = np.array([option for kind in kinds.values() for option in kind[:WAYS_OF_A_KIND]])
    cheap = relaxation.option_seconds[kept] <= DEAREST_WAY * seconds.min()
    lightest = own[relaxation.option_bytes[own].argmin()]
    return np.unique(np.append(kept[cheap], lightest))


def _neighbours(relaxation: Relaxation, ways: Ints, pieces: Ints) -> Ints:
    """AnnealingOptions (O, 2) of the same mode and number of pieces whose first pieces are next in width."""
    problem = relaxation.problem
    near = np.repeat(np.arange(len(pieces))[:, None], 2, axis=1)
    width = problem.pieces.width[problem.options.piece[ways, 0]]
    kind = np.stack([problem.options.mode[ways], pieces[ways]])
    order = np.lexsort((width, *kind))
    alike = (kind[:, order[1:]] == kind[:, order[:-1]]).all(axis=0)
    lower, upper = ways[order[:-1]][alike], ways[order[1:]][alike]
    near[upper, 0], near[lower, 1] = lower, upper
    return near
