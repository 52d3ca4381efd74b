"""The options that annealing may give the tables of a problem, as padded arrays.

Legend: T tables, O options, P pieces of an option at most, N options tried of a table at most, W ranks, G fusion groups
in reach, F phases, k work terms.
"""

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.relaxation import Relaxation
from recsmith.planners.search.assignment import Assignment
from recsmith.planners.search.device_state import DeviceState
from recsmith.problems import NO_PIECE, Problem

MOST_TABLES = 300  # of a problem: a step changes one table of each plan, so of more tables each hardly ever changes
MOST_NUMBERS = 4_000  # of a plan (ranks times groups times terms): steps of larger plans are slow
MOST_PIECES = 16  # of a table
SPARE_PIECES = 4  # more than there are ranks: so many pieces of a table are tried at most
OPTIONS_OF_A_KIND = 12  # tried of each fusion group and number of pieces of a table, the cheapest
DEAREST = 3.0  # times the seconds of a table's cheapest option: dearer ones are not tried, but the lightest is


class AnnealingOptions:
    """Options that plans may hold.

    tried (T, N): those that tables are given at random, each table's repeated to fill up; count (T,): how many there
    are. reached (O,): those that plans may hold besides, as starts do.
    near (O, 2): the next narrower and wider option of the same mode in as many pieces; the option itself at the ends.
    pieces, size, group (O,): number of pieces, ranks that each covers, fusion group among those in reach.
    wide, narrow (O,): its pieces, a number with neither terms nor bytes where there is none; first (O, P): which of
    its pieces are wide ones.
    together (O,): pieces that only move together; apart (O,): pieces of different widths may not share a rank.
    """

    def __init__(self, devices: DeviceState, relaxation: Relaxation) -> None:
        self.devices, problem = devices, devices.problem
        options, pieces = problem.options, problem.pieces
        self.pieces: Ints = options.count.sum(axis=1)
        few = self.pieces <= min(MOST_PIECES, len(problem.capacity) + SPARE_PIECES)
        self.together = devices.on_one_host
        self.apart: Bools = devices.tied
        room = self.pieces * problem.modes.coverage[options.mode] <= len(problem.capacity)
        tried = relaxation.option_fits & few & ~self.together & (room | ~self.apart)
        self.most = int(self.pieces[few & relaxation.option_fits].max(initial=1))
        listed = [_tried_of(relaxation, tried, table, self.pieces) for table in range(len(problem.tables))]
        self.count = np.array([len(each) for each in listed])
        self.tried = np.stack([np.resize(each, max(1, self.count.max())) for each in listed])
        self.near = _neighbours(relaxation, np.concatenate(listed), self.pieces)
        self.reached: Bools = relaxation.option_fits & (self.pieces <= self.most)
        groups = np.unique(relaxation.option_group[self.reached])
        self.group, self.groups = np.searchsorted(groups, relaxation.option_group), len(groups)
        self.shared: Floats = devices.shared[groups]  # (G, F)
        self.size: Ints = problem.modes.coverage[options.mode]
        empty = len(pieces.mode)  # stands for no piece
        both: Ints = np.where(options.piece == NO_PIECE, empty, options.piece)
        self.wide: Ints = both[:, 0]
        self.narrow: Ints = both[:, 1]
        self.first: Bools = np.arange(self.most) < options.count[:, :1]
        self.terms = np.vstack([devices.terms, np.zeros_like(devices.terms[:1])])
        self.head, self.tail = np.append(pieces.head.device, 0), np.append(pieces.tail.device, 0)
        self.host_head, self.host_tail = np.append(pieces.head.host, 0), np.append(pieces.tail.host, 0)
        self.on_hosts = bool(self.host_tail.any() or self.host_head.any())
        self.numbers = self.groups * len(problem.capacity) * devices.terms.shape[1]

    @property
    def usable(self) -> bool:
        """Whether every table has an option to try, and a plan is small enough to anneal."""
        return bool(self.count.all()) and self.numbers <= MOST_NUMBERS and self.suit(self.devices.problem)

    @staticmethod
    def suit(problem: Problem) -> bool:
        """Whether a problem has few enough tables for annealing."""
        return len(problem.tables) <= MOST_TABLES

    def reaches(self, draft: Assignment) -> bool:
        """Whether a draft's options are among those that plans may hold."""
        return bool(self.reached[draft.option].all())


def _tried_of(relaxation: Relaxation, tried: Bools, table: int, pieces: Ints) -> Ints:
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
    some = np.array([option for kind in kinds.values() for option in kind[:OPTIONS_OF_A_KIND]])
    cheap = relaxation.option_seconds[some] <= DEAREST * seconds.min()
    lightest = own[relaxation.option_bytes[own].argmin()]
    return np.unique(np.append(some[cheap], lightest))


def _neighbours(relaxation: Relaxation, tried: Ints, pieces: Ints) -> Ints:
    """Options (O, 2) of the same mode and number of pieces whose first pieces are next in width, among those tried."""
    problem = relaxation.problem
    near = np.repeat(np.arange(len(pieces))[:, None], 2, axis=1)
    width = problem.pieces.width[problem.options.piece[tried, 0]]
    kind = np.stack([problem.options.mode[tried], pieces[tried]])
    order = np.lexsort((width, *kind))
    same = (kind[:, order[1:]] == kind[:, order[:-1]]).all(axis=0)
    lower, upper = tried[order[:-1]][same], tried[order[1:]][same]
    near[upper, 0], near[lower, 1] = lower, upper
    return near
