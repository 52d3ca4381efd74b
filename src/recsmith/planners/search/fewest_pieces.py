"""Placement of every table in as few pieces as fit a device; tables that find no room are split further.

Legend: T tables, P pieces.
"""

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.bounds.linear_bounds import SelectionLimits
from recsmith.bounds.relaxation import DEAREST, Relaxation, fitting_price
from recsmith.planners.search.assignment import NOWHERE, Assignment
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.placement import place_longest_first
from recsmith.planners.search.repair import repair
from recsmith.problems import NO_PIECE

PRICES = (1.0, 1.25, 2.0, 8.0)  # times the price of memory at which the selected options just fit all devices together
FEWEST_ROUNDS = 32  # of splitting tables that found no room, however few tables there are; each costs one placement


def place_in_fewest_pieces(devices: DeviceState, relaxation: Relaxation) -> Assignment | None:
    """Every table in as few pieces as fit a device, longest first; None where some piece finds no room.

    Tables that find no room are split further. Where all tables together outweigh all devices in this form, each takes
    the option that is cheapest at a price on memory instead, and they are placed heaviest first.
    """
    choice = fewest_pieces_options(relaxation)
    if not relaxation.option_fits[choice].all():
        return None
    room = float(devices.problem.capacity.sum())
    if relaxation.option_bytes[choice].sum() <= room:
        return _place_splitting(devices, relaxation, choice, devices.seconds)
    least = fitting_price(lambda p: relaxation.choose(SelectionLimits(price=p)), room)
    for price in (*(least * scale for scale in PRICES), DEAREST):
        choice = relaxation.choose(SelectionLimits(price=price)).option
        assignment = place_and_repair(devices, choice, relaxation.piece_bytes)
        if assignment.complete:
            return assignment
    fits = relaxation.option_bytes[choice].sum() <= room
    return _place_splitting(devices, relaxation, choice, relaxation.piece_bytes) if fits else None


def _place_splitting(devices: DeviceState, relaxation: Relaxation, choice: Ints, order: Floats) -> Assignment | None:
    """The chosen options (T,) in falling order (P,); tables that find no room are split further, round by round."""
    choice = choice.copy()
    for _ in range(max(len(devices.problem.tables), FEWEST_ROUNDS)):
        assignment = place_and_repair(devices, choice, order)
        if assignment.complete:
            return assignment
        lost = np.unique(assignment.table[assignment.target == NOWHERE])
        finer = np.array([finer_option(relaxation, int(choice[t])) for t in lost])
        if (finer == NO_PIECE).all():
            return None
        choice[lost] = np.where(finer == NO_PIECE, choice[lost], finer)
    return None


def place_and_repair(devices: DeviceState, choice: Ints, order: Floats) -> Assignment:
    """The chosen options (T,) on empty devices in falling order (P,), repaired; some pieces may have found no room."""
    devices.clear()
    assignment = Assignment.of(devices.problem, choice)
    place_longest_first(devices, assignment, order)
    repair(devices, assignment)
    return assignment


def fewest_pieces_options(relaxation: Relaxation) -> Ints:
    """Each table's option (T,) with the fewest pieces among those that fit an empty device."""
    options = relaxation.problem.options
    pieces = np.where(relaxation.option_fits, options.count.sum(axis=1), np.iinfo(np.int64).max)
    order = np.lexsort((np.arange(len(pieces)), pieces, options.table))
    return order[options.start[:-1]]


def finer_option(relaxation: Relaxation, option: int) -> int:
    """The option of the same table with lighter pieces, and the fewest of them; NO_PIECE if there is none."""
    problem = relaxation.problem
    own = np.flatnonzero(problem.options.table == problem.options.table[option])
    finer = own[relaxation.option_fits[own] & (relaxation.option_heaviest[own] < relaxation.option_heaviest[option])]
    return int(finer[problem.options.count[finer].sum(axis=1).argmin()]) if finer.size else NO_PIECE
