"""Longest-first placement: pieces in falling order, each on the target that it suits best.

Legend: P pieces, N pieces of an assignment, W ranks.
"""

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.planners.search.assignment import NOWHERE, Assignment
from recsmith.planners.search.device_state import QUANTUM, DeviceState
from recsmith.planners.search.smooth_max import LEAST_LOAD


def place_longest_first(devices: DeviceState, assignment: Assignment, order: Floats) -> None:
    """Put each piece, in falling `order` (P,), on the target that it suits best among those with room.

    Pieces of the whole world go first, then those of hosts, then those of ranks. Equal loads go to the lowest target.
    A piece for which no target has room stays unplaced. Cost: N steps over W ranks.
    """
    span = devices.span[assignment.piece]
    devices.expect(assignment.piece)
    mean = max(float((devices.seconds[assignment.piece]).sum()) / len(devices.free), LEAST_LOAD)
    if devices.balances_powers:
        mean *= QUANTUM  # powers of small loads are smaller still
    sequence = np.lexsort((np.arange(len(span)), -order[assignment.piece], -span))
    for i in sequence.tolist():
        place_best(devices, assignment, i, mean * QUANTUM)


def place_best(devices: DeviceState, assignment: Assignment, i: int, quantum: float) -> bool:
    """Put piece i on its best target, preferences compared in multiples of `quantum`; False where none has room."""
    piece = int(assignment.piece[i])
    room = devices.fits(piece) & allowed_targets(devices, assignment, i)
    if not room.any():
        return False
    score = np.where(room, devices.preference(piece) / quantum, np.inf)
    target = int(np.floor(score, out=score).argmin())
    devices.place(piece, target)
    assignment.target[i] = target
    return True


def allowed_targets(devices: DeviceState, assignment: Assignment, i: int) -> Bools:
    """Targets that the type leaves to piece i, given the other pieces of its table; broadcasts over all targets.

    A rank holds pieces of one width of a table, and pieces of a table_column_wise table stay on one host.
    """
    if not devices.tied[assignment.option[assignment.table[i]]]:
        return np.ones(1, dtype=bool)
    others = assignment.siblings(i)
    others = others[assignment.target[others] != NOWHERE]
    allowed = np.ones(len(devices.free), dtype=bool)
    allowed[assignment.target[others][assignment.piece[others] != assignment.piece[i]]] = False  # other widths
    if others.size and devices.on_one_host[assignment.option[assignment.table[i]]]:
        allowed &= np.arange(len(allowed)) // devices.local == assignment.target[others[0]] // devices.local
    return allowed
