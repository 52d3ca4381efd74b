"""The items that learned planners place: pieces of tables on single devices, and the inputs of networks for each.

**What is split first** (ColumnSplitRule). A table stays whole unless it must be split: into the fewest equal column
pieces that fit a device and of which none costs more than `limit` times the mean load of a device, by the cost model.
Each piece reads all ids again, so the pieces together may cost at most `extra` times the whole table. If that leaves
no pieces light enough, the table is cut into the fewest that are about as light as possible. Once any table is split,
whole tables are column_wise too if they may be, because one kernel then serves both.

**What is placed before.** Tables that may be on no single device keep their option with the fewest pieces and are
placed first, by the shared longest-first placement.

**Episodes** are many placements of the same items side by side: each step places the next item of every episode. A
device is masked if it has no room for the item. If every device is masked, the episode has come to a dead end: the
item stays NOWHERE, the episode is marked, and it continues with the next item, so that a planner may repair it. No step
ever places an item where it does not fit.

Legend: T tables, P pieces, O options, N items, D devices, E episodes, x inputs and b figures of work
(costs/neural/inputs.py).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs import Evaluator
from recsmith.costs.analytic import BACKWARD_COMM, FORWARD_COMM, AnalyticCostModel, AnalyticEvaluator
from recsmith.costs.neural.evaluator import NeuralEvaluator
from recsmith.costs.neural.inputs import DATA_TYPES, FIRST_INPUTS, OPTIMIZERS, PieceWork, inputs_of, work_of
from recsmith.planners.search.device_state import NOWHERE, Assignment, DeviceState
from recsmith.planners.search.placement import fewest_pieces_options, place_longest_first
from recsmith.problems import NO_PIECE, Problem
from recsmith.sharding import FUSED, TYPE_NAMES, Span

AS_LIGHT = 1.1  # times the lightest piece of a table: splits into lighter pieces than this gain next to nothing
HOT = (64, 1024, 16_384, 262_144)  # numbers of hottest rows whose share of a table's reads is an input
INPUT_COUNT = FIRST_INPUTS + len(HOT)
KINDS = (TYPE_NAMES.index("column_wise"), TYPE_NAMES.index("table_wise"))  # sharding types of items
UNKNOWN = -1  # an optimizer or data type that was never measured: its inputs are all 0


class ColumnSplitRule(NamedTuple):
    """Which tables are split first: those whose pieces cost more than `limit` times the mean load of a device.

    extra: the most that a table's pieces may cost together, as a multiple of the whole table's seconds.
    """

    limit: float
    extra: float


TRAINED = tuple(ColumnSplitRule(limit, 1.15) for limit in (0.125, 0.25, 0.5, 1.0))
"""What policies are trained on: a piece above 1 decides the step alone."""
SPLITS = (
    ColumnSplitRule(0.125, 1.6),
    ColumnSplitRule(0.25, 1.15),
    ColumnSplitRule(1.0, 1.6),
    ColumnSplitRule(0.0625, 1.15),
)
"""What planners try; of 15 rules the four that together were best on tasks of training tables, after training."""


WHOLE = (ColumnSplitRule(1e9, 1.0),)
"""Nothing is split that fits a device."""


@dataclass(frozen=True)
class ItemBatch:
    """Items (N,) in the order of placement, and the devices with their free bytes (D,).

    draft: all tables; those that are placed before have their targets. row: the index of each item among the draft's
    pieces. bytes: on its device. work (N, b), inputs (N, x): as learned cost models see pieces, and the share of reads
    of the hottest rows. link_s: seconds of its collectives, forward and backward, by cost model `analytic`. open (N,
    D): devices that constraints allow for each item; None for all.
    """

    draft: Assignment
    row: Ints
    bytes: Ints
    inputs: Floats
    work: Floats
    link_s: Floats
    free: Ints
    open: Bools | None = None

    def __len__(self) -> int:
        """The number of items, N."""
        return len(self.row)

    @property
    def devices(self) -> int:
        """The number of devices, D."""
        return len(self.free)

    def sorted_by(self, seconds: Floats) -> "ItemBatch":
        """The items in falling seconds (N,); equal items keep their order, which is that of the problem's tables."""
        order = np.argsort(-seconds, kind="stable")
        names = ("row", "bytes", "inputs", "work", "link_s", *(("open",) if self.open is not None else ()))
        return replace(self, **{name: getattr(self, name)[order] for name in names})

    def assignment(self, target: Ints) -> Assignment:
        """The plan in which item i is on device target[i] (N,); items at NOWHERE are not placed."""
        made = replace(self.draft, target=self.draft.target.copy())
        made.target[self.row] = target
        return made


def items_of(problem: Problem, evaluator: Evaluator, rule: ColumnSplitRule = SPLITS[0]) -> ItemBatch | None:
    """The items of a problem, in the order of its tables; None if a table that is placed before finds no room.

    evaluator: of the cost model whose seconds decide which tables are split.
    """
    singles = Singles.of(problem)
    found = singles.draft(evaluator, _choice(problem, evaluator, singles, rule))
    if found is None:
        return None
    draft, free = found
    row = np.flatnonzero(draft.target == NOWHERE)
    piece = draft.piece[row]
    analytic = _analytic(problem, evaluator)
    mode, width = problem.pieces.mode[piece], problem.pieces.width[piece]
    seen = _piece_work(problem, analytic, mode, width)
    comm = analytic.terms(mode, width)[:, [FORWARD_COMM, BACKWARD_COMM]].sum(axis=1)
    open_ = problem.legality.open
    return ItemBatch(
        open=None if open_ is None else open_[draft.table[row]],
        draft=draft, row=row, bytes=problem.pieces.tail.device[piece], work=work_of(seen), link_s=comm, free=free,
        inputs=np.column_stack([inputs_of(seen)[:, :FIRST_INPUTS], _reuse(problem, analytic, mode)]),
    )  # fmt: skip


class Draft(NamedTuple):
    """Tables of which some are placed, and the free bytes of devices (D,)."""

    assignment: Assignment
    free: Ints


@dataclass(frozen=True)
class Singles:
    """The options (O,) of equal pieces on single devices, and which tables (T,) have such an option that fits."""

    problem: Problem
    option: Bools
    table: Bools

    @classmethod
    def of(cls, problem: Problem) -> "Singles":
        """The options and tables of a problem."""
        options, pieces = problem.options, problem.pieces
        piece = options.piece[:, 0]
        mode = pieces.mode[piece]
        usable = (problem.modes.span[mode] == Span.RANK) & np.isin(problem.modes.type[mode], KINDS)
        usable &= (problem.modes.kernel[mode] == FUSED.number) & (options.piece[:, 1] == NO_PIECE) & ~options.barred
        usable &= ~problem.legality.pinned[options.table]
        usable &= (pieces.tail.device[piece] <= problem.capacity.max()) & (pieces.tail.host[piece] == 0)
        single = np.zeros(len(problem.tables), dtype=bool)
        single[options.table[usable]] = True
        return cls(problem, usable, single)

    def draft(self, evaluator: Evaluator, choice: Ints) -> Draft | None:
        """The chosen options (T,) of these tables, unplaced, and all other tables placed in as few pieces as fit.

        Other tables are placed longest first. Returns None if one of them finds no room.
        """
        others = ~self.table
        if not others.any():
            return Draft(Assignment.of(self.problem, choice), self.problem.capacity.copy())
        relaxation = shared_relaxation(evaluator)
        choice = np.where(others, fewest_pieces_options(relaxation), choice)
        if not relaxation.option_fits[choice[others]].all():
            return None
        every, state = Assignment.of(self.problem, choice), DeviceState(evaluator)
        mine = others[every.table]
        first = Assignment(choice, every.table[mine], every.piece[mine], every.target[mine])
        place_longest_first(state, first, state.seconds)
        every.target[mine] = first.target
        return Draft(every, state.free.copy()) if first.complete else None


def _choice(problem: Problem, evaluator: Evaluator, singles: Singles, rule: ColumnSplitRule) -> Ints:
    """The option of each table that is placed by single pieces (T,); NO_PIECE for all other tables."""
    options, pieces, single = problem.options, problem.pieces, singles.table
    piece, count = options.piece[:, 0], options.count[:, 0]
    mode = pieces.mode[piece]
    seconds = np.full(len(piece), np.inf)  # of one piece of each option (O,); infinite if its pieces are no items
    terms = evaluator.terms(mode[singles.option], pieces.width[piece[singles.option]])
    seconds[singles.option] = evaluator.loads(terms).sum(axis=0)
    split = _split(options.table, count, seconds, rule, problem.cluster.world_size)
    kind = KINDS[0 if (count[split] > 1)[single].any() else 1]
    alike = np.where((problem.modes.type[mode] == kind) & (count == count[split][options.table]), seconds, np.inf)
    same = _fewest(options.table, count, np.isfinite(alike))
    return np.where(single, np.where(np.isfinite(alike[same]), same, split), NO_PIECE)


def _split(table: Ints, count: Ints, seconds: Floats, rule: ColumnSplitRule, devices: int) -> Ints:
    """The option of each table (T,) by a split rule, from options (O,) with `count` pieces of `seconds` each."""
    needed = _fewest(table, count, np.isfinite(seconds))
    whole_s = np.where(np.isfinite(seconds[needed]), seconds[needed] * count[needed], 0.0)
    if devices == 1:
        return needed
    most = rule.limit * float(whole_s.sum()) / devices
    cheap = np.where(seconds * count <= rule.extra * whole_s[table], seconds, np.inf)
    lightest = np.full(len(needed), np.inf)
    np.minimum.at(lightest, table, cheap)
    light = np.isfinite(cheap) & (cheap <= np.maximum(most, AS_LIGHT * lightest)[table])
    split = _fewest(table, count, light)
    return np.where(np.isfinite(lightest), split, needed)


def _fewest(table: Ints, count: Ints, light: Bools) -> Ints:
    """The option of each table (T,) with the fewest pieces, among its light options (O,) if it has any."""
    order = np.lexsort((np.arange(len(count)), count, ~light, table))
    return order[np.searchsorted(table[order], np.arange(int(table[-1]) + 1))]


def _analytic(problem: Problem, evaluator: Evaluator) -> AnalyticEvaluator:
    """Cost model `analytic` for the problem, compiled once."""
    if isinstance(evaluator, AnalyticEvaluator):
        return evaluator
    return evaluator.analytic if isinstance(evaluator, NeuralEvaluator) else AnalyticCostModel().compile(problem)


def _reuse(problem: Problem, analytic: AnalyticEvaluator, mode: Ints) -> Floats:
    """Share of a table's reads that are of its hottest rows (N, h), for each number in HOT."""
    table = problem.modes.table[mode]
    rows = np.minimum(np.array(HOT, dtype=np.float64)[:, None], analytic.kernels.unique[mode])
    every = np.maximum(analytic.kernels.reuse.hot_share(table, analytic.kernels.unique[mode]), 1e-300)
    return np.stack([np.minimum(analytic.kernels.reuse.hot_share(table, each) / every, 1.0) for each in rows], axis=1)


def _piece_work(problem: Problem, analytic: AnalyticEvaluator, mode: Ints, width: Ints) -> PieceWork:
    """Pieces as learned cost models see them; unmeasured data types count as fp32, and optimizers as unknown."""
    found, table = problem.modes, problem.modes.table[mode]
    names = [problem.workload.optimizer_of(each) for each in problem.tables]
    optimizer = np.array([OPTIMIZERS.index(name) if name in OPTIMIZERS else UNKNOWN for name in names])
    types = np.array([1 if problem.tables[t].data_type == DATA_TYPES[1] else 0 for t in range(len(problem.tables))])
    return PieceWork(
        ids=found.ids[mode], bags=found.bags[mode], unique=analytic.kernels.unique[mode],
        rows=found.head_rows[mode].astype(np.float64), width=width.astype(np.float64),
        optimizer=optimizer[table], data_type=types[table],
    )  # fmt: skip


# --- episodes ---------------------------------------------------------------------------------------------------------


class Episodes:
    """E placements in progress. step: the item that is placed next. target (E, N): devices of items, NOWHERE before.

    free (E, D): free bytes. dead (E,): whether some item found no room.
    """

    def __init__(self, items: ItemBatch, count: int) -> None:
        self.items, self.step = items, 0
        self.free = np.repeat(items.free[None], count, axis=0)
        self.target = np.full((count, len(items)), NOWHERE)
        self.dead = np.zeros(count, dtype=bool)
        self._each = np.arange(count)

    @property
    def done(self) -> bool:
        """Whether every item has had its turn."""
        return self.step == len(self.items)

    def room(self) -> Bools:
        """Which devices have room for the next item (E, D)."""
        room = self.free >= self.items.bytes[self.step]
        return room if self.items.open is None else room & self.items.open[self.step]

    def place(self, device: Ints) -> Bools:
        """Place the next item of each episode on a device (E,); returns whether the device had room (E,)."""
        size = self.items.bytes[self.step]
        fits = self.room()[self._each, device]
        self.free[self._each[fits], device[fits]] -= size
        self.target[fits, self.step] = device[fits]
        self.dead |= ~fits
        self.step += 1
        return fits
