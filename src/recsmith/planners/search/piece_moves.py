"""A piece of a slowest rank moves to another rank, or is swapped for a piece of one.

Legend: W ranks, m pieces of a slowest rank, n their partners on other ranks, F phases.
"""

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.planners.search.current_plan import CurrentPlan
from recsmith.planners.search.smooth_max import clipped_power

MOST_MOVED = 64  # pieces of a slowest rank, the dearest, that are tried against all others


def move_or_swap(plan: CurrentPlan, worst: int) -> bool:
    """Move a piece of a slowest rank, or swap it for another, whichever lowers the score most; False where none does.

    Changes are compared by what the pieces add to groups that hold equal ones; the best is checked against true loads.
    """
    pieces = plan.pieces
    mine = pieces.on_rank(worst)
    if not mine.size:
        return False
    mine = mine[np.argsort(-plan.devices.seconds[pieces.piece[mine]], kind="stable")][:MOST_MOVED]
    others = pieces.partners(worst, plan.copies.loads[0].sum(axis=0))
    moves, swaps = _moves(plan, worst, mine), _swaps(plan, worst, mine, others)
    move, swap, goal = moves.min(initial=np.inf), swaps.min(initial=np.inf), plan.goal(worst)
    if plan.score + min(move, swap) >= goal:
        return False
    if move <= swap:
        i, target = np.unravel_index(int(moves.argmin()), moves.shape)
        return _exchange(plan, [(int(mine[i]), int(target))], goal)
    i, j = np.unravel_index(int(swaps.argmin()), swaps.shape)
    partner = int(others[j])
    return _exchange(plan, [(int(mine[i]), int(pieces.target[partner])), (partner, worst)], goal)


def _moves(plan: CurrentPlan, worst: int, mine: Ints) -> Floats:
    """How each move of a piece to a rank changes the score (m, W); infinite where memory forbids it."""
    free = plan.copies.free[0]
    fits: Bools = (free[None, :] >= plan.pieces.size[mine][:, None]) & (np.arange(len(free)) != worst)
    if plan.devices.legality.any:
        fits &= _kept(plan, mine)
    own = plan.devices.marginal[:, plan.pieces.piece[mine]]  # (F, m)
    return np.where(fits, _change(plan, worst, slice(None), own[:, :, None]), np.inf)


def _swaps(plan: CurrentPlan, worst: int, mine: Ints, others: Ints) -> Floats:
    """How each swap of two pieces changes the score (m, n); infinite where memory forbids it."""
    pieces, free = plan.pieces, plan.copies.free[0]
    rank = pieces.target[others]
    grown = pieces.size[mine][:, None] - pieces.size[others]
    fits: Bools = (free[rank] >= grown) & (free[worst] >= -grown)
    if plan.devices.legality.any:
        fits &= _kept(plan, mine)[:, rank] & _kept(plan, others)[:, worst]
    seconds = plan.devices.marginal
    given = seconds[:, pieces.piece[mine]][:, :, None] - seconds[:, pieces.piece[others]][:, None, :]  # (F, m, n)
    return np.where(fits, _change(plan, worst, rank, given), np.inf)


def _kept(plan: CurrentPlan, pieces: Ints) -> Bools:
    """Ranks (m, W) that the constraints leave to each of these pieces (m,), beside all that is placed."""
    legality, table = plan.devices.legality, plan.pieces.table[pieces]
    on = plan.copies.placed(0) if legality.groups else None
    known = {t: legality.targets(t, 1, on) for t in np.unique(table).tolist()}
    return np.array([known[t] for t in table.tolist()], dtype=bool).reshape(len(table), len(plan.copies.free[0]))


def _change(plan: CurrentPlan, worst: int, rank: Ints | slice, given: Floats) -> Floats:
    """How the score changes when the slowest rank gives seconds (F, m, n) to other ranks (n,)."""
    loads, objective = plan.copies.full_loads()[0], plan.objective
    total = -plan.powers[rank] - plan.powers[worst]
    for load, reference, weight, seconds in zip(loads, objective.reference, objective.weight, given, strict=True):
        left = clipped_power(np.maximum(load[worst] - seconds, 0.0) / reference, objective.sharpness)
        right = clipped_power(np.maximum(load[rank] + seconds, 0.0) / reference, objective.sharpness)
        total = total + weight * (left + right)
    return total


def _exchange(plan: CurrentPlan, changes: list[tuple[int, int]], goal: float) -> bool:
    """Put pieces on other ranks, as (number of the piece, target); undone where memory, groups or loads say no."""
    before = [(number, int(plan.pieces.target[number])) for number, _ in changes]
    _put(plan, changes)
    if (plan.copies.host_free[0] >= 0).all() and plan.score_now() < goal and plan.copies.keeps_groups(0):
        return True
    _put(plan, before)
    return False


def _put(plan: CurrentPlan, changes: list[tuple[int, int]]) -> None:
    copies = plan.copies
    for number, target in changes:
        table = int(plan.pieces.table[number])
        option, targets = int(copies.option[0, table]), copies.targets[0][table].copy()
        targets[number - plan.pieces.start[table]] = target
        copies.remove(0, table)
        copies.insert(0, table, option, targets)
