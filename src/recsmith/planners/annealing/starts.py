"""Where annealing begins: sets of fusion groups, first plans in each, and the options that tables are given at random.

Every group in use costs launches and latencies, so a plan that uses other groups is many changes away, and annealing
hardly ever reaches it. So annealing begins in several sets of groups side by side.

Legend: G fusion groups, T tables, O options, N the most options tried of a table.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.bounds import LowerBound, SelectionLimits
from recsmith.bounds.first import always
from recsmith.bounds.groups import GroupCosts, groups_dominated_by_type
from recsmith.bounds.linear_bounds import least_opening
from recsmith.bounds.relaxation import Choice, Relaxation
from recsmith.bounds.tightening import heaviest_table
from recsmith.planners.search.candidates import priced_candidate
from recsmith.planners.search.device_state import Assignment, DeviceState
from recsmith.problems import NO_PIECE
from recsmith.sharding import WIDTH_STEP

FEW_GROUPS = 4  # number of groups up to which every set of them is tried
LIMITS = (0.95, 0.7, 0.5, 1.3)  # times the bound: limits on the largest piece's seconds, under which tables select
SELECTED_LIMITS = (0.95, 0.7, 0.5, 0.3, 0.2)  # the same, if tables keep to their groups
TIE_PENALTY = 1e-3  # share of its seconds that is added to an option that spans the world, to break ties
MOST_SETS = 16
MOST_SPREADS = 4  # spreads of the heaviest table's columns in which annealing also begins
MANY_STARTS = 8  # starts up to which sets have a second plan; trade-off: more make fewer long plans, and take longer
PLACED = 400_000  # most tables times devices, summed over the first plans made; each takes time in proportion
MOST_PIECES = 16  # pieces of a table
SPARE_PIECES = 4  # a table is tried in at most this many more pieces than there are ranks
OPTIONS_OF_A_KIND = 12  # cheapest options tried of each fusion group and number of pieces of a table
DEAREST = 3.0  # times the seconds of a table's cheapest option: costlier options are not tried, except the lightest


@dataclass(frozen=True)
class Start:
    """A first plan: its seconds, the groups (G,) that annealing keeps to, and the plan.

    barred (O,): options that annealing does not try, or None. spread: whether the plan begins with one spread of the
    heaviest table's columns, and keeps that spread.
    """

    seconds: float
    groups: Bools
    draft: Assignment
    barred: Bools | None = None
    spread: bool = False


def starts_of(
    devices: DeviceState,
    relaxation: Relaxation,
    known: LowerBound,
    drafts: Sequence[tuple[float, Assignment]],
    keep_on: Callable[[], bool] = always,
) -> list[Start]:
    """First plans, best first: the best draft of each set of groups that drafts use, and placements made here.

    If there are few, each set also gets a second plan, of other options, because annealing may not get away from the
    best first plan. If two groups may cost less than one group with both their tables, each set is also tried with all
    groups that others could replace. First plans then say little about what annealing makes of them, so every second
    start is of the set whose tables cost least, each at its cheapest.

    keep_on: asked before each placement whether there is time for it.
    """
    kept: dict[bytes, list[Start]] = {}
    dominated, bends = groups_dominated_by_type(devices.evaluator), devices.linear_pieces is None
    found = [Start(seconds, _used(relaxation, draft), draft) for seconds, draft in drafts]
    left, placed = PLACED // (len(devices.problem.tables) * len(devices.free)), _Placed(devices)
    for groups in _sets(known, ~dominated, dominated & bends):
        for limit in LIMITS if left > 0 else ():
            if not keep_on():
                break
            limits = SelectionLimits(limit=limit * (known.bound.value_s or np.inf), groups=groups,
                                     world_penalty=TIE_PENALTY)  # fmt: skip
            choice = relaxation.choose(limits)
            if (choice.option == NO_PIECE).any():
                break
            (seconds, draft), left = placed.of(relaxation, choice), left - 1
            if draft is not None:
                found.append(Start(seconds, groups, draft))
    for start in sorted(found, key=lambda each: each.seconds):
        alike = kept.setdefault(start.groups.tobytes(), [])
        if not any((other.draft.option == start.draft.option).all() for other in alike):
            alike.append(start)
    best = [alike[0] for alike in kept.values()]
    second = sorted((alike[1] for alike in kept.values() if len(alike) > 1), key=lambda each: each.seconds)
    if bends:
        best = _in_turns(best, sorted(best, key=lambda each: _least_seconds(relaxation, each.groups)))
    best = best[:MOST_SETS]
    chosen = [*best, *second[: max(0, MANY_STARTS - len(best))]]
    spread = list(_spread_starts(devices, relaxation, known, ~dominated, keep_on))
    return [*spread, *(chosen if bends else sorted(chosen, key=lambda each: each.seconds))]


def _spread_starts(
    devices: DeviceState, relaxation: Relaxation, known: LowerBound, useful: Bools, keep_on: Callable[[], bool]
) -> Iterator[Start]:
    """A first plan for each spread of the heaviest table's columns that the bound could rule out last."""
    heavy = heaviest_table(devices.evaluator, keep_on)
    options, placed = devices.problem.options, _Placed(devices)
    for mode, held in heavy.promising(MOST_SPREADS) if heavy is not None else ():
        mine = options.table == devices.problem.modes.table[mode]
        widths = devices.problem.pieces.width[options.piece]
        same = [
            each for each in np.flatnonzero(mine & (options.mode == mode)).tolist()
            if sorted(np.repeat(widths[each], options.count[each]).tolist()) == sorted(WIDTH_STEP * one for one in held)
        ]  # fmt: skip
        if not same or not keep_on():
            continue
        barred = mine.copy()
        barred[same[0]] = False
        opened = relaxation.reopened(barred | options.barred)
        best: Start | None = None
        for limit in LIMITS:
            limits = SelectionLimits(
                limit=limit * (known.bound.value_s or np.inf), groups=useful, world_penalty=TIE_PENALTY
            )
            choice = opened.choose(limits)
            if (choice.option == NO_PIECE).any():
                continue
            seconds, draft = placed.of(opened, choice)
            if draft is not None and (best is None or seconds < best.seconds):
                best = Start(seconds, useful, draft, barred, spread=True)
        if best is not None:
            yield best


def selected_starts(
    devices: DeviceState, relaxation: Relaxation, known: LowerBound, total_s: float,
    keep_on: Callable[[], bool] = always,
) -> list[Start]:  # fmt: skip
    """First plans, best first, whose tables keep to the groups that they select in the branches of lowest bound.

    total_s: seconds of the best plan known, from which the limit on the largest piece follows.
    """
    options, found, placed = devices.problem.options, list[Start](), _Placed(devices)
    for selection in known.selections:
        barred = options.barred | (relaxation.option_group != selection[options.table])
        opened, best = relaxation.reopened(barred), None
        groups = np.isin(np.arange(devices.evaluator.groups), selection)
        for limit in SELECTED_LIMITS:
            choice = opened.choose(SelectionLimits(limit=limit * total_s))
            if (choice.option == NO_PIECE).any() or not keep_on():
                break
            seconds, draft = placed.of(opened, choice)
            if draft is not None and (best is None or seconds < best.seconds):
                best = Start(seconds, groups, draft, barred)
        if best is not None:
            found.append(best)
    return sorted(found, key=lambda start: start.seconds)


class _Placed:
    """Candidates, each placed once: many limits select the same options."""

    def __init__(self, devices: DeviceState) -> None:
        self.devices = devices
        self._known: dict[bytes, tuple[float, Assignment | None]] = {}

    def of(self, relaxation: Relaxation, choice: Choice) -> tuple[float, Assignment | None]:
        """The placement of the selected options, and the seconds of its step."""
        key = choice.option.tobytes()
        if key not in self._known:
            self._known[key] = priced_candidate(self.devices, relaxation, choice)
        return self._known[key]


def _in_turns(first: Sequence[Start], second: Sequence[Start]) -> list[Start]:
    """Merge two orders of the same starts by taking from each in turn, each start once."""
    return list({id(each): each for pair in zip(first, second, strict=True) for each in pair}.values())


def _least_seconds(relaxation: Relaxation, groups: Bools) -> float:
    """Seconds that no plan of these groups (G,) can undercut: each table at its cheapest, evenly spread over ranks."""
    evaluator, choice = relaxation.evaluator, relaxation.choose(SelectionLimits(groups=groups))
    if (choice.option == NO_PIECE).any():
        return np.inf
    used: Bools = np.isin(np.arange(len(groups)), relaxation.option_group[choice.option])
    opening = GroupCosts(evaluator, least_opening(evaluator)).certain(used)
    return float(choice.seconds.sum()) / evaluator.problem.cluster.world_size + opening


def _used(relaxation: Relaxation, draft: Assignment) -> Bools:
    """The groups (G,) that a draft uses."""
    used = np.zeros(relaxation.evaluator.groups, dtype=bool)
    used[relaxation.option_group[draft.option]] = True
    return used


def _sets(known: LowerBound, useful: Bools, more: Bools) -> Iterator[Bools]:
    """Sets of the groups (G,) that a best plan may need: all sets, or those that the bound found promising.

    more (G,): groups that are added to each set to make a second one.
    """
    seen: set[bytes] = set()
    for groups in _listed(known, useful):
        for some in (groups, groups | more):
            if groups.any() and some.tobytes() not in seen:
                seen.add(some.tobytes())
                yield some


def _listed(known: LowerBound, useful: Bools) -> Iterator[Bools]:
    members = np.flatnonzero(useful).tolist()
    if len(members) <= FEW_GROUPS:
        for number in range(len(members), 0, -1):
            yield from (np.isin(np.arange(len(useful)), some) for some in combinations(members, number))
        return
    yield useful
    yield from (limits.groups & useful for limits in known.promising if limits.groups is not None)
    for number in (1, 2):
        for some in combinations(members, number):
            yield useful & ~np.isin(np.arange(len(useful)), some)


# --- options that are tried -------------------------------------------------------------------------------------------


class TriedOptions:
    """The options that tables are given at random.

    tried (T, N): the options of each table, repeated to fill the row; count (T,): how many there are. pieces (O,):
    number of pieces. near (O, 2): the next narrower and the next wider option of the same mode in as many pieces; the
    option itself at the ends. together (O,): whether pieces only move together; apart (O,): whether pieces of different
    widths may not share a rank.
    """

    def __init__(self, devices: DeviceState, relaxation: Relaxation) -> None:
        self.devices, problem = devices, devices.problem
        options = problem.options
        self.pieces: Ints = options.count.sum(axis=1)
        self.few: Bools = self.pieces <= min(MOST_PIECES, len(problem.capacity) + SPARE_PIECES)
        self.together = devices.on_one_host
        self.apart: Bools = devices.tied
        room = self.pieces * problem.modes.coverage[options.mode] <= len(problem.capacity)
        tried = relaxation.option_fits & self.few & ~self.together & (room | ~self.apart)
        tried |= relaxation.option_fits & devices.legality.pinned[options.table]
        worth = _worth_trying(relaxation, tried, self.pieces)
        self.count: Ints = np.bincount(options.table[worth], minlength=len(problem.tables))
        slot = np.arange(max(1, self.count.max())) % np.maximum(self.count, 1)[:, None]
        first = np.cumsum(self.count) - self.count
        self.tried: Ints = np.append(worth, 0)[np.where(self.count[:, None] > 0, first[:, None] + slot, len(worth))]
        self.near = _neighbours(relaxation, worth, self.pieces)


def _worth_trying(relaxation: Relaxation, tried: Bools, pieces: Ints) -> Ints:
    """Among options (O,), the cheapest of each table, group and number of pieces, and the lightest of each table."""
    table, seconds = relaxation.problem.options.table, relaxation.option_seconds
    own = np.flatnonzero(tried)
    if not own.size:
        return own
    chosen = np.zeros(len(table), dtype=bool)
    order = own[np.lexsort((seconds[own], pieces[own], relaxation.option_group[own], table[own]))]
    kind = np.stack([table, relaxation.option_group, pieces])[:, order]
    first = np.flatnonzero(np.append(True, (kind[:, 1:] != kind[:, :-1]).any(axis=0)))
    place = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    some = order[place < OPTIONS_OF_A_KIND]
    least = np.full(len(relaxation.problem.tables), np.inf)
    np.minimum.at(least, table[own], seconds[own])
    chosen[some[seconds[some] <= DEAREST * least[table[some]]]] = True
    light = own[np.lexsort((relaxation.option_bytes[own], table[own]))]
    chosen[light[np.append(True, table[light[1:]] != table[light[:-1]])]] = True
    return np.flatnonzero(chosen)


def _neighbours(relaxation: Relaxation, tried: Ints, pieces: Ints) -> Ints:
    """Tried options (O, 2) of the same mode and number of pieces whose first piece is the next narrower or wider."""
    problem = relaxation.problem
    near = np.repeat(np.arange(len(pieces))[:, None], 2, axis=1)
    width = problem.pieces.width[problem.options.piece[tried, 0]]
    kind = np.stack([problem.options.mode[tried], pieces[tried]])
    order = np.lexsort((width, *kind))
    same = (kind[:, order[1:]] == kind[:, order[:-1]]).all(axis=0)
    lower, upper = tried[order[:-1]][same], tried[order[1:]][same]
    near[upper, 0], near[lower, 1] = lower, upper
    return near
