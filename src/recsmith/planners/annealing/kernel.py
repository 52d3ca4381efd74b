"""What the compiled annealing reads and writes: a problem as flat arrays, and plans that it changes in place.

If TorchRec takes columns of any width, pieces may have any width, not only the widths of the problem's options. So a
piece is called a unit here: a mode with a number of width steps.

Legend: T tables, M modes, U units, O options, W ranks, H hosts, G fusion groups, F phases, J linear pieces of all
phases, k work terms, S slots for the pieces of a table, N pieces placed.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from recsmith._compiled import call_compiled, compiled
from recsmith._types import Bools, Floats, Ints
from recsmith.costs import Evaluator
from recsmith.costs.group_loads import GroupLoads
from recsmith.elementary import log1p
from recsmith.planners.annealing.starts import TriedOptions
from recsmith.planners.search.device_state import Assignment
from recsmith.problems import NO_PIECE, Footprint, Problem, ordered_footprint
from recsmith.sharding import SHARDING_TYPES, TYPE_NAMES, WIDTH_STEP, Span

CODE = "planners.annealing._kernel"
MOST_UNITS = 1_000_000  # above this, tables keep to the widths of their options: the arrays would take too much memory
KEPT = 5  # index, in a mode's record of _kernel.c, of the mark that its table keeps its placement
PAIRS = 2  # most widths that the pieces of an option have
MOST_SLOTS = 64  # most pieces of a table; a start with more is not annealed
AT_ONCE, RECORD = 2, 8  # as in _kernel.c: numbers that loops take at a time; numbers of a record, one cache line
LUCKS = 65_536  # quantiles of how much worse a change may make a plan, relative to the temperature
KINDS = (0.1, 0.2, 0.5, 0.15, 0.05)
"""How often a piece moves, two trade places, columns pass between ranks, columns go to a rank of their own or are cut
otherwise where they are, and a table takes another option. Columns pass most often, half of the time all of a rank's:
tables come together again that way, and narrow pieces cost more."""
SLOWEST = 0.5  # share of changes that begin at a piece of a phase's slowest rank; the others begin at any piece
SHARPNESS = 24, 5  # first power of the norm that stands for the slowest rank; number of stages, each of twice the power
NOTHING_HELD: tuple[Ints | Floats, ...] = (*(10 * [np.zeros(0, dtype=np.int64)]), np.zeros(0))
_FIXED = TYPE_NAMES.index("table_column_wise")  # its pieces move together: they stay on one host


def is_compiled() -> bool:
    """Whether the package was built with a C compiler, so that the compiled annealing is available."""
    return compiled(CODE) is not None


@dataclass
class FlatPlan:
    """A plan as the compiled code changes it: option and mode (T,), count (T,) of pieces, unit and target (T, S).

    option is -1 if a table's split matches none of its options.
    """

    option: Ints
    mode: Ints
    count: Ints
    unit: Ints
    target: Ints

    def copy(self) -> "FlatPlan":
        """A copy of the plan in its own arrays."""
        return FlatPlan(*(each.copy() for each in self.arrays))

    @property
    def arrays(self) -> tuple[Ints, ...]:
        """The arrays in the order of the compiled code."""
        return self.option, self.mode, self.count, self.unit, self.target


class FlatProblem:
    """A problem and its cost as arrays that do not depend on which options are tried.

    width, seconds (U,): of each unit, its columns and its seconds in all phases. piece_unit (P + 1,): the unit of each
    of the problem's pieces. Modes whose units are the same to the last bit share them: public models repeat tables
    hundreds of times, and shared units are few enough for the cache.
    """

    def __init__(
        self, evaluator: Evaluator, group_loads: GroupLoads, *, any_widths: bool | Bools = True,
        kinds: Sequence[float] = KINDS, slowest: float = SLOWEST,
    ) -> None:  # fmt: skip
        """any_widths: whether pieces may have widths that no option has, if TorchRec may; or for which modes (M,).

        kinds, slowest: as KINDS and SLOWEST.
        """
        problem = self.problem = evaluator.problem
        modes, cluster = problem.modes, problem.cluster
        self.slots = MOST_SLOTS
        mode, width, steps = self._set_units(problem, any_widths)
        terms = evaluator.terms(mode, width)
        head, tail = problem.memory(mode, width)
        least = np.minimum(problem.least_width, problem.demand.dim)[modes.table]
        alone = evaluator.loads(terms).T - group_loads.opening
        memory = np.stack([head.device, tail.device, head.host, tail.host], axis=1)
        padded = _filled_up(group_loads.columns(terms), AT_ONCE)
        units = _filled_up(np.hstack([padded, alone, _ints(memory).view(np.float64)]), AT_ONCE)
        kept, place = _shared_units(units, steps)
        units, self.width, self.seconds = units[kept], width[kept], alone.sum(axis=1)[kept]
        self.piece_unit, self._listed = place[self.piece_unit], (mode, width, place)
        self.first_unit = np.where(self.first_unit < 0, -1, place[self.first_unit])
        fixed = _fixed_modes(problem) | problem.legality.pinned[modes.table]
        sizes = (len(problem.tables), len(modes.table), len(units), len(problem.options.mode), cluster.world_size,
                 cluster.hosts, evaluator.groups, len(group_loads.opening), padded.shape[1], self.slots,
                 units.shape[1])  # fmt: skip
        self.before_options = (
            _ints(sizes),
            _records(evaluator.group, modes.coverage, fixed, self.first_unit, np.maximum(1, -(-least // WIDTH_STEP))),
            units,
        )
        luck = -log1p(-(np.arange(LUCKS) + 0.5) / LUCKS)
        self.kinds, self.slowest = tuple(kinds), slowest
        self.after_options = (
            *group_loads.arrays, _floats(evaluator.shared.sum(axis=1)),
            _ints(problem.capacity), _ints(problem.host_capacity), _floats(luck),
            _ints([] if problem.legality.open is None else problem.legality.open.ravel()),
        )  # fmt: skip

    def _set_units(self, problem: Problem, any_widths: bool | Bools) -> tuple[Ints, Ints, Ints]:
        """Set a unit for each width of the modes whose widths are free, and one for each piece of all other modes.

        Returns the mode and width of each unit, those of free modes first, and the number of free widths of each mode
        (M,).
        """
        modes, pieces = problem.modes, problem.pieces
        steps = np.where(_free_modes(problem) & any_widths, problem.demand.dim[modes.table] // WIDTH_STEP, 0)
        steps = steps if steps.sum() <= MOST_UNITS else np.zeros_like(steps)
        start = np.cumsum(steps) - steps
        self.first_unit = np.where(steps > 0, start, -1)
        free, total = steps[pieces.mode] > 0, int(steps.sum())
        listed = np.flatnonzero(~free)
        self.piece_unit = np.zeros(len(pieces.mode) + 1, dtype=np.int64)
        self.piece_unit[:-1] = np.where(free, start[pieces.mode] + pieces.width // WIDTH_STEP - 1, 0)
        self.piece_unit[listed] = total + np.arange(len(listed))
        mode = np.repeat(np.arange(len(steps)), steps)
        width = WIDTH_STEP * (1 + np.arange(total) - np.repeat(start, steps))
        return np.concatenate([mode, pieces.mode[listed]]), np.concatenate([width, pieces.width[listed]]), steps

    def plan(self, draft: Assignment) -> FlatPlan | None:
        """A draft in the form of the compiled code; None if a table has too many pieces."""
        tables = len(draft.option)
        count = np.bincount(draft.table, minlength=tables)
        if count.max(initial=0) > self.slots:
            return None
        slot = np.arange(len(draft.table)) - np.searchsorted(draft.table, np.arange(tables))[draft.table]
        unit, target = np.zeros((2, tables, self.slots), dtype=np.int64)
        unit[draft.table, slot], target[draft.table, slot] = self.piece_unit[draft.piece], draft.target
        mode = self.problem.options.mode[draft.option]
        return FlatPlan(_ints(draft.option).copy(), _ints(mode), _ints(count), unit, target)

    def plan_of(self, footprint: Footprint) -> FlatPlan | None:
        """Placed pieces in the form of the compiled code; None if a table has too many, or a width without a unit."""
        problem, tables = self.problem, len(self.problem.tables)
        placed = ordered_footprint(problem, footprint.mode, footprint.width, footprint.target)
        table = problem.modes.table[placed.mode]
        first, count = np.searchsorted(table, np.arange(tables)), np.bincount(table, minlength=tables)
        units = [
            self.unit_of(mode, width) for mode, width in zip(placed.mode.tolist(), placed.width.tolist(), strict=True)
        ]
        if count.max(initial=0) > self.slots or None in units:
            return None
        slot = np.arange(len(table)) - first[table]
        unit, target = np.zeros((2, tables, self.slots), dtype=np.int64)
        unit[table, slot], target[table, slot] = _ints(units), placed.target
        option = Assignment.options_of(problem, placed)
        return FlatPlan(_ints(option), _ints(placed.mode[first]), _ints(count), unit, target)

    def unit_of(self, mode: int, width: int) -> int | None:
        """The unit of a piece of a mode; None for a width that the rules allow none of its options."""
        return self._unit_of.get((mode, width))

    @cached_property
    def _unit_of(self) -> dict[tuple[int, int], int]:
        mode, width, place = (each.tolist() for each in self._listed)
        return dict(zip(zip(mode, width, strict=True), place, strict=True))

    def footprint(self, plan: FlatPlan) -> Footprint:
        """The placed pieces of a plan."""
        placed = np.arange(self.slots) < plan.count[:, None]
        mode, width = np.repeat(plan.mode, plan.count), self.width[plan.unit[placed]]
        return ordered_footprint(self.problem, mode, width, plan.target[placed])


@dataclass(frozen=True)
class FlatOriginals:
    """What devices held before, and how much of it may move (warm_start.py).

    returns: share of changes that return a table to where it was.
    """

    arrays: tuple[Ints | Floats, ...]
    returns: float


class Cooling:
    """One plan that cools down; call `go_on` until all steps are done.

    best, best_s: the best plan met so far, and its seconds.
    """

    def __init__(
        self,
        flat: FlatProblem,
        options: "FlatOptions",
        start: FlatPlan,
        seed: int,
        originals: FlatOriginals | None = None,
    ) -> None:
        self.plan, self.best = start.copy(), start.copy()
        self._seconds = np.array([np.inf])
        state = np.random.SeedSequence(seed).generate_state(2, np.uint64) | np.uint64(1)
        moved = NOTHING_HELD if originals is None else originals.arrays
        self._arrays = (*flat.before_options, *options.arrays, *flat.after_options,
                        _shares(flat.kinds, 0 if originals is None else originals.returns, flat.slowest), *moved,
                        *self.plan.arrays, *self.best.arrays, state, self._seconds)  # fmt: skip

    @property
    def best_s(self) -> float:
        """Seconds of the best plan met; infinite before the first step."""
        return float(self._seconds[0])

    def go_on(
        self, first: int, last: int, steps: int, heat: tuple[float, float], sharpness: tuple[int, int] = SHARPNESS
    ) -> None:
        """Make steps `first` to `last` of `steps` in the whole cooling; heat: temperatures at its start and its end."""
        call_compiled(compiled(CODE).anneal, self._arrays, first, last, steps, *heat, *sharpness)


class FlatOptions:
    """The options that tables are given at random, as arrays. usable: whether every table has one."""

    def keeping(self, mode: int) -> "FlatOptions":
        """The same options, but the table that is placed in this mode keeps it, and the widths of its pieces."""
        sizes, modes, units = self.flat.before_options
        modes = modes.copy()
        modes[mode, KEPT] = 1
        other = copy(self)
        other.flat = copy(self.flat)
        other.flat.before_options = sizes, modes, units
        return other

    def __init__(self, flat: FlatProblem, options: TriedOptions) -> None:
        self.flat, problem = flat, flat.problem
        self.usable = bool(options.count.all())
        tried = options.tried[np.arange(options.tried.shape[1]) < options.count[:, None]]
        piece = problem.options.piece[:, :PAIRS]  # only pinned tables have more, and they keep their pieces
        unit = flat.piece_unit[np.where(piece == NO_PIECE, -1, piece)]
        self.arrays = (
            _records(problem.options.mode, unit, problem.options.count[:, :PAIRS], options.near),
            _ints(np.concatenate([[0], np.cumsum(options.count)])), _ints(tried),
        )  # fmt: skip


def _shared_units(units: Floats, steps: Ints) -> tuple[Ints, Ints]:
    """(units kept (V,), the index among them of each unit (U,)); modes with equal runs of units share them.

    steps (M,): number of free units of each mode, which come first; all other units are kept.
    """
    first, known, kept = 0, dict[bytes, int](), list[Ints]()
    place, size = np.empty(len(units), dtype=np.int64), 0
    for number in steps[steps > 0].tolist():
        mine = slice(first, first + number)
        begin = known.setdefault(units[mine].tobytes(), size)
        if begin == size:
            kept.append(np.arange(first, first + number, dtype=np.int64))
            size += number
        place[mine] = np.arange(begin, begin + number)
        first += number
    place[first:] = np.arange(size, size + len(units) - first)
    return np.concatenate([*kept, np.arange(first, len(units))]), place


def _fixed_modes(problem: Problem) -> Bools:
    """Modes (M,) whose pieces move together, because they stay on one of several hosts."""
    return (problem.modes.type == _FIXED) & (problem.cluster.hosts > 1)


def _free_modes(problem: Problem) -> Bools:
    """Modes (M,) whose pieces may have any width."""
    modes, free = problem.modes, np.zeros(len(problem.modes.table), dtype=bool)
    own = ~problem.legality.limited[modes.table]
    if problem.space.widths != "any":
        return free
    for number, kind in enumerate(SHARDING_TYPES):
        if kind.splits_columns:
            mine = (modes.type == number) & (modes.span != Span.WORLD) & own & ~_fixed_modes(problem)
            for mode in np.flatnonzero(mine).tolist():
                free[mode] = not kind.equal_widths(problem.tables[int(modes.table[mode])], problem.cluster)
    return free


def _shares(kinds: Sequence[float], returns: float, slowest: float) -> Floats:
    """Cumulated shares of the kinds of changes, the last of which is returns; then `slowest`."""
    changes = np.cumsum(kinds)
    changes[-1] = 1.0
    return _floats([*((1 - returns) * changes), 1.0, slowest])


def _filled_up(values: Floats, to: int) -> Floats:
    """Numbers (N, n) with zeros added to each row, up to a multiple of `to`."""
    return _floats(np.pad(values, ((0, 0), (0, -values.shape[1] % to))))


def _records(*columns: Ints | Bools) -> Ints:
    """Integers (N, RECORD): each row holds a row of every column, (N,) or (N, n), and then zeros."""
    made = np.zeros((len(columns[0]), RECORD), dtype=np.int64)
    beside = np.column_stack(columns)
    made[:, : beside.shape[1]] = beside
    return made


def _ints(values: object) -> Ints:
    return np.ascontiguousarray(cast(Any, values), dtype=np.int64)


def _floats(values: object) -> Floats:
    return np.ascontiguousarray(cast(Any, values), dtype=np.float64)
