"""The greedy grid search inside planner neuroshard: many nodes, each with every cap, placed in lock step.

A node is a set of pieces: whole tables, and the pieces that repeated halving of their columns makes. For each cap on
the summed width of a device, the pieces are placed in falling cost, each on the device whose compute would then cost
least, within memory and the cap. The best plan over all caps is kept. One node with one cap is a rollout.

Legend: T tables that the search places, P pieces (of every width that halving can make), n pieces of a node, C nodes, M
caps, R rollouts (C * M), r rollouts placed at once, D devices, G fusion groups, k work terms.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs import Evaluator, device_sums, phase_seconds
from recsmith.elementary import matmul
from recsmith.planners.search.device_state import NOWHERE, QUANTUM
from recsmith.problems import NO_PIECE, Footprint, Problem, memory_used
from recsmith.sharding import FUSED, SHARDING_TYPES, TYPE_NAMES, WIDTH_STEP

CHUNK = 40_000  # devices times rollouts placed at once: arrays of this many numbers stay in a core's cache


@dataclass(frozen=True)
class ColumnHalves:
    """Every piece that halving can make (P,), table by table, each followed by its half.

    table, mode, width: what a piece is. half: the piece of half the width, NO_PIECE if that is not legal. whole (T,):
    the piece of each whole table. terms (P, k): work terms. seconds: compute seconds of the piece alone on a device.
    bytes: of device memory. order: the rank of each piece when all are sorted by falling cost. shape: a number that is
    equal for pieces that differ in name only.
    """

    table: Ints
    mode: Ints
    width: Ints
    half: Ints
    whole: Ints
    terms: Floats
    seconds: Floats
    bytes: Ints
    order: Ints
    shape: Ints

    @classmethod
    def of(cls, problem: Problem, evaluator: Evaluator) -> "ColumnHalves":
        """All halvings of all tables that may be placed on single devices."""
        rows: list[tuple[int, int, int, int]] = []
        whole: list[int] = []
        for t, mode in enumerate(_modes(problem)):
            if mode is None:
                continue
            whole.append(len(rows))
            widths = list(_halvings(problem, t, mode))
            last = len(rows) + len(widths) - 1
            rows += [(t, mode, width, min(len(rows) + i + 1, last)) for i, width in enumerate(widths)]
        table, mode, width, half = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        half = np.where(half == np.arange(len(half)), NO_PIECE, half)
        terms = evaluator.terms(mode, width)
        seconds = evaluator.compute(terms)
        _, tail = problem.memory(mode, width)  # of pieces on a single rank, which is their last
        sort = np.lexsort((-width, table, -seconds))
        order = np.empty(len(sort), dtype=np.int64)
        order[sort] = np.arange(len(sort))
        demands = np.column_stack(
            [
                terms,
                tail.device,
                width,
                evaluator.group[mode],
                problem.least_width[table],
                *kinds_of_tables(problem, table),
            ]
        )
        shape = np.unique(demands, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
        return cls(table, mode, width, half, np.array(whole, dtype=np.int64), terms, seconds, tail.device, order, shape)

    def sorted(self, pieces: Ints) -> Ints:
        """Sort pieces in the order of placement: by falling cost, then by table, then by falling width."""
        return pieces[np.argsort(self.order[pieces], kind="stable")]


def kinds_of_tables(problem: Problem, table: Ints) -> list[Ints]:
    """Columns (P,) that distinguish pieces by the constraints on their tables; none without constraints."""
    legality = problem.legality
    marks: list[Ints] = []
    if legality.open is not None:
        kind = np.unique(legality.open, axis=0, return_inverse=True)[1].reshape(-1)
        marks.append(kind[table])
    if legality.groups:
        marks.append(legality.row[table])
    return marks


def _modes(problem: Problem) -> list[int | None]:
    """The mode of each table: column_wise if it may be split, so that whole and split tables share a kernel."""
    wanted = [TYPE_NAMES.index("column_wise"), TYPE_NAMES.index("table_wise")]
    fused = FUSED.number
    found: dict[tuple[int, int], int] = {}
    for mode in np.flatnonzero(np.isin(problem.modes.type, wanted) & (problem.modes.kernel == fused)).tolist():
        found[int(problem.modes.table[mode]), int(problem.modes.type[mode])] = mode
    modes: list[int | None] = []
    for t, table in enumerate(problem.tables):
        if problem.legality.limited[t]:
            modes.append(None)  # placed before the search, in an option that its rules allow
            continue
        splits = table.pooled and problem.space.widths == "any"
        names = wanted if splits else wanted[1:]  # TorchRec's single width, and tables of sequences, cannot be halved
        modes.append(next((found[t, kind] for kind in names if (t, kind) in found), None))
    return modes


def _halvings(problem: Problem, table: int, mode: int) -> Iterator[int]:
    """Widths of a table's pieces: the whole table's, then repeated halves while they are legal."""
    width = problem.tables[table].embedding_dim
    yield width
    kind = SHARDING_TYPES[int(problem.modes.type[mode])]
    splits = kind.splits_columns and problem.tables[table].pooled
    least = max(int(problem.least_width[table]), WIDTH_STEP)
    while splits and problem.space.widths == "any" and width % (2 * WIDTH_STEP) == 0 and width // 2 >= least:
        width //= 2
        yield width


# --- rollouts ---------------------------------------------------------------------------------------------------------


@dataclass
class BeamNode:
    """A set of pieces in the order of placement, with its best plan: the target of each piece, and the plan's seconds.

    over: bytes over capacity, if the node has no plan.
    """

    pieces: Ints
    total_s: float = np.inf
    target: Ints | None = None
    over: float = np.inf

    @property
    def rank(self) -> tuple[float, float]:
        """The sort key of nodes: plans by cost, then nodes without a plan by bytes over capacity."""
        return (0.0, self.total_s) if self.target is not None else (1.0, self.over)


class Rollouts:
    """Places the pieces of many nodes under every cap, next to pieces that are already placed.

    caps (M,): columns that a device may hold, as multiples of the mean. sums (G, k, D), free (D,), used (G,): work
    terms, free bytes and groups in use of the devices that hold the placed pieces. quantum: seconds; loads that differ
    by less are equal.
    """

    def __init__(
        self, problem: Problem, evaluator: Evaluator, halves: ColumnHalves, caps: Floats, placed: Footprint
    ) -> None:
        self.problem, self.evaluator, self.halves = problem, evaluator, halves
        self.devices = problem.cluster.world_size
        self.caps = caps * float(halves.width[halves.whole].sum()) / self.devices
        self.sums = np.moveaxis(device_sums(evaluator, placed), 0, -1)
        self.free = problem.capacity - memory_used(problem, placed)[0]
        self.used = np.bincount(evaluator.group[placed.mode], minlength=evaluator.groups) > 0
        self.quantum = max(float(halves.seconds[halves.whole].sum()) / self.devices, 1e-300) * QUANTUM
        self.group = evaluator.group[halves.mode]

    def place(self, nodes: list[BeamNode]) -> None:
        """Give every node its best plan over all caps, or its bytes over capacity if it has none."""
        at_once = max(1, CHUNK // (self.devices * len(self.caps)))
        for first in range(0, len(nodes), at_once):
            self._place(nodes[first : first + at_once])

    def _place(self, nodes: list[BeamNode]) -> None:
        caps = len(self.caps)
        pieces = np.stack([node.pieces for node in nodes])  # (C, n): all nodes of a level have equally many pieces
        state = RolloutState(self, np.repeat(pieces, caps, axis=0), np.tile(self.caps, len(nodes)))
        clashes = [_clashes(self.halves, row) for row in pieces]
        for step in range(pieces.shape[1]):
            state.place(step, {i: clash[step] for i, clash in enumerate(clashes) if step in clash})
        totals = state.totals().reshape(-1, caps)
        for i, node in enumerate(nodes):
            best = int(np.floor(totals[i] / self.quantum).argmin())  # among equal plans, that of the narrowest cap
            if np.isfinite(totals[i, best]):
                node.total_s, node.target = float(totals[i, best]), state.target[i * caps + best]
            else:
                node.over = self._over(node)

    def _over(self, node: BeamNode) -> float:
        """Bytes over capacity if each piece is placed where most memory is free."""
        free = self.free.astype(float)
        for size in self.halves.bytes[node.pieces].tolist():
            free[int(free.argmax())] -= size
        return float(-np.minimum(free, 0.0).sum())


def _clashes(halves: ColumnHalves, pieces: Ints) -> dict[int, list[int]]:
    """For each piece of a table split into several widths: the earlier pieces that may not share a device with it."""
    found: dict[int, list[int]] = {}
    table, width = halves.table[pieces], halves.width[pieces]
    for t in np.flatnonzero(np.bincount(table) > 2).tolist():
        steps = np.flatnonzero(table == t).tolist()
        for step in steps:
            earlier = [other for other in steps if other < step and width[other] != width[step]]
            if earlier:
                found[step] = earlier
    return found


class RolloutState:
    """The state of the devices of every rollout, and the target (R, n) of each piece placed so far.

    sums (G, k, R, D): work terms. group_load (G, R, D), load (R, D): seconds of compute. free (R, D): free bytes. room
    (R, D): columns left under the cap. used (G, R): whether a rollout has a piece of a group.
    """

    def __init__(self, rollouts: Rollouts, pieces: Ints, caps: Floats) -> None:
        self.rollouts, count = rollouts, len(pieces)
        self.pieces, self.target = pieces, np.full(pieces.shape, NOWHERE)
        self.sums = np.repeat(rollouts.sums[:, :, None, :], count, axis=2)
        self.trial = np.empty_like(self.sums[0])  # (k, R, D); one array that every step uses again
        self.group_load = rollouts.evaluator.compute(np.moveaxis(self.sums, 1, -1))
        self.load = self.group_load.sum(axis=0)
        self.free = np.tile(rollouts.free, (count, 1))
        self.room = np.tile(caps[:, None], (1, rollouts.devices))
        self.used = np.repeat(rollouts.used[:, None], count, axis=1)

    def place(self, step: int, clashes: dict[int, list[int]]) -> None:
        """Put the next piece of every rollout on its best device; NOWHERE if no device has room.

        clashes: for some nodes, earlier steps whose devices are forbidden.
        """
        halves, pieces = self.rollouts.halves, self.pieces[:, step]
        fits = (self.free >= halves.bytes[pieces][:, None]) & (self.room >= halves.width[pieces][:, None])
        caps, open_ = len(self.rollouts.caps), self.rollouts.problem.legality.open
        if open_ is not None:
            fits &= open_[halves.table[pieces]]
        for node, earlier in clashes.items():
            taken = self.target[node * caps : (node + 1) * caps, earlier]  # (M, steps)
            row, which = np.nonzero(taken != NOWHERE)
            fits[node * caps + row, taken[row, which]] = False
        groups = self.rollouts.group[pieces]
        for group in (groups[:1] if (groups == groups[0]).all() else np.unique(groups)).tolist():
            same = groups == group
            rows = slice(None) if same.all() else np.flatnonzero(same)
            self.target[rows, step] = self._place(group, rows, pieces[rows], fits[rows])

    def _place(self, group: int, rows: Ints | slice, pieces: Ints, fits: Bools) -> Ints:
        """Put one piece of a group on the best device of rollouts (r,), within `fits` (r, D); returns targets."""
        halves, evaluator = self.rollouts.halves, self.rollouts.evaluator
        terms = halves.terms[pieces].T
        trial = self.trial[:, : len(pieces)]  # (k, r, D)
        np.add(self.sums[group][:, rows], terms[:, :, None], out=trial)
        after = evaluator.compute(trial.transpose(1, 2, 0))
        load = self.load[rows] - self.group_load[group][rows]
        load += after
        score = np.floor(load * (1 / self.rollouts.quantum))
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
        """Seconds of the step of each rollout (R,); infinite if a piece found no room."""
        evaluator = self.rollouts.evaluator
        parts = sum(evaluator.head(np.moveaxis(sums, 0, -1)) for sums in self.sums)  # (R, D, 4)
        total = phase_seconds(evaluator, np.asarray(parts)).max(axis=-1).sum(axis=0)
        total += matmul(self.used.T, evaluator.shared.sum(axis=1))
        return np.where((self.target == NOWHERE).any(axis=1), np.inf, total)
