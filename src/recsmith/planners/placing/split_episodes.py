"""Episodes in which splitting is an action, many side by side.

At the turn of a shape (shapes.py) its table is split further, or its pieces are placed. A policy (split_policy.py) or
the caller's own function decides whether it is split. A piece is placed on the device, in the kernel, where the phases
of the step grow least by the cost model, relative to the expected load of each (as in planners/search/device_state.py).

Legend: S shapes, D devices, E episodes, R episodes of a turn, F phases, G fusion groups (g: those open to a piece),
k work terms, V decisions.
"""

from typing import NamedTuple

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs import Evaluator, device_sums, phase_seconds
from recsmith.elementary import exp, log2, matmul
from recsmith.planners.placing.shapes import NO_SHAPE, ShapeBatch, SplitEpisodes
from recsmith.planners.placing.split_policy import FIGURES, Decide
from recsmith.planners.search.device_state import BALANCE, NOWHERE, QUANTUM
from recsmith.planners.search.smooth_max import LEAST_LOAD, power
from recsmith.problems import Footprint

ROOM = 1.08  # times the bytes of unplaced tables that devices must have free before a table is split further
HEAVY = 0.5  # share of a device's memory from which on a piece has its turn by the memory that it needs
FIRST_PACE = 0.7  # seconds of pieces together over the sum of each alone, assumed before any is placed
LEAST, MOST = 2.0**-12, 2.0**12  # logarithms of figures are taken within these limits
STIR = 0.1  # standard deviation of the logarithm of a device's score in perturbed episodes


class Decisions(NamedTuple):
    """Free decisions (V,): in which episode, for which shape, whether it was split further, and what the policy saw."""

    episode: Ints
    shape: Ints
    split: Bools
    figures: Floats


class PricedShapes:
    """The shapes of a problem, in the order of their turns, priced by a cost model.

    terms (S, k): of a piece. group (S, 2): fusion groups of the kernels that are open to it. phase (F, S): seconds of a
    piece alone. before: placed pieces. figures (S, FIGURES): what the policy sees of them.
    """

    def __init__(self, shapes: ShapeBatch, evaluator: Evaluator, *, whole: bool = False) -> None:
        self.evaluator, pieces, options = evaluator, shapes.problem.pieces, shapes.problem.options
        piece = options.piece[shapes.option, 0]
        alone = evaluator.loads(evaluator.terms(pieces.mode[piece], pieces.width[piece])).sum(axis=0)
        weight, all_shapes = _weight(shapes, alone), shapes
        shapes = all_shapes.ordered(alone, weight, whole=whole)
        if not whole and ROOM * float((shapes.bytes * shapes.count)[shapes.first].sum()) > float(shapes.free.sum()):
            shapes = all_shapes.ordered(alone, weight, coarse=True)
        self.shapes = shapes
        piece = options.piece[np.stack([shapes.option, shapes.plain]), 0]
        self.terms: Floats = evaluator.terms(pieces.mode[piece[0]], pieces.width[piece[0]])
        self.group: Ints = evaluator.group[pieces.mode[piece]].T
        self.phase: Floats = evaluator.loads(self.terms)
        self.alone: Floats = self.phase.sum(axis=0)
        self.splits: Bools = shapes.finer != NO_SHAPE
        self.free_choice = bool(self.splits.any())
        draft = shapes.draft.assignment.footprint(shapes.problem)
        placed = draft.target != NOWHERE
        self.before = Footprint(draft.mode[placed], draft.width[placed], draft.target[placed])
        first = shapes.first
        total = (self.phase[:, first] * shapes.count[first]).sum(axis=1)
        self.total = max(float(total.sum()), LEAST_LOAD)
        mean = total / shapes.devices
        self.expected: Floats = np.maximum(mean, max(float(mean.max(initial=0.0)) * QUANTUM, LEAST_LOAD))
        self.figures = self._figures()

    def _figures(self) -> Floats:
        """The figures of shapes (S, FIGURES) that are the same in all episodes; the others are 0."""
        shapes, devices = self.shapes, self.shapes.devices
        share, count = self.alone * devices / self.total, shapes.count
        cost = np.maximum(count * self.alone, LEAST_LOAD)
        seen = np.zeros((len(count), FIGURES))
        seen[:, 0] = _log(share)
        seen[:, 1] = _log(share * count)
        seen[:, 2] = np.where(self.splits, 4 * _log((count * self.alone)[shapes.finer] / cost), 0.0)
        seen[:, 7] = self.phase[-1] / np.maximum(self.alone, LEAST_LOAD)
        seen[:, 8] = log2(devices) / 4
        seen[:, 9] = _log(len(shapes.table) / devices)
        seen[:, 10] = _log(count / devices)
        seen[:, 11] = _log(count.astype(float))
        seen[:, 13] = _log(shapes.bytes / max(float(shapes.free.mean()), 1.0))
        return seen

    def play(self, count: int, decide: Decide, stir: np.random.Generator | None = None) -> "EndedEpisodes":
        """Play `count` episodes with `decide`. stir: draws that perturb placements in all episodes but the first."""
        return _Playing(self, count, decide, stir).run()


def _weight(shapes: ShapeBatch, alone: Floats) -> Floats:
    """The share of a device's load that a piece of each shape takes (S,), or of its memory if that share is large."""
    least = np.full(len(shapes.table), np.inf)
    np.minimum.at(least, shapes.place, alone * shapes.count)
    load = alone * shapes.devices / max(float(least.sum()), LEAST_LOAD)
    memory = shapes.bytes / max(float(shapes.free.mean()), 1.0)
    share = np.where(memory >= HEAVY, np.maximum(load, memory), load)
    return np.floor(share / QUANTUM)


class EndedEpisodes(NamedTuple):
    """Episodes that have ended: their seconds of the step (E,), infinite for dead ends, and their decisions."""

    episodes: SplitEpisodes
    step_s: Floats
    decisions: Decisions

    @property
    def best(self) -> int:
        """The episode with the shortest step."""
        return int(self.step_s.argmin())

    def made_in(self, episode: int) -> Decisions:
        """The decisions of one episode."""
        mine = np.flatnonzero(self.decisions.episode == episode)
        made = self.decisions
        return Decisions(made.episode[mine], made.shape[mine], made.split[mine], made.figures[mine])


class _Playing:
    """Episodes in progress. sums (E, G, D, k), group_load (E, G, F, D), load (E, F, D): of devices. left (E,): seconds.

    split, seen (E, S), (E, S, FIGURES): free decisions, 1 for splitting further and 0 for not, -1 if there was none;
    and what the policy saw.
    """

    def __init__(
        self, priced: PricedShapes, count: int, decide: Decide, stir: np.random.Generator | None = None
    ) -> None:
        self.priced, self.episodes, self.decide = priced, SplitEpisodes(priced.shapes, count), decide
        self.stir = stir
        evaluator = priced.evaluator
        before = np.moveaxis(device_sums(evaluator, priced.before), 1, 0)
        self.sums = np.repeat(before[None], count, axis=0)
        self.group_load = np.repeat(np.moveaxis(evaluator.loads(before), 0, 1)[None], count, axis=0)
        self.load = self.group_load.sum(axis=1)
        self.used = np.repeat((np.bincount(evaluator.group[priced.before.mode], minlength=evaluator.groups) > 0)[None],
                              count, axis=0)  # fmt: skip
        self.left = np.full(count, priced.total)
        self.need = np.full(count, int((priced.shapes.bytes * priced.shapes.count)[priced.shapes.first].sum()))
        self.split = np.full((count, len(priced.alone)), -1, dtype=np.int8)
        self.seen = np.zeros((count, len(priced.alone), FIGURES))

    def run(self) -> EndedEpisodes:
        """Play all turns."""
        shapes, episodes = self.priced.shapes, self.episodes
        for s in range(len(shapes.count)):
            rows = episodes.turn(s)
            if not len(rows):
                continue
            best = self._best(s, rows)
            if shapes.finer[s] != NO_SHAPE:
                rows, best = self._split(s, rows, best)
            for piece in range(int(shapes.count[s]) if len(rows) else 0):
                self._put(s, piece, rows, self._best(s, rows) if piece else best)
        return self._ended()

    def _best(self, s: int, rows: Ints) -> "_Best":
        """The best place for a piece of shape s in some episodes, and the seconds of groups and devices with it."""
        priced, devices = self.priced, self.priced.shapes.devices
        group = priced.group[s] if priced.group[s, 0] != priced.group[s, 1] else priced.group[s, :1]
        room, each = self.episodes.room(s, rows), rows[:, None]
        after = np.moveaxis(priced.evaluator.loads(self.sums[each, group] + priced.terms[s]), 0, 2)  # (R, g, F, D)
        load = self.load[each] - self.group_load[each, group] + after
        score = self._growth(self.load[each], load)
        if self.stir is not None:
            score = score * self._stirred(rows, len(group))
        score = np.where(room[:, None], np.floor(score / QUANTUM), np.inf)  # (R, g, D)
        g, device = np.divmod(score.reshape(len(rows), -1).argmin(axis=1), devices)
        each = np.arange(len(rows))
        return _Best(group[g], device, after[each, g, :, device], load[each, g, :, device], room)

    def _stirred(self, rows: Ints, groups: int) -> Floats:
        """Random factors for the scores of devices (R, g, D); 1 in the first episode."""
        assert self.stir is not None, "episodes are stirred"
        drawn = self.stir.standard_normal((groups, len(rows), self.priced.shapes.devices)).swapaxes(0, 1)
        return exp(STIR * np.where(rows[:, None, None] == 0, 0.0, drawn))

    def _growth(self, before: Floats, after: Floats) -> Floats:
        """How much the powers of phases grow (R, g, D), relative to the expected load of each."""
        expected = self.priced.expected[:, None]
        growth = power(after / expected, BALANCE) - power(before / expected, BALANCE)
        return (expected * growth).sum(axis=-2) / self.priced.expected.sum()

    def _split(self, s: int, rows: Ints, best: "_Best") -> tuple[Ints, "_Best"]:
        """Move the table of shape s on to its next shape in some episodes; returns the episodes in which it stays."""
        must = np.logical_not(best.room.any(axis=1))
        may = self._may(s, rows)
        figures = self._figures(s, rows, best)
        self.seen[rows, s] = figures
        split = self.decide(rows, s, figures) & may
        self.split[rows[may & ~must], s] = split[may & ~must]
        split |= must
        shapes, alone, finer = self.priced.shapes, self.priced.alone, int(self.priced.shapes.finer[s])
        self.episodes.split(s, rows[split])
        self.left[rows[split]] += shapes.count[finer] * alone[finer] - shapes.count[s] * alone[s]
        self.need[rows[split]] += self._more(s)
        return rows[~split], best.at(np.flatnonzero(~split))

    def _more(self, s: int) -> int:
        """Bytes that the next shape of a table takes more than shape s: every piece has its own ids and outputs."""
        shapes, finer = self.priced.shapes, int(self.priced.shapes.finer[s])
        return int(shapes.count[finer] * shapes.bytes[finer] - shapes.count[s] * shapes.bytes[s])

    def _may(self, s: int, rows: Ints) -> Bools:
        """Whether an episode's devices have room enough for splitting the table of shape s further (R,)."""
        return self.episodes.free[rows].sum(axis=1) >= ROOM * (self.need[rows] + self._more(s))

    def _put(self, s: int, piece: int, rows: Ints, best: "_Best") -> None:
        """Place a piece of shape s on its best device."""
        shapes, there = self.priced.shapes, self.episodes.put(s, piece, rows, best.device)
        r, d, g = rows[there], best.device[there], best.group[there]
        self.episodes.plain[r, shapes.place[s]] = (g == self.priced.group[s, 1]) & (g != self.priced.group[s, 0])
        self.sums[r, g, d] += self.priced.terms[s]
        self.group_load[r, g, :, d], self.load[r, :, d] = best.after[there], best.load[there]
        self.used[r, g] = True
        self.left[rows] -= self.priced.alone[s]
        self.need[rows] -= shapes.bytes[s]

    def _figures(self, s: int, rows: Ints, best: "_Best") -> Floats:
        """The figures (R, FIGURES) that the policy sees at the turn of shape s."""
        priced = self.priced
        load, left = self.load[rows].sum(axis=1), self.left[rows]
        held, placed = load.sum(axis=1), np.maximum(priced.total - left, LEAST_LOAD)
        pace = np.where(held > 0, np.clip(held / placed, 0.2, 1.5), FIRST_PACE)
        even = np.maximum((held + pace * left) / priced.shapes.devices, LEAST_LOAD)
        seen = np.repeat(priced.figures[s : s + 1], len(rows), axis=0)
        seen[:, 3] = np.clip(left / priced.total, 0.0, 2.0)
        seen[:, 4] = 2 * _log(best.load.sum(axis=1) / even)
        seen[:, 5] = 2 * _log(load.max(axis=1) / even)
        seen[:, 6] = 2 * _log(load.min(axis=1) / even)
        seen[:, 12] = best.room.mean(axis=1)
        seen[:, 14] = pace
        seen[:, 15] = _log(self.episodes.free[rows].sum(axis=1) / np.maximum(self.need[rows], 1))
        return seen

    def _ended(self) -> EndedEpisodes:
        """The ended episodes, after the turns of all tables."""
        shared = phase_seconds(self.priced.evaluator, self.priced.evaluator.shared).sum(axis=0)  # (G,)
        step = self.load.max(axis=2).sum(axis=1) + matmul(self.used, shared)
        episode, shape = np.nonzero(self.split >= 0)
        decisions = Decisions(episode, shape, self.split[episode, shape] == 1, self.seen[episode, shape])
        return EndedEpisodes(self.episodes, np.where(self.episodes.dead, np.inf, step), decisions)


class _Best(NamedTuple):
    """The best place for a piece in episodes (R,): group, device; seconds (R, F) of that group and device with it.

    room (R, D): the devices that have room for it.
    """

    group: Ints
    device: Ints
    after: Floats
    load: Floats
    room: Bools

    def at(self, some: Ints) -> "_Best":
        """The places for some of the episodes."""
        return _Best(self.group[some], self.device[some], self.after[some], self.load[some], self.room[some])


def _log(value: Floats | float) -> Floats:
    return log2(np.minimum(np.maximum(value, LEAST), MOST)) / 4
