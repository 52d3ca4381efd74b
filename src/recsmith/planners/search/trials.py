"""Many plans at once: what every device carries in each of them, and the best way to lay a table in each.

Taking a table out and trying all its options costs the same few array operations for one plan or for fifty, so local
search asks for all its trials together. What is lowered is a smooth stand-in of the step (_aim.py).

Legend: S plans, N trials (an option of a table in a plan), W ranks, H hosts, F phases, G fusion groups, k work terms,
n pieces of a trial, r trials at once.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs import device_sums
from recsmith.planners.search.assignment import NOWHERE, Assignment
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.smooth_max import SmoothMax
from recsmith.problems import NO_PIECE, memory_used

STEP_EFFORT = 25_000  # numbers that could be worked on while Python sets up one step
CHUNK = 200_000  # numbers (trials times ranks) that are worked on at once
MOST_PIECES = 64  # of a table that is laid anew


@dataclass
class PlanCopies:
    """Plans side by side; arrays over S plans. `spots` are the targets of each table's pieces, wide first."""

    ledger: DeviceState
    option: Ints  # (S, T); NO_PIECE for a table that is out
    spots: list[list[Ints]]
    sums: Floats  # (S, G, W, k)
    group_loads: Floats  # (S, G, F, W)
    loads: Floats  # (S, F, W)
    common: Floats  # (S, F): what every rank spends on top, whatever it holds
    in_group: Ints  # (S, G): pieces
    free: Ints  # (S, W)
    host_free: Ints  # (S, H)

    @classmethod
    def of(cls, ledger: DeviceState, draft: Assignment) -> "PlanCopies":
        """One plan."""
        evaluator, footprint = ledger.evaluator, draft.footprint(ledger.problem)
        sums = np.moveaxis(device_sums(evaluator, footprint), 1, 0)  # (G, W, k)
        group_loads = np.moveaxis(evaluator.loads(sums), 0, 1)  # (G, F, W)
        in_group = np.bincount(evaluator.group[footprint.mode], minlength=evaluator.groups)
        device, host = memory_used(ledger.problem, footprint)
        first = np.searchsorted(draft.table, np.arange(1, len(draft.option)))
        return cls(
            ledger, draft.option[None].copy(), [np.split(draft.target, first)], sums[None].copy(),
            group_loads[None].copy(), group_loads.sum(axis=0)[None],
            (ledger.shared * (in_group > 0)[:, None]).sum(axis=0)[None], in_group[None],
            (ledger.problem.capacity - device)[None], (ledger.problem.host_capacity - host)[None],
        )  # fmt: skip

    def take(self, plans: Ints) -> "PlanCopies":
        """Copies of some plans, as often as they are named."""
        return PlanCopies(
            self.ledger, self.option[plans], [list(self.spots[int(plan)]) for plan in plans], self.sums[plans],
            self.group_loads[plans], self.loads[plans], self.common[plans], self.in_group[plans], self.free[plans],
            self.host_free[plans],
        )  # fmt: skip

    def assignment(self, plan: int) -> Assignment:
        """A plan's pieces, in order of tables."""
        problem = self.ledger.problem
        made = Assignment.of(problem, self.option[plan])
        made.target[:] = np.concatenate(self.spots[plan])
        return made

    def totals(self) -> Floats:
        """Seconds of the step of each plan (S,)."""
        return (self.loads.max(axis=2) + self.common).sum(axis=1)

    def full_loads(self) -> Floats:
        """Loads with what all ranks share (S, F, W)."""
        return self.loads + self.common[:, :, None]

    # --- tables in and out ----------------------------------------------------------------------------------------

    def remove(self, plan: int, table: int) -> None:
        """Take a table out of a plan."""
        ledger, option = self.ledger, int(self.option[plan, table])
        pieces = pieces_of(ledger, option)
        group = int(ledger.group[pieces[0]])
        self._add(plan, group, pieces, self.spots[plan][table], -1)
        if self.in_group[plan, group] == 0:
            self.sums[plan, group] = 0.0  # what rounding has left
            self.common[plan] -= ledger.shared[group]
        self._refresh(plan, group)
        self.option[plan, table], self.spots[plan][table] = NO_PIECE, np.zeros(0, dtype=np.int64)

    def insert(self, plan: int, table: int, trial: "Trial") -> None:
        """Put a table into a plan as a trial has laid it."""
        ledger = self.ledger
        pieces = pieces_of(ledger, trial.option)
        group = int(ledger.group[pieces[0]])
        if self.in_group[plan, group] == 0:
            self.common[plan] += ledger.shared[group]
        self._add(plan, group, pieces, trial.target, 1)
        self._refresh(plan, group)
        self.option[plan, table], self.spots[plan][table] = trial.option, trial.target

    def _add(self, plan: int, group: int, pieces: Ints, targets: Ints, sign: int) -> None:
        ledger, size = self.ledger, int(self.ledger.coverage[pieces[0]])
        ranks = (targets[:, None] * size + np.arange(size)).ravel()
        head, tail = ledger.problem.pieces.head, ledger.problem.pieces.tail
        last = (targets + 1) * size - 1
        np.add.at(self.sums[plan, group], ranks, sign * np.repeat(ledger.terms[pieces], size, axis=0))
        np.add.at(self.free[plan], ranks, -sign * np.repeat(head.device[pieces], size))
        np.add.at(self.free[plan], last, sign * (head.device - tail.device)[pieces])
        np.add.at(self.host_free[plan], ranks // ledger.local, -sign * np.repeat(head.host[pieces], size))
        np.add.at(self.host_free[plan], last // ledger.local, sign * (head.host - tail.host)[pieces])
        self.in_group[plan, group] += sign * len(pieces)

    def _refresh(self, plan: int, group: int) -> None:
        after = self.ledger.evaluator.loads(self.sums[plan, group])
        self.loads[plan] += after - self.group_loads[plan, group]
        self.group_loads[plan, group] = after

    # --- trials ---------------------------------------------------------------------------------------------------

    def best(self, slot: Ints, plan: Ints, option: Ints, aim: SmoothMax) -> dict[int, "Trial"]:
        """The best trial of each slot: option[i] laid into plan[i], its pieces one by one where the score grows least.

        Slots without a legal trial are left out. Ties go to the first trial.
        """
        found: dict[int, Trial] = {}
        size = self.ledger.coverage[self.ledger.problem.options.piece[option, 0]]
        at_once = max(1, CHUNK // self.loads.shape[2])
        for span in np.unique(size).tolist():
            alike = np.flatnonzero(size == span)
            for first in range(0, len(alike), at_once):
                some = alike[first : first + at_once]
                score, target = self._lay(plan[some], option[some], span, aim)
                for i in np.lexsort((some, score)).tolist():
                    if not np.isfinite(score[i]):
                        break
                    kept = found.get(int(slot[some[i]]))
                    if kept is None or score[i] < kept.score:
                        spots = target[i][target[i] != NOWHERE]
                        found[int(slot[some[i]])] = Trial(float(score[i]), int(option[some[i]]), spots)
        return found

    def _lay(self, plan: Ints, option: Ints, size: int, aim: SmoothMax) -> tuple[Floats, Ints]:
        """(score (r,), infinite where a piece finds no room; targets (r, n)) of trials whose pieces span alike."""
        ledger, problem = self.ledger, self.ledger.problem
        piece, count = problem.options.piece[option], problem.options.count[option]
        pieces = count.sum(axis=1)
        group = ledger.group[piece[:, 0]]
        state = _TrialsInProgress(self, plan, group, size, aim)
        target = np.full((len(plan), int(pieces.max())), NOWHERE)
        tied, on_one_host = ledger.tied[option], ledger.on_one_host[option]
        width = problem.pieces.width
        for step in range(target.shape[1]):
            rows = np.flatnonzero(pieces > step)
            second = count[rows, 0] <= step
            now: Ints = piece[rows, second.astype(np.int64)]
            allowed = None
            if step and tied[rows].any():
                allowed = state.allowed(rows, width[now], tied[rows], on_one_host[rows])
            target[rows, step] = state.place(rows, now, allowed, width[now])
            ledger.effort += STEP_EFFORT + len(rows) * self.loads.shape[2]
        return state.scores(), target


class Trial(NamedTuple):
    """A table laid into a plan: the score that the plan then has, the option, and a target per piece."""

    score: float
    option: int
    target: Ints


class _TrialsInProgress:
    """Trials in progress (r): copies of what they change."""

    def __init__(self, crowd: PlanCopies, plan: Ints, group: Ints, size: int, aim: SmoothMax) -> None:
        self.crowd, self.ledger, self.aim, self.size = crowd, crowd.ledger, aim, size
        opened = crowd.ledger.shared[group] * (crowd.in_group[plan, group] == 0)[:, None]
        own = crowd.group_loads[plan, group]
        self.sums = crowd.sums[plan, group]  # (r, W, k)
        self.others = crowd.loads[plan] - own + (crowd.common[plan] + opened)[:, :, None]  # (r, F, W)
        self.loads = self.others + own
        self.powers = aim.powers(self.loads)  # (r, W)
        self.free, self.host_free = crowd.free[plan], crowd.host_free[plan]
        self.failed = np.zeros(len(plan), dtype=bool)
        self.width_on = np.zeros((len(plan), self.loads.shape[2] // size), dtype=np.int64)

    def allowed(self, rows: Ints, width: Ints, tied: Bools, on_one_host: Bools) -> Bools:
        """Targets (r, W / size) that neither hold another width of the table nor leave the host it must stay on."""
        held = self.width_on[rows]
        fine = (held == 0) | (held == width[:, None])
        local = self.ledger.local
        hosts = (held.reshape(len(rows), -1, local) > 0).any(axis=2) if self.size == 1 else held > 0
        there = np.repeat(hosts, local, axis=1) if self.size == 1 else hosts
        return (fine & (there | ~on_one_host[:, None])) | ~tied[:, None]

    def place(self, rows: Ints, piece: Ints, allowed: Bools | None, width: Ints) -> Ints:
        """Put a piece of each of these trials where the score grows least; NOWHERE (and failed) without room."""
        ledger, size = self.ledger, self.size
        sums = self.sums[rows] + ledger.terms[piece][:, None, :]
        loads = self.others[rows] + np.moveaxis(ledger.evaluator.loads(sums), 0, 1)
        powers = self.aim.powers(loads)
        growth = (powers - self.powers[rows]).reshape(len(rows), -1, size).sum(axis=2)
        fits = self._fits(rows, piece)
        growth[~(fits if allowed is None else fits & allowed)] = np.inf
        target, each = growth.argmin(axis=1), np.arange(len(rows))
        found = np.isfinite(growth[each, target])
        self.failed[rows[~found]] = True
        ranks = target[:, None] * size + np.arange(size)  # (r, size)
        self.sums[rows[:, None], ranks] = sums[each[:, None], ranks]
        self.powers[rows[:, None], ranks] = powers[each[:, None], ranks]
        self._take_room(rows, piece, target, ranks)
        self.width_on[rows, target] = width
        return np.where(found, target, NOWHERE)

    def _fits(self, rows: Ints, piece: Ints) -> Bools:
        pieces, free = self.ledger.problem.pieces, self.free[rows].reshape(len(rows), -1, self.size)
        fits = free[:, :, -1] >= pieces.tail.device[piece][:, None]
        if self.size > 1:
            fits &= (free[:, :, :-1] >= pieces.head.device[piece][:, None, None]).all(axis=2)
        held = np.minimum(self.size, self.ledger.local) * pieces.head.host[piece]  # at most; the last holds no more
        if held.any():
            room = np.repeat(self.host_free[rows], self.ledger.local, axis=1).reshape(free.shape).min(axis=2)
            fits &= room >= held[:, None]
        return fits

    def _take_room(self, rows: Ints, piece: Ints, target: Ints, ranks: Ints) -> None:
        pieces = self.ledger.problem.pieces
        self.free[rows[:, None], ranks] -= pieces.head.device[piece][:, None]
        self.free[rows, ranks[:, -1]] += (pieces.head.device - pieces.tail.device)[piece]
        held = pieces.head.host[piece]
        if held.any():
            np.subtract.at(self.host_free, (rows[:, None], ranks // self.ledger.local), held[:, None])

    def scores(self) -> Floats:
        """The score of each trial (r,); infinite where a piece found no room."""
        return np.where(self.failed, np.inf, self.powers.sum(axis=1))


def pieces_of(ledger: DeviceState, option: int) -> Ints:
    """The pieces of an option (n,), wide first."""
    options = ledger.problem.options
    return np.repeat(options.piece[option], options.count[option])
