"""NeuroShard's search (Zha et al., MLSys 2023) on any cost model: which columns to halve, and where tables go.

Outside, a beam search over halvings of columns: from each of the K best nodes, halve each of the N pieces that weigh
most and each of the N that cost most; L levels. Inside, a greedy grid search: for each of M caps on the summed width of
a device, pieces go, dearest first, to the device whose compute would cost least, within memory and the cap; the best of
the M plans counts. All nodes of a level and all caps are placed in lock step, one piece of each at a time.

Differences from the authors' code (daochenzha/neuroshard): tables too large for every device are halved first and do
not count as levels; nodes without a plan rank by bytes over capacity; equal shapes are tried once; the cost model may
be any; pieces of one table on one device must be equally wide, or TorchRec would not run them; tables that may be
neither table_wise nor column_wise keep their simplest option and are placed before all others.

Legend: T tables that the search places, P pieces (of every width that halving can make), n pieces of a node, C nodes,
M caps, R rollouts (C * M), r of them at once, D devices, G fusion groups, k work terms.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs import Evaluator, device_sums, phase_seconds
from recsmith.costs.relaxation import Relaxation
from recsmith.errors import NoPlanFound
from recsmith.planners._assignment import Assignment, place_longest_first, repair
from recsmith.planners._base import Budget, OnImprove, Search, Solution
from recsmith.planners._ledger import QUANTUM, Ledger
from recsmith.planners.greedy import place_simplest, simplest_options
from recsmith.problems import Footprint, Problem, memory_used
from recsmith.sharding import KERNELS, SHARDING_TYPES, TYPE_NAMES, WIDTH_STEP

NOWHERE = -1
CHUNK = 40_000  # numbers per array that stay in a core's cache


@dataclass(frozen=True)
class Halves:
    """Every piece that halving can make (P,), dearest first within `order`; `half` is the piece of half the width."""

    table: Ints
    mode: Ints
    width: Ints
    half: Ints
    whole: Ints  # (T,): the piece of each whole table
    terms: Floats  # (P, k)
    seconds: Floats  # of compute, alone on a device
    bytes: Ints
    order: Ints  # place of each piece when all are sorted, dearest first
    shape: Ints  # equal for pieces that differ in name only

    @classmethod
    def of(cls, problem: Problem, evaluator: Evaluator) -> "Halves":
        """All halvings of all tables that may stand on single devices."""
        rows: list[tuple[int, int, int, int]] = []
        whole: list[int] = []
        for t, mode in enumerate(_modes(problem)):
            if mode == NOWHERE:
                continue
            whole.append(len(rows))
            widths = list(_halvings(problem, t, mode))
            last = len(rows) + len(widths) - 1
            rows += [(t, mode, width, min(len(rows) + i + 1, last)) for i, width in enumerate(widths)]
        table, mode, width, half = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        half = np.where(half == np.arange(len(half)), NOWHERE, half)
        terms = evaluator.terms(mode, width)
        seconds = evaluator.compute(terms)
        size = problem.memory(mode, width)[1].device
        sort = np.lexsort((-width, table, -seconds))
        order = np.empty(len(sort), dtype=np.int64)
        order[sort] = np.arange(len(sort))
        looks = np.column_stack([terms, size, width, evaluator.group[mode], problem.least_width[table]])
        shape = np.unique(looks, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
        return cls(table, mode, width, half, np.array(whole, dtype=np.int64), terms, seconds, size, order, shape)

    def sorted(self, pieces: Ints) -> Ints:
        """Pieces in the order in which they are placed."""
        return pieces[np.argsort(self.order[pieces], kind="stable")]


def _modes(problem: Problem) -> list[int]:
    """The mode of each table: column_wise where it may be split, so that whole and split tables share a kernel."""
    wanted = [TYPE_NAMES.index("column_wise"), TYPE_NAMES.index("table_wise")]
    fused = KERNELS.index("fused")
    found: dict[tuple[int, int], int] = {}
    for mode in np.flatnonzero(np.isin(problem.modes.type, wanted) & (problem.modes.kernel == fused)).tolist():
        found[int(problem.modes.table[mode]), int(problem.modes.type[mode])] = mode
    modes: list[int] = []
    for t, table in enumerate(problem.tables):
        splits = table.pooled and problem.space.widths == "any"
        names = wanted if splits else wanted[1:]  # TorchRec's one width, and sequences', leave nothing to halve
        modes.append(next((found[t, kind] for kind in names if (t, kind) in found), NOWHERE))
    return modes


def _halvings(problem: Problem, table: int, mode: int) -> Iterator[int]:
    """Widths of a table's pieces: its own, and halves of it while they stay legal."""
    width = problem.tables[table].embedding_dim
    yield width
    kind = SHARDING_TYPES[int(problem.modes.type[mode])]
    splits = kind.splits_columns and problem.tables[table].pooled
    least = max(int(problem.least_width[table]), WIDTH_STEP)
    while splits and problem.space.widths == "any" and width % (2 * WIDTH_STEP) == 0 and width // 2 >= least:
        width //= 2
        yield width


@dataclass
class _Node:
    """A set of pieces in order of placement, its best plan, and how far over capacity it is without one."""

    pieces: Ints
    total_s: float = np.inf
    target: Ints | None = None
    over: float = np.inf

    @property
    def rank(self) -> tuple[float, float]:
        """Plans by cost, then nodes without one by bytes over capacity."""
        return (0.0, self.total_s) if self.target is not None else (1.0, self.over)


@dataclass(frozen=True)
class NeuroShard:
    """Beam search over column halvings around a greedy grid search; K, N, L and M are the paper's."""

    beam: int = 3
    candidates: int = 10
    depth: int = 10
    caps: int = 11
    name: str = "neuroshard"

    def plan(
        self,
        problem: Problem,
        evaluator: Evaluator,
        *,
        seed: int = 0,
        budget: Budget | None = None,
        start: Footprint | None = None,
        on_improve: OnImprove | None = None,
    ) -> Solution:
        """The best placement of the beam; NoPlanFound where tables find no room. An iteration is a level."""
        search = Search(evaluator, budget, start, on_improve)
        halves = Halves.of(problem, evaluator)
        with search.interruptible():
            first = _first(problem, evaluator, halves)
            levels = () if first is None else self._levels(problem, evaluator, halves, first)
            for node in levels:
                assert first is not None, "there are no levels without it"
                search.try_(None if node.target is None else _footprint(problem, halves, node, first))
                if search.stop:
                    break
            if search.best is None:
                simplest = place_simplest(Ledger(evaluator), Relaxation(evaluator))
                search.try_(simplest.footprint(problem) if simplest else None)
        solution = search.solution()
        if solution is None:
            raise NoPlanFound("planner neuroshard found no room for every table; try --planner auto, or more memory")
        return solution

    def _levels(self, problem: Problem, evaluator: Evaluator, halves: Halves, first: Assignment) -> Iterator[_Node]:
        """The best node of each level of the beam."""
        rollouts = _Rollouts(problem, evaluator, halves, np.linspace(1.0, 1.5, self.caps), first)
        beam = [_Node(halves.sorted(_fitting(problem, halves)))]
        rollouts.place(beam)
        seen = {_key(halves, beam[0].pieces)}
        yield beam[0]
        for _ in range(self.depth):
            children = [child for node in beam for child in self._children(halves, node, seen)]
            if not children:
                return
            rollouts.place(children)
            beam = sorted(children, key=lambda node: node.rank)[: self.beam]
            yield beam[0]

    def _children(self, halves: Halves, node: _Node, seen: set[bytes]) -> Iterator[_Node]:
        """The node with one more piece halved, for each promising piece; no set of shapes twice."""
        open_ = node.pieces[halves.half[node.pieces] != NOWHERE]
        for piece in _promising(halves, open_, self.candidates):
            place = int(np.flatnonzero(node.pieces == piece)[0])
            half = halves.half[piece]
            child = halves.sorted(np.append(np.delete(node.pieces, place), [half, half]))
            key = _key(halves, child)
            if key not in seen:
                seen.add(key)
                yield _Node(child)


def _fitting(problem: Problem, halves: Halves) -> Ints:
    """Whole tables, those too large for every device halved until they fit, or cannot be halved further."""
    room = int(problem.capacity.max())
    pieces: list[int] = []
    for piece in halves.whole.tolist():
        count = 1
        while halves.bytes[piece] > room and halves.half[piece] != NOWHERE:
            piece, count = int(halves.half[piece]), count * 2
        pieces += [piece] * count
    return np.array(pieces, dtype=np.int64)


def _promising(halves: Halves, pieces: Ints, count: int) -> list[int]:
    """The pieces of the `count` heaviest and the `count` dearest shapes, one of each shape."""
    chosen: dict[int, int] = {}
    for value in (halves.bytes.astype(float), halves.seconds):
        ranked = pieces[np.lexsort((halves.order[pieces], -value[pieces]))]
        first = np.sort(np.unique(halves.shape[ranked], return_index=True)[1])[:count]
        for piece in ranked[first].tolist():
            chosen.setdefault(int(halves.shape[piece]), piece)
    return list(chosen.values())


def _key(halves: Halves, pieces: Ints) -> bytes:
    return np.sort(halves.shape[pieces]).tobytes()


def _first(problem: Problem, evaluator: Evaluator, halves: Halves) -> Assignment | None:
    """Tables that may not stand on single devices, in their simplest options, placed; None where one finds no room."""
    relaxation = Relaxation(evaluator)
    choice = simplest_options(relaxation)
    every = Assignment.of(problem, choice)
    others = ~np.isin(every.table, halves.table)
    first = Assignment(choice, every.table[others], every.piece[others], every.target[others])
    if not relaxation.option_fits[choice[np.unique(first.table)]].all():
        return None
    place_longest_first(ledger := Ledger(evaluator), first, ledger.seconds)
    repair(ledger, first)
    return first if first.complete else None


def _footprint(problem: Problem, halves: Halves, node: _Node, first: Assignment) -> Footprint:
    """Where all pieces stand, in order of tables, wide first."""
    assert node.target is not None
    placed = first.footprint(problem)
    mode = np.concatenate([halves.mode[node.pieces], placed.mode])
    width = np.concatenate([halves.width[node.pieces], placed.width])
    target = np.concatenate([node.target, placed.target])
    order = np.lexsort((target, -width, problem.modes.table[mode]))
    return Footprint(mode[order], width[order], target[order])


class _Rollouts:
    """Greedy grid search of many nodes at once: every node with every cap, one piece of each at a time."""

    def __init__(self, problem: Problem, evaluator: Evaluator, halves: Halves, caps: Floats, first: Assignment) -> None:
        self.problem, self.evaluator, self.halves = problem, evaluator, halves
        self.devices = problem.cluster.world_size
        self.caps = caps * float(halves.width[halves.whole].sum()) / self.devices
        placed = first.footprint(problem)
        self.sums = np.moveaxis(device_sums(evaluator, placed), 0, -1)  # (G, k, D)
        self.free = problem.capacity - memory_used(problem, placed)[0]
        self.used = np.bincount(evaluator.group[placed.mode], minlength=evaluator.groups) > 0
        self.quantum = max(float(halves.seconds[halves.whole].sum()) / self.devices, 1e-300) * QUANTUM
        self.group = evaluator.group[halves.mode]

    def place(self, nodes: list[_Node]) -> None:
        """Give every node its best plan over all caps, or say how far over capacity it is."""
        at_once = max(1, CHUNK // (self.devices * len(self.caps)))
        for first in range(0, len(nodes), at_once):
            self._place(nodes[first : first + at_once])

    def _place(self, nodes: list[_Node]) -> None:
        caps = len(self.caps)
        pieces = np.stack([node.pieces for node in nodes])  # (C, n): all nodes of a level have as many pieces
        state = _Devices(self, np.repeat(pieces, caps, axis=0), np.tile(self.caps, len(nodes)))
        clashes = [_clashes(self.halves, row) for row in pieces]
        for step in range(pieces.shape[1]):
            state.place(step, {i: clash[step] for i, clash in enumerate(clashes) if step in clash})
        totals = state.totals().reshape(-1, caps)
        for i, node in enumerate(nodes):
            best = int(np.floor(totals[i] / self.quantum).argmin())  # of equal plans the narrowest cap's
            if np.isfinite(totals[i, best]):
                node.total_s, node.target = float(totals[i, best]), state.target[i * caps + best]
            else:
                node.over = self._over(node)

    def _over(self, node: _Node) -> float:
        """Bytes over capacity when each piece goes where most memory is free."""
        free = self.free.astype(float)
        for size in self.halves.bytes[node.pieces].tolist():
            free[int(free.argmax())] -= size
        return float(-np.minimum(free, 0.0).sum())


def _clashes(halves: Halves, pieces: Ints) -> dict[int, list[int]]:
    """For each piece whose table has pieces of several widths, earlier pieces that it may not share a device with."""
    found: dict[int, list[int]] = {}
    table, width = halves.table[pieces], halves.width[pieces]
    for t in np.flatnonzero(np.bincount(table) > 2).tolist():
        steps = np.flatnonzero(table == t).tolist()
        for step in steps:
            earlier = [other for other in steps if other < step and width[other] != width[step]]
            if earlier:
                found[step] = earlier
    return found


class _Devices:
    """What the devices of every rollout carry, and where the pieces (R, n) of each went."""

    def __init__(self, rollouts: _Rollouts, pieces: Ints, caps: Floats) -> None:
        self.of, count = rollouts, len(pieces)
        self.pieces, self.target = pieces, np.full(pieces.shape, NOWHERE)
        self.sums = np.repeat(rollouts.sums[:, :, None, :], count, axis=2)  # (G, k, R, D)
        self.trial = np.empty_like(self.sums[0])
        self.group_load = rollouts.evaluator.compute(np.moveaxis(self.sums, 1, -1))  # (G, R, D)
        self.load = self.group_load.sum(axis=0)
        self.free = np.tile(rollouts.free, (count, 1))
        self.room = np.tile(caps[:, None], (1, rollouts.devices))
        self.used = np.repeat(rollouts.used[:, None], count, axis=1)

    def place(self, step: int, clashes: dict[int, list[int]]) -> None:
        """Put the next piece of every rollout where it belongs; NOWHERE where no device has room.

        clashes: for some nodes, earlier steps whose devices are forbidden.
        """
        pieces = self.pieces[:, step]
        size, width = self.of.halves.bytes[pieces], self.of.halves.width[pieces]
        fits = (self.free >= size[:, None]) & (self.room >= width[:, None])
        caps = len(self.of.caps)
        for node, earlier in clashes.items():
            taken = self.target[node * caps : (node + 1) * caps, earlier]  # (M, steps)
            row, which = np.nonzero(taken != NOWHERE)
            fits[node * caps + row, taken[row, which]] = False
        groups = self.of.group[pieces]
        for group in (groups[:1] if (groups == groups[0]).all() else np.unique(groups)).tolist():
            alike = groups == group
            rows = slice(None) if alike.all() else np.flatnonzero(alike)
            self.target[rows, step] = self._place(group, rows, pieces[rows], fits[rows])

    def _place(self, group: int, rows: Ints | slice, pieces: Ints, fits: Bools) -> Ints:
        halves, evaluator = self.of.halves, self.of.evaluator
        terms = halves.terms[pieces].T
        trial = self.trial[:, : len(pieces)]  # (k, r, D)
        np.add(self.sums[group][:, rows], terms[:, :, None], out=trial)
        after = evaluator.compute(trial.transpose(1, 2, 0))
        load = self.load[rows] - self.group_load[group][rows]
        load += after
        score = np.floor(load * (1 / self.of.quantum))
        score[~fits] = np.inf
        target, own = score.argmin(axis=1), np.arange(len(pieces))
        each = own if isinstance(rows, slice) else rows
        self.sums[group][:, each, target] += terms
        self.group_load[group][each, target] = after[own, target]
        self.load[each, target] = load[own, target]
        self.free[each, target] -= halves.bytes[pieces]
        self.room[each, target] -= halves.width[pieces]
        self.used[group, each] = True
        return np.where(fits[own, target], target, NOWHERE)

    def totals(self) -> Floats:
        """Seconds of the step of each rollout (R,); infinite where a piece found no room."""
        evaluator = self.of.evaluator
        parts = sum(evaluator.head(np.moveaxis(sums, 0, -1)) for sums in self.sums)  # (R, D, 4)
        total = phase_seconds(evaluator, np.asarray(parts)).max(axis=-1).sum(axis=0)
        total += self.used.T @ evaluator.shared.sum(axis=1)
        return np.where((self.target == NOWHERE).any(axis=1), np.inf, total)
