"""The environment in which splitting is an action: a table is split further, or placed, when its turn comes.

A **shape** is a split of a table into a number of equal column pieces, each on a single device. A table begins in the
shape of the fewest pieces whose total cost is close to its cheapest shape's (very wide tables are cheaper split), or in
the shape of the fewest pieces of all if memory is short. Each next shape has more pieces. Shapes have their turn in
falling weight of a piece: its share of a device's load, or of its memory if that is large, so that pieces that need
much room are not placed last. At its turn a table moves on to its next shape, whose turn comes later, or its pieces are
placed.

**Two kernels.** Whole tables may share a kernel with split ones, column_wise, or run in one of their own, table_wise.
If both are legal, the choice is part of the action. On a CPU all run column_wise, because a second kernel was measured
to take longer than learned cost models predict (docs/benchmarks/learned.md).

**Episodes** are many placements of the same tables side by side. A step is the turn of one shape: the episodes in which
the table has this shape take part, the others wait. A device is masked if it has no room for a piece. If none has room,
the table must be split further; if it cannot be, the episode has come to a dead end, and its piece stays NOWHERE.

Legend: T tables, N tables that are placed, S shapes, D devices, E episodes, R episodes of a turn.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs import Evaluator
from recsmith.planners.placing.items import KINDS, Draft, Singles
from recsmith.planners.search.device_state import NOWHERE, Assignment
from recsmith.problems import NO_PIECE, Problem

AS_CHEAP = 1.25  # times the seconds of a table's cheapest shape: it begins in the coarsest shape within this limit
FINER = 1.25  # times the pieces of a shape: the next shape has at least as many
MOST_SHAPES = 5  # most shapes of a table
NO_SHAPE = -1


@dataclass(frozen=True, kw_only=True)
class ShapeBatch:
    """Shapes (S,). bytes (S,): of one piece, on its device; open (S, D): devices that constraints allow it, or None.

    place, count (S,): its table's index among those that are placed, and its number of pieces. option, plain (S,): the
    option with these pieces in the kernel of split tables, and that in the kernel of whole tables, if it is another.
    finer (S,): the next shape of the table, or NO_SHAPE. first (N,): the shape in which each table begins. draft: all
    tables; those that are placed before have their targets. table (N,): its index in the problem.
    """

    problem: Problem
    draft: Draft
    bytes: Ints
    open: Bools | None
    table: Ints
    place: Ints
    count: Ints
    option: Ints
    plain: Ints
    finer: Ints
    first: Ints

    @property
    def free(self) -> Ints:
        """Free bytes of devices (D,)."""
        return self.draft.free

    @property
    def devices(self) -> int:
        """The number of devices, D."""
        return len(self.draft.free)

    def ordered(self, seconds: Floats, weight: Floats, *, whole: bool = False, coarse: bool = False) -> "ShapeBatch":
        """The shapes that tables go through, in the order of their turns.

        seconds, weight (S,): of a piece of each shape. coarse: tables begin in the shape of the fewest pieces. whole:
        they begin there, and keep it.
        """
        total = seconds * self.count
        kept, finer = list[int](), list[int]()
        bounds = np.searchsorted(self.place, np.arange(len(self.table) + 1)).tolist()
        for begin, end in pairwise(bounds):
            good = total[begin:end] <= AS_CHEAP * total[begin:end].min()
            chain = [begin if whole or coarse else begin + int(good.argmax())]
            while not whole and len(chain) < MOST_SHAPES:
                more = begin + int(np.searchsorted(self.count[begin:end], FINER * self.count[chain[-1]]))
                if more == end:
                    break
                chain.append(more)
            finer += [*range(len(kept) + 1, len(kept) + len(chain)), NO_SHAPE]
            kept += chain
        return self._sorted(np.array(kept, dtype=np.int64), np.array(finer, dtype=np.int64), weight)

    def _sorted(self, kept: Ints, finer: Ints, weight: Floats) -> "ShapeBatch":
        """The kept shapes in falling weight, finer shapes of a table after coarser ones."""
        weight = weight[kept]
        for s in np.flatnonzero(finer != NO_SHAPE).tolist():  # each chain is contiguous, coarse shapes first
            weight[finer[s]] = min(weight[finer[s]], weight[s])
        order = np.lexsort((np.arange(len(kept)), -weight))
        turn = np.empty(len(order), dtype=np.int64)
        turn[order] = np.arange(len(order))
        begins = np.append(NO_SHAPE, finer)[: len(finer)] == NO_SHAPE
        chosen, finer = kept[order], finer[order]
        names = ("place", "count", "option", "plain", "bytes")
        return replace(
            self, finer=np.where(finer == NO_SHAPE, NO_SHAPE, turn[finer]), first=turn[begins],
            open=None if self.open is None else self.open[chosen],
            **{name: getattr(self, name)[chosen] for name in names},
        )  # fmt: skip

    def assignment(self, shape: Ints, plain: Bools, target: Ints) -> Assignment:
        """The plan in which tables have these shapes (N,) and kernels (N,), and pieces these targets (N, most)."""
        choice = self.draft.assignment.option.copy()
        choice[self.table] = np.where(plain, self.plain[shape], self.option[shape])
        made = Assignment.of(self.problem, choice)
        own = np.zeros(len(choice), dtype=bool)
        own[self.table] = True
        before = self.draft.assignment
        made.target[~own[made.table]] = before.target[~own[before.table]]
        made.target[own[made.table]] = target[np.arange(target.shape[1]) < self.count[shape][:, None]]
        return made


def shapes_of(problem: Problem, evaluator: Evaluator) -> ShapeBatch | None:
    """All shapes of a problem, table by table, coarse ones first; None if a table placed before finds no room.

    evaluator: of the cost model that decides where other tables are placed before.
    """
    singles, options = Singles.of(problem), problem.options
    own = np.flatnonzero(singles.option)
    kind = problem.modes.type[problem.pieces.mode[options.piece[own, 0]]]
    order = np.lexsort((kind != KINDS[0], options.count[own, 0], options.table[own]))  # column_wise before table_wise
    own = own[order]
    key = np.stack([options.table[own], options.count[own, 0]])
    starts = np.append(True, (key[:, 1:] != key[:, :-1]).any(axis=0)) if len(own) else np.zeros(0, dtype=bool)
    ends = np.append(starts[1:], True)[: len(own)]
    option = own[starts]
    plain = option if problem.cluster.device.kind == "cpu" else own[ends]
    tables = np.flatnonzero(singles.table)
    first = np.searchsorted(options.table[option], tables)
    choice = np.full(len(singles.table), NO_PIECE)
    choice[tables] = option[first]
    draft = singles.draft(evaluator, choice)
    if draft is None:
        return None
    piece, open_ = options.piece[option, 0], problem.legality.open
    return ShapeBatch(
        problem=problem, draft=draft, table=tables, place=np.searchsorted(tables, options.table[option]),
        count=options.count[option, 0], option=option, plain=plain, finer=np.full(len(option), NO_SHAPE), first=first,
        bytes=problem.pieces.tail.device[piece],
        open=None if open_ is None else open_[problem.modes.table[problem.pieces.mode[piece]]],
    )  # fmt: skip


class SplitEpisodes:
    """E placements in progress. shape, plain (E, N): of each table, and whether it is in the kernel of whole tables.

    target (E, N, most): of its pieces, NOWHERE before. free (E, D): free bytes. dead (E,): whether some piece found no
    room.
    """

    def __init__(self, shapes: ShapeBatch, count: int) -> None:
        self.shapes = shapes
        self.shape = np.repeat(shapes.first[None], count, axis=0)
        self.plain = np.zeros(self.shape.shape, dtype=bool)
        self.free = np.repeat(shapes.free[None], count, axis=0)
        self.target = np.full((*self.shape.shape, int(shapes.count.max(initial=1))), NOWHERE)
        self.dead = np.zeros(count, dtype=bool)

    def turn(self, s: int) -> Ints:
        """The episodes that take part in the turn of shape s (R,)."""
        return np.flatnonzero(self.shape[:, self.shapes.place[s]] == s)

    def room(self, s: int, rows: Ints) -> Bools:
        """Which devices have room for a piece of shape s (R, D)."""
        room = self.free[rows] >= self.shapes.bytes[s]
        return room if self.shapes.open is None else room & self.shapes.open[s]

    def split(self, s: int, rows: Ints) -> None:
        """Move the table of shape s on to its next shape in some episodes."""
        assert self.shapes.finer[s] != NO_SHAPE, "it cannot be split further"
        self.shape[rows, self.shapes.place[s]] = self.shapes.finer[s]

    def put(self, s: int, piece: int, rows: Ints, device: Ints) -> Bools:
        """Place a piece of shape s on a device (R,) in some episodes; returns whether the device had room (R,)."""
        fits = self.room(s, rows)[np.arange(len(rows)), device]
        there = rows[fits]
        self.free[there, device[fits]] -= self.shapes.bytes[s]
        self.target[there, self.shapes.place[s], piece] = device[fits]
        self.dead[rows[~fits]] = True
        return fits

    def assignment(self, episode: int) -> Assignment:
        """The plan of an episode."""
        return self.shapes.assignment(self.shape[episode], self.plain[episode], self.target[episode])
