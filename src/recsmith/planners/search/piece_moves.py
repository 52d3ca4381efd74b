"""Moves of a piece from a slowest rank to another rank, and swaps of it for a piece of another rank.

`CurrentPlan` is the plan that local search improves, as it is at the start of a round, and the score that a change must
lower.

Legend: W ranks, N placed pieces, T tables, m pieces of a slowest rank, n their partners on other ranks, F phases.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.plan_copies import PlanCopies
from recsmith.planners.search.smooth_max import SmoothMax, clipped_power
from recsmith.sharding import Span
from recsmith.sharding.coverage import covers

LEAST_GAIN = 1e-7  # relative to a slowest rank's load; smaller gains are not worth a change
MOST_PARTNERS = 4096  # pieces of other ranks that a piece may be swapped for; trade-off: more find more, cost more time
MOST_MOVED = 64  # costliest pieces of a slowest rank that are tried against all others


@dataclass(frozen=True)
class CurrentPlan:
    """The plan of `copies` (its only one) in one round of local search, and the objective made at its loads.

    powers (W,): what each rank adds to the score at the start of the round; score: their sum.
    """

    devices: DeviceState
    copies: PlanCopies
    pieces: "MovablePieces"
    objective: SmoothMax
    powers: Floats
    score: float

    @classmethod
    def of(
        cls, devices: DeviceState, copies: PlanCopies, sharpness: int, pieces: "MovablePieces | None" = None
    ) -> "CurrentPlan":
        """The plan as it now is, with a smoothed maximum of this sharpness. pieces: the plan's own, if known."""
        loads = copies.full_loads()[0]
        objective = SmoothMax.at(loads, sharpness)
        powers = objective.powers(loads)
        pieces = pieces or MovablePieces(devices, copies)
        return cls(devices, copies, pieces, objective, powers, float(powers.sum()))

    def slowest_ranks(self) -> list[int]:
        """The rank that adds most to the score, then the slowest rank of each phase, without repetitions."""
        slowest: list[int] = self.copies.full_loads()[0].argmax(axis=1).tolist()
        return list(dict.fromkeys([int(self.powers.argmax()), *slowest]))

    def goal(self, rank: int) -> float:
        """The score that a change for this rank must undercut."""
        return self.score - LEAST_GAIN * self.objective.sharpness * float(self.powers[rank])

    def score_now(self) -> float:
        """The score of the plan after the changes that this round has made."""
        return float(self.objective.score(self.copies.full_loads()[0]))

    def tables_on(self, rank: int) -> list[int]:
        """Tables with a piece on a rank, the costliest there first."""
        pieces, devices = self.pieces, self.devices
        here = np.flatnonzero(covers(pieces.target, devices.coverage[pieces.piece], rank))
        order = here[np.argsort(-devices.seconds[pieces.piece[here]], kind="stable")]
        free = order[~devices.legality.pinned[pieces.table[order]]]
        return list(dict.fromkeys(pieces.table[free].tolist()))


class MovablePieces:
    """The pieces of a plan (N,), in order of tables: piece, target, table, and device bytes (size).

    start (T,): the index of each table's first piece. movable (N,): whether a piece may move to any other rank by
    itself.
    """

    def __init__(self, devices: DeviceState, copies: PlanCopies) -> None:
        targets: list[Ints] = copies.targets[0]
        counts = np.array([some.size for some in targets], dtype=np.int64)
        options = devices.problem.options
        self.piece = np.repeat(options.piece[copies.option[0]].ravel(), options.count[copies.option[0]].ravel())
        self.target = np.concatenate(targets)
        self.table = np.repeat(np.arange(len(targets)), counts)
        self.start = np.cumsum(counts) - counts
        self.size = devices.problem.pieces.tail.device[self.piece]
        tied = devices.tied[copies.option[0]][self.table]
        fixed = tied | devices.legality.pinned[self.table]
        self.movable: Bools = (devices.span[self.piece] == int(Span.RANK)) & ~fixed

    def on_rank(self, rank: int) -> Ints:
        """Movable pieces on a rank."""
        return np.flatnonzero(self.movable & (self.target == rank))

    def partners(self, rank: int, load: Floats) -> Ints:
        """Movable pieces of other ranks; if they are too many, those on the ranks with the smallest load (W,)."""
        others = np.flatnonzero(self.movable & (self.target != rank))
        if len(others) <= MOST_PARTNERS:
            return others
        there = load[self.target[others]]
        last = np.partition(there, MOST_PARTNERS - 1)[MOST_PARTNERS - 1]
        level = np.flatnonzero(there == last)[: MOST_PARTNERS - int((there < last).sum())]
        chosen = there < last
        chosen[level] = True
        return others[chosen]


# --- moves and swaps --------------------------------------------------------------------------------------------------


def move_or_swap(plan: CurrentPlan, worst: int) -> bool:
    """Move a piece of a slowest rank, or swap it for another, whichever lowers the score most; False if none does.

    Changes are compared by what pieces add to groups that hold equal ones; the best change is checked against true
    loads.
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
    """Change of the score by each move of a piece to a rank (m, W); infinite if memory or constraints forbid it."""
    free = plan.copies.free[0]
    fits: Bools = (free[None, :] >= plan.pieces.size[mine][:, None]) & (np.arange(len(free)) != worst)
    if plan.devices.legality.any:
        fits &= _kept(plan, mine)
    own = plan.devices.marginal[:, plan.pieces.piece[mine]]  # (F, m)
    return np.where(fits, _change(plan, worst, slice(None), own[:, :, None]), np.inf)


def _swaps(plan: CurrentPlan, worst: int, mine: Ints, others: Ints) -> Floats:
    """Change of the score by each swap of two pieces (m, n); infinite if memory or constraints forbid it."""
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
    """Ranks (m, W) that the constraints allow for each of these pieces (m,), given all that is placed."""
    legality, table = plan.devices.legality, plan.pieces.table[pieces]
    on = plan.copies.placed(0) if legality.groups else None
    known = {t: legality.targets(t, 1, on) for t in np.unique(table).tolist()}
    return np.array([known[t] for t in table.tolist()], dtype=bool).reshape(len(table), len(plan.copies.free[0]))


def _change(plan: CurrentPlan, worst: int, rank: Ints | slice, given: Floats) -> Floats:
    """Change of the score if the slowest rank gives seconds (F, m, n) to other ranks (n,)."""
    loads, objective = plan.copies.full_loads()[0], plan.objective
    total = -plan.powers[rank] - plan.powers[worst]
    for load, reference, weight, seconds in zip(loads, objective.reference, objective.weight, given, strict=True):
        left = clipped_power(np.maximum(load[worst] - seconds, 0.0) / reference, objective.sharpness)
        right = clipped_power(np.maximum(load[rank] + seconds, 0.0) / reference, objective.sharpness)
        total = total + weight * (left + right)
    return total


def _exchange(plan: CurrentPlan, changes: list[tuple[int, int]], goal: float) -> bool:
    """Move pieces (index, target) to other ranks; undone, with False, if host memory, groups or loads forbid it."""
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
        plan.pieces.target[number] = target
