"""Repair of a placement: room for pieces that found none, by chains of ever smaller pieces that move away."""

import numpy as np

from recsmith.planners.search.assignment import NOWHERE, Assignment
from recsmith.planners.search.device_state import QUANTUM, DeviceState
from recsmith.planners.search.placement import allowed_targets, place_best
from recsmith.planners.search.smooth_max import LEAST_LOAD
from recsmith.sharding import Span

LONGEST_CHAIN = 64  # pieces that one repair may move; trade-off: longer chains find more room and take longer


def repair(devices: DeviceState, assignment: Assignment) -> None:
    """Find room for unplaced pieces: each pushes a smaller piece away, which pushes a smaller one, and so on.

    Only pieces of single ranks move. Pieces for which no chain finds room stay unplaced.
    """
    lost = np.flatnonzero(assignment.target == NOWHERE)
    need = devices.problem.pieces.tail.device[assignment.piece[lost]]
    for i in lost[np.argsort(-need, kind="stable")].tolist():
        _push(devices, assignment, i)


def _push(devices: DeviceState, assignment: Assignment, i: int) -> None:
    """A chain of ever smaller pieces, each taking the place of the next; undone if the last finds no room."""
    mean = max(float(devices.load.mean()), LEAST_LOAD)
    done: list[tuple[int, int]] = []  # (piece that came, piece that it pushed away)
    for _ in range(LONGEST_CHAIN):
        if place_best(devices, assignment, i, mean * QUANTUM):
            return
        victim = _victim(devices, assignment, i)
        if victim == NOWHERE:
            break
        _replace(devices, assignment, victim, i)
        done.append((i, victim))
        i = victim
    for pusher, victim in reversed(done):
        _replace(devices, assignment, pusher, victim)


def _replace(devices: DeviceState, assignment: Assignment, goes: int, comes: int) -> None:
    """Take a placed piece away and put an unplaced one in its place."""
    target = int(assignment.target[goes])
    devices.place(int(assignment.piece[goes]), target, -1)
    assignment.target[goes] = NOWHERE
    devices.place(int(assignment.piece[comes]), target)
    assignment.target[comes] = target


def _victim(devices: DeviceState, assignment: Assignment, i: int) -> int:
    """The smallest placed piece that is smaller than piece i and would leave it enough room; NOWHERE if none."""
    piece = assignment.piece[i]
    if devices.span[piece] != Span.RANK:
        return NOWHERE
    device, host = devices.problem.pieces.tail.device, devices.problem.pieces.tail.host
    movable = (devices.span[assignment.piece] == Span.RANK) & (assignment.target != NOWHERE)
    others = np.flatnonzero(movable)
    target = assignment.target[others]
    size, held = device[assignment.piece[others]], host[assignment.piece[others]]
    makes_room = devices.free[target] + size >= device[piece]
    makes_room &= devices.host_free[target // devices.local] + held >= host[piece]
    allowed = np.broadcast_to(allowed_targets(devices, assignment, i), devices.free.shape)
    makes_room &= (size < device[piece]) & allowed[target]
    makes_room &= ~devices.tied[assignment.option[assignment.table[others]]]
    makes_room &= ~devices.legality.pinned[assignment.table[others]]
    if not makes_room.any():
        return NOWHERE
    size = np.where(makes_room, size, np.iinfo(np.int64).max)
    return int(others[size.argmin()])
