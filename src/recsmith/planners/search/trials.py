"""Trials: a table is put into a plan by one of its options, each piece where it raises the score least.

All options of a table cost the same few array operations in one plan or in fifty, so local search runs all its trials
together. The score is a smooth approximation of the step (smooth_max.py).

Legend: S plans, N trials (an option of a table in a plan), r trials worked on at once, n pieces of a trial, W ranks,
F phases, k work terms.
"""

from typing import NamedTuple

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.planners.search.device_state import NOWHERE
from recsmith.planners.search.plan_copies import PlanCopies
from recsmith.planners.search.smooth_max import SmoothMax
from recsmith.problems import Legality
from recsmith.sharding.coverage import by_target, covered_ranks

STEP_EFFORT = 25_000  # numbers that count for setting up one step: about as many as are worked on in the same time
CHUNK = 200_000  # numbers (trials times ranks) worked on at once, so that they stay in a core's cache


class Trial(NamedTuple):
    """A table put into a plan: the score of the plan with it, the option, and a target per piece (n,)."""

    score: float
    option: int
    target: Ints


def best_trials(copies: PlanCopies, slot: Ints, plan: Ints, option: Ints, objective: SmoothMax) -> dict[int, Trial]:
    """The best trial of each slot; trial i puts option[i] into plan[i] and belongs to slot[i]; arrays (N,).

    Slots without a legal trial are left out. Ties are broken by the first trial.
    """
    found: dict[int, Trial] = {}
    devices = copies.devices
    size = devices.coverage[devices.problem.options.piece[option, 0]]
    at_once = max(1, CHUNK // copies.loads.shape[2])
    for coverage in np.unique(size).tolist():
        same = np.flatnonzero(size == coverage)
        for first in range(0, len(same), at_once):
            some = same[first : first + at_once]
            score, target = _place_all(copies, plan[some], option[some], coverage, objective)
            for i in np.lexsort((some, score)).tolist():
                if not np.isfinite(score[i]):
                    break
                best = found.get(int(slot[some[i]]))
                if best is None or score[i] < best.score:
                    targets = target[i][target[i] != NOWHERE]
                    found[int(slot[some[i]])] = Trial(float(score[i]), int(option[some[i]]), targets)
    return found


def _place_all(
    copies: PlanCopies, plan: Ints, option: Ints, coverage: int, objective: SmoothMax
) -> tuple[Floats, Ints]:
    """(score (r,), infinite if a piece finds no room; targets (r, n)) of trials whose pieces cover `coverage` ranks."""
    devices, problem = copies.devices, copies.devices.problem
    piece, count = problem.options.piece[option], problem.options.count[option]
    pieces = count.sum(axis=1)
    group = devices.group[piece[:, 0]]
    state = _TrialsInProgress(copies, plan, group, coverage, objective)
    kept = kept_trials(copies, plan, option, coverage) if devices.legality.any else None
    target = np.full((len(plan), int(pieces.max())), NOWHERE)
    tied, on_one_host = devices.tied[option], devices.on_one_host[option]
    width = problem.pieces.width
    for step in range(target.shape[1]):
        rows = np.flatnonzero(pieces > step)
        second = count[rows, 0] <= step
        now: Ints = piece[rows, second.astype(np.int64)]
        allowed = None
        if step and tied[rows].any():
            allowed = state.allowed(rows, width[now], tied[rows], on_one_host[rows])
        if kept is not None:
            allowed = kept.left(rows, target) if allowed is None else allowed & kept.left(rows, target)
        target[rows, step] = state.place(rows, now, allowed, width[now])
        devices.effort += STEP_EFFORT + len(rows) * copies.loads.shape[2]
    return state.scores(), target


class KeptTrials(NamedTuple):
    """What constraints allow for trials. open (r, W / size): targets. shards (r,): most pieces that a target takes."""

    open: Bools
    shards: Ints

    def left(self, rows: Ints, target: Ints) -> Bools:
        """Targets (rows, W / size) that are left, given the targets (r, n) of placed pieces (or NOWHERE)."""
        most = self.shards[rows]
        if (most > target.shape[1]).all():
            return self.open[rows]
        taken = np.zeros(self.open[rows].shape, dtype=np.int64)
        row, piece = np.nonzero(target[rows] != NOWHERE)
        np.add.at(taken, (row, target[rows][row, piece]), 1)
        return self.open[rows] & (taken < most[:, None])


def kept_trials(copies: PlanCopies, plan: Ints, option: Ints, coverage: int) -> KeptTrials:
    """What constraints allow for tables that are taken out, each by an option (r,) in a plan (r,)."""
    legality, table = copies.devices.legality, copies.devices.problem.options.table[option]
    pairs = list(zip(plan.tolist(), table.tolist(), strict=True))
    on = {each: copies.placed(each) for each in set(plan.tolist())} if legality.groups else dict[int, Ints]()
    open_ = {(p, t): legality.targets(t, coverage, on.get(p)) for p, t in set(pairs)}
    most = [_most_shards(legality, t) for _, t in pairs]
    return KeptTrials(np.array([open_[pair] for pair in pairs]), np.array(most, dtype=np.int64))


def _most_shards(legality: Legality, table: int) -> int:
    """Most pieces of a table that a target takes, counting other tables as full: 1 if shards per rank are limited."""
    counted = any(group.kind == "shards" for group in legality.groups_of.get(table, ()))
    return 1 if counted else np.iinfo(np.int64).max


class _TrialsInProgress:
    """Trials in progress (r), all with pieces that cover `size` ranks: copies of the state that they change.

    sums (r, W, k): terms of the trial's fusion group; others (r, F, W): loads of all other groups; powers (r, W): what
    each rank adds to the score; free (r, W), host_free (r, H): bytes, on hosts at most what is free, because tails are
    counted as heads; width_on (r, W / size): width of the table's pieces on each target, or 0.
    """

    def __init__(self, copies: PlanCopies, plan: Ints, group: Ints, size: int, objective: SmoothMax) -> None:
        self.devices, self.objective, self.size = copies.devices, objective, size
        opened = copies.devices.shared[group] * (copies.in_group[plan, group] == 0)[:, None]
        own = copies.group_loads[plan, group]
        self.sums = copies.sums[plan, group]
        self.others = copies.loads[plan] - own + (copies.common[plan] + opened)[:, :, None]
        self.powers = objective.powers(self.others + own)
        self.free, self.host_free = copies.free[plan], copies.host_free[plan]
        self.failed = np.zeros(len(plan), dtype=bool)
        self.width_on = np.zeros((len(plan), copies.loads.shape[2] // size), dtype=np.int64)

    def allowed(self, rows: Ints, width: Ints, tied: Bools, on_one_host: Bools) -> Bools:
        """Targets (r, W / size) that hold no other width of the table and are on the host its pieces must share."""
        held = self.width_on[rows]
        fine = (held == 0) | (held == width[:, None])
        local = self.devices.local
        hosts = (held.reshape(len(rows), -1, local) > 0).any(axis=2) if self.size == 1 else held > 0
        there = np.repeat(hosts, local, axis=1) if self.size == 1 else hosts
        return (fine & (there | ~on_one_host[:, None])) | ~tied[:, None]

    def place(self, rows: Ints, piece: Ints, allowed: Bools | None, width: Ints) -> Ints:
        """Place a piece of each of these trials where the score grows least; NOWHERE (and failed) without room."""
        devices, size = self.devices, self.size
        sums = self.sums[rows] + devices.terms[piece][:, None, :]
        loads = self.others[rows] + np.moveaxis(devices.evaluator.loads(sums), 0, 1)
        powers = self.objective.powers(loads)
        growth = by_target(powers - self.powers[rows], size).sum(axis=2)
        fits = self._fits(rows, piece)
        growth[~(fits if allowed is None else fits & allowed)] = np.inf
        target, each = growth.argmin(axis=1), np.arange(len(rows))
        found = np.isfinite(growth[each, target])
        self.failed[rows[~found]] = True
        ranks = covered_ranks(target, size)  # (r, size)
        self.sums[rows[:, None], ranks] = sums[each[:, None], ranks]
        self.powers[rows[:, None], ranks] = powers[each[:, None], ranks]
        self._take_room(rows, piece, ranks)
        self.width_on[rows, target] = width
        return np.where(found, target, NOWHERE)

    def _fits(self, rows: Ints, piece: Ints) -> Bools:
        pieces, free = self.devices.problem.pieces, by_target(self.free[rows], self.size)
        fits = free[:, :, -1] >= pieces.tail.device[piece][:, None]
        if self.size > 1:
            fits &= (free[:, :, :-1] >= pieces.head.device[piece][:, None, None]).all(axis=2)
        held = np.minimum(self.size, self.devices.local) * pieces.head.host[piece]  # upper bound, for the last host too
        if held.any():
            room = by_target(np.repeat(self.host_free[rows], self.devices.local, axis=1), self.size).min(axis=2)
            fits &= room >= held[:, None]
        return fits

    def _take_room(self, rows: Ints, piece: Ints, ranks: Ints) -> None:
        pieces = self.devices.problem.pieces
        self.free[rows[:, None], ranks] -= pieces.head.device[piece][:, None]
        self.free[rows, ranks[:, -1]] += (pieces.head.device - pieces.tail.device)[piece]
        held = pieces.head.host[piece]
        if held.any():
            np.subtract.at(self.host_free, (rows[:, None], ranks // self.devices.local), held[:, None])

    def scores(self) -> Floats:
        """The score of each trial (r,); infinite if a piece found no room."""
        return np.where(self.failed, np.inf, self.powers.sum(axis=1))
