"""Longest-first placement: pieces in falling order, each on the target that it suits best.

Legend: P pieces, N pieces of an assignment, W ranks.
"""

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.planners.search.assignment import NOWHERE, Assignment
from recsmith.planners.search.device_state import QUANTUM, DeviceState
from recsmith.planners.search.smooth_max import LEAST_LOAD
from recsmith.sharding import Span


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
    sequence = np.lexsort((np.arange(len(span)), -_weight(devices, assignment, order), -span))
    for i in sequence.tolist():
        place_best(devices, assignment, i, mean * QUANTUM)


def _weight(devices: DeviceState, assignment: Assignment, order: Floats) -> Floats:
    """The order of each piece (N,): pinned ones before all others, tables that stay together one after the other."""
    weight, legality = order[assignment.piece], devices.legality
    if not legality.any:
        return weight
    row = legality.row[assignment.table]
    for group in legality.groups:
        own = np.isin(row, group.rows) & (row >= 0)
        if group.kind == "together" and own.any():
            weight[own] = weight[own].max()
    weight[legality.pinned[assignment.table]] = np.inf
    return weight


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
    """Targets that type and constraints leave to piece i, beside what is placed; broadcasts over all targets.

    A rank holds pieces of one width of a table, and pieces of a table_column_wise table stay on one host.
    """
    allowed = _widths_allowed(devices, assignment, i)
    return allowed & kept_targets(devices, assignment, i) if devices.legality.any else allowed


def kept_targets(devices: DeviceState, assignment: Assignment, i: int) -> Bools:
    """Targets that the constraints leave to piece i, beside what is placed.

    The first of several tables that stay together goes where all of them have room, if there is such a rank.
    """
    piece, table = (
        int(assignment.piece[i]),
        int(devices.problem.modes.table[devices.problem.pieces.mode[assignment.piece[i]]]),
    )
    allowed, legality = devices.may_hold(piece), devices.legality
    if legality.pinned[table]:
        others = assignment.siblings(i)
        others = others[(assignment.target[others] != NOWHERE) & (assignment.piece[others] == piece)]
        width, size = int(devices.problem.pieces.width[piece]), int(devices.coverage[piece])
        return allowed & legality.pinned_targets(table, width, assignment.target[others], size)
    for group in legality.groups_of.get(table, ()):
        if group.kind == "together" and devices.span[piece] == Span.RANK and not devices.on[group.rows].any():
            own = np.isin(legality.row[assignment.table], group.rows) & (legality.row[assignment.table] >= 0)
            need = devices.problem.pieces.tail.device[assignment.piece[own]].sum() // group.local
            roomy = allowed & (devices.free >= need)
            allowed = roomy if roomy.any() else allowed
    return allowed


def _widths_allowed(devices: DeviceState, assignment: Assignment, i: int) -> Bools:
    """Targets that the type leaves to piece i, given the other pieces of its table."""
    if not devices.tied[assignment.option[assignment.table[i]]]:
        return np.ones(1, dtype=bool)
    others = assignment.siblings(i)
    others = others[assignment.target[others] != NOWHERE]
    allowed = np.ones(len(devices.free), dtype=bool)
    allowed[assignment.target[others][assignment.piece[others] != assignment.piece[i]]] = False  # other widths
    if others.size and devices.on_one_host[assignment.option[assignment.table[i]]]:
        allowed &= np.arange(len(allowed)) // devices.local == assignment.target[others[0]] // devices.local
    return allowed
