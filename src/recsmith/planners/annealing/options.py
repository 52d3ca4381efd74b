"""The options that annealing may give the tables of a problem, as padded arrays.

Legend: T tables, O options, P pieces of an option at most, N options tried of a table at most, W ranks, G fusion groups
in reach, F phases, k work terms.
"""

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.relaxation import Relaxation
from recsmith.planners.annealing.tried_options import TriedOptions
from recsmith.planners.search.assignment import Assignment
from recsmith.planners.search.device_state import DeviceState
from recsmith.problems import NO_PIECE, Problem

MOST_TABLES = 300  # of a problem: a step changes one table of each plan, so of more tables each hardly ever changes
MOST_NUMBERS = 4_000  # of a plan (ranks times groups times terms): steps of larger plans are slow


PAIRS = 2  # (piece, count) pairs of an option, but for pinned tables


class AnnealingOptions(TriedOptions):
    """Options that plans may hold.

    reached (O,): those that plans may hold besides the tried ones, as starts do.
    size, group (O,): ranks that each piece covers, fusion group among those in reach.
    wide, narrow (O,): its pieces, a number with neither terms nor bytes where there is none; first (O, P): which of
    its pieces are wide ones.
    """

    def __init__(self, devices: DeviceState, relaxation: Relaxation) -> None:
        super().__init__(devices, relaxation)
        problem, options, pieces = devices.problem, devices.problem.options, devices.problem.pieces
        self.most = int(self.pieces[self.few & relaxation.option_fits].max(initial=1))
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
        """Whether a problem has few enough tables for annealing, and no table in pieces of three widths or more."""
        return len(problem.tables) <= MOST_TABLES and problem.options.piece.shape[1] == PAIRS

    def reaches(self, draft: Assignment) -> bool:
        """Whether a draft's options are among those that plans may hold."""
        return bool(self.reached[draft.option].all())
