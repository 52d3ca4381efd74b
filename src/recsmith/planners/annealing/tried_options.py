"""Which options annealing gives the tables of a problem at random.

Legend: T tables, O options, N options tried of a table at most.
"""

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.bounds.relaxation import Relaxation
from recsmith.planners.search.device_state import DeviceState

MOST_PIECES = 16  # of a table
SPARE_PIECES = 4  # more than there are ranks: so many pieces of a table are tried at most
OPTIONS_OF_A_KIND = 12  # tried of each fusion group and number of pieces of a table, the cheapest
DEAREST = 3.0  # times the seconds of a table's cheapest option: dearer ones are not tried, but the lightest is


class TriedOptions:
    """The options that tables are given at random.

    tried (T, N): each table's, repeated to fill up; count (T,): how many there are. pieces (O,): number of pieces.
    near (O, 2): the next narrower and wider option of the same mode in as many pieces; the option itself at the ends.
    together (O,): pieces that only move together; apart (O,): pieces of different widths may not share a rank.
    """

    def __init__(self, devices: DeviceState, relaxation: Relaxation) -> None:
        self.devices, problem = devices, devices.problem
        options = problem.options
        self.pieces: Ints = options.count.sum(axis=1)
        self.few: Bools = self.pieces <= min(MOST_PIECES, len(problem.capacity) + SPARE_PIECES)
        self.together = devices.on_one_host
        self.apart: Bools = devices.tied
        room = self.pieces * problem.modes.coverage[options.mode] <= len(problem.capacity)
        tried = relaxation.option_fits & self.few & ~self.together & (room | ~self.apart)
        tried |= relaxation.option_fits & devices.legality.pinned[options.table]
        listed = [_tried_of(relaxation, tried, table, self.pieces) for table in range(len(problem.tables))]
        self.count = np.array([len(each) for each in listed])
        self.tried = np.stack([np.resize(each, max(1, self.count.max())) for each in listed])
        self.near = _neighbours(relaxation, np.concatenate(listed), self.pieces)


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
