"""Many plans side by side, and what a change to each of them costs: array operations for all plans together.

A change touches cells; a cell is a fusion group on a rank. Only the seconds of touched cells are computed again.

Legend: K plans, T tables, O options, P the most pieces of an option, N the most options tried of a table, W ranks, H
hosts, G fusion groups in reach, C cells of a change in one group (the ranks that it touches), F phases, k work terms.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.relaxation import Relaxation
from recsmith.elementary import matmul
from recsmith.planners.annealing.starts import TriedOptions
from recsmith.planners.search.device_state import NOWHERE, Assignment, DeviceState
from recsmith.planners.search.smooth_max import smooth_norm
from recsmith.problems import NO_PIECE, Problem
from recsmith.sharding.coverage import covers, holds_tail

MOST_TABLES = 300  # most tables: a step changes one table of each plan, so of more tables each hardly ever changes
MOST_NUMBERS = 4_000  # most numbers of a plan (ranks times groups times terms): steps of larger plans are slow


PAIRS = 2  # (piece, count) pairs of an option, except for pinned tables


class AnnealingOptions(TriedOptions):
    """The options that plans may hold.

    reached (O,): the options that plans may hold, some of which only starts do. size, group (O,): ranks that each piece
    covers; the option's fusion group, numbered among the groups in reach. wide, narrow (O,): the option's pieces, or a
    number without terms and bytes if there is none; first (O, P): which of its pieces are wide ones.
    """

    def __init__(self, devices: DeviceState, relaxation: Relaxation) -> None:
        super().__init__(devices, relaxation)
        problem, options, pieces = devices.problem, devices.problem.options, devices.problem.pieces
        self.most = int(self.pieces[self.few & relaxation.option_fits].max(initial=1))
        self.reached: Bools = relaxation.option_fits & (self.pieces <= self.most)
        groups = np.unique(relaxation.option_group[self.reached])
        self.group, self.groups = np.searchsorted(groups, relaxation.option_group), len(groups)
        self.shared: Floats = devices.shared[groups]  # (G, F)
        self.size: Ints = problem.modes.coverage[options.mode]
        empty = len(pieces.mode)  # the number that stands for no piece
        both: Ints = np.where(options.piece == NO_PIECE, empty, options.piece)
        self.wide: Ints = both[:, 0]
        self.narrow: Ints = both[:, 1]
        self.first: Bools = np.arange(self.most) < options.count[:, :1]
        self.terms = np.vstack([devices.terms, np.zeros_like(devices.terms[:1])])
        self.head, self.tail = np.append(pieces.head.device, 0), np.append(pieces.tail.device, 0)
        self.host_head, self.host_tail = np.append(pieces.head.host, 0), np.append(pieces.tail.host, 0)
        self.on_hosts = bool(self.host_tail.any() or self.host_head.any())
        self.numbers = self.groups * len(problem.capacity) * devices.terms.shape[1]

    @property
    def usable(self) -> bool:
        """Whether every table has an option to try, and plans are small enough to anneal."""
        return bool(self.count.all()) and self.numbers <= MOST_NUMBERS and self.suit(self.devices.problem)

    @staticmethod
    def suit(problem: Problem) -> bool:
        """Whether a problem has few enough tables for annealing, and no table in pieces of more than two widths."""
        return len(problem.tables) <= MOST_TABLES and problem.options.piece.shape[1] == PAIRS

    def reaches(self, draft: Assignment) -> bool:
        """Whether plans may hold all options of a draft."""
        return bool(self.reached[draft.option].all())


# --- changes ----------------------------------------------------------------------------------------------------------


@dataclass
class GroupChange:
    """The part of a change in one fusion group of each plan: group, count (K,) of added pieces, and terms (K, C, k)."""

    group: Ints
    count: Ints
    terms: Floats


@dataclass
class PopulationChange:
    """A change to each plan: parts on the same ranks (K, C), the bytes added to them, and which plans may take it.

    tables: for each table (K,) that changes, its option (K,) and targets (K, P) afterwards. everywhere: whether the
    ranks are all ranks, in order.
    """

    ranks: Ints
    parts: tuple[GroupChange, ...]
    device: Ints
    host: Ints | None
    tables: tuple[tuple[Ints, Ints, Ints], ...]
    legal: Bools
    everywhere: bool = False

    def add(self, loads: Floats | Ints, more: Floats | Ints) -> None:
        """Add `more` (F, K, C) to loads (F, K, W) on the ranks of the change, of which two may be the same."""
        if self.everywhere:
            loads += more
            return
        plans: Ints = np.arange(len(self.ranks))
        for cell in range(self.ranks.shape[1]):
            loads[:, plans, self.ranks[:, cell]] += more[:, :, cell]


def terms_between(terms: Floats, sign: Ints) -> Floats:
    """Terms (K, 2, k) of a move from one rank to another, from terms (K, k); sign (2,): -1 at the rank it leaves."""
    return terms[:, None] * sign[:, None]


def bytes_between(size: Ints, sign: Ints) -> Ints:
    """Bytes (K, 2) of a move from one rank to another, from bytes (K,); sign (2,): -1 at the rank it leaves."""
    return size[:, None] * sign


def merged_parts(second: GroupChange, first: GroupChange) -> tuple[GroupChange, GroupChange]:
    """Both parts; if both are of one group, the last holds their sum, because `Population.take` keeps the last."""
    same = second.group == first.group
    terms = first.terms + np.where(same[:, None, None], second.terms, 0.0)
    other = GroupChange(second.group, np.where(same, 0, second.count), np.where(same[:, None, None], 0.0, second.terms))
    return other, GroupChange(first.group, first.count + np.where(same, second.count, 0), terms)


# --- plans ------------------------------------------------------------------------------------------------------------


@dataclass
class ChangeEffect:
    """The state of each plan after a change, as `Population.take` needs it.

    score: a smooth approximation of the step; total: the step (K,), both in seconds. fits (K,): whether memory
    suffices.
    """

    sums: tuple[Floats, ...]
    cells: tuple[Floats, ...]
    ranks: Floats
    free: Ints
    host_free: Ints
    in_group: Ints
    score: Floats
    total: Floats
    fits: Bools


class Population:
    """Plans: options (K, T) and targets (K, T, P), and what every rank carries in each of them.

    sums (K, G, W, k): terms. cells (F, K, G, W): seconds of each cell. ranks (F, K, W): seconds over all groups. free
    (K, W), host_free (K, H): bytes. in_group (K, G): pieces. sharpness: power of the norm in the score; after setting
    it, call `refresh`.
    """

    def __init__(
        self, devices: DeviceState, options: AnnealingOptions, starts: Sequence[Assignment], plans: int
    ) -> None:
        self.devices, self.options, problem = devices, options, devices.problem
        self.plans = np.arange(plans)
        first = [starts[plan % len(starts)] for plan in range(plans)]
        self.option: Ints = np.stack([draft.option for draft in first])
        self.target: Ints = np.stack([_padded(draft, options.most) for draft in first])
        self.world = np.arange(len(problem.capacity))
        self.sums = np.zeros((plans, options.groups, len(self.world), devices.terms.shape[1]))
        self.free = np.tile(problem.capacity, (plans, 1))
        self.host_free = np.tile(problem.host_capacity, (plans, 1))
        self.in_group = np.zeros((plans, options.groups), dtype=np.int64)
        for table in range(self.option.shape[1]):
            self._put(table)
        self.sharpness = 1.0
        self.cells, self.ranks, self.score, self.total = self._seconds()

    def _put(self, table: int) -> None:
        """Add a table's terms, bytes and pieces to the ranks of each plan."""
        option = self.option[:, table]
        group = self.options.group[option]
        terms, device, host = self.on_ranks(option, self.target[:, table])
        self.sums[self.plans, group] += terms
        self.free -= device
        if host is not None:
            self.host_free -= self._per_host(host)
        self.in_group[self.plans, group] += self.options.pieces[option]

    def refresh(self) -> None:
        """Compute all seconds from the sums again, which clears accumulated rounding errors."""
        self.cells, self.ranks, self.score, self.total = self._seconds()

    def _seconds(self) -> tuple[Floats, Floats, Floats, Floats]:
        """(cells, ranks, score, total) computed from the sums."""
        cells = self.devices.evaluator.loads(self.sums)
        ranks = cells.sum(axis=2)
        return cells, ranks, *self._priced(ranks, self.in_group)

    def on_ranks(self, option: Ints, target: Ints) -> tuple[Floats, Ints, Ints | None]:
        """Terms (K, W, k) and bytes on device and host (K, W) of options (K,) on targets (K, P).

        The host bytes are None if no piece of the problem has any.
        """
        options = self.options
        size = options.size[option]
        on = covers(target[:, :, None], size[:, None, None], self.world)  # (K, P, W)
        first: Bools = options.first[option][:, :, None]
        wide: Ints = (on & first).sum(axis=1)  # (K, W): pieces of each width
        narrow: Ints = on.sum(axis=1) - wide
        last = holds_tail(self.world, size[:, None])
        terms, device, host = 0.0, 0, 0
        for number, piece in ((wide, options.wide[option]), (narrow, options.narrow[option])):
            terms = terms + number[:, :, None] * options.terms[piece][:, None, :]
            device = device + number * np.where(last, options.tail[piece][:, None], options.head[piece][:, None])
            if options.on_hosts:
                host = host + number * np.where(
                    last, options.host_tail[piece][:, None], options.host_head[piece][:, None]
                )
        return np.asarray(terms), np.asarray(device), np.asarray(host) if options.on_hosts else None

    def try_(self, change: PopulationChange) -> ChangeEffect:
        """Compute the state of each plan after a change."""
        sums: list[Floats] = []
        cells: list[Floats] = []
        ranks, in_group = self.ranks.copy(), self.in_group.copy()
        for part in change.parts:
            in_group[self.plans, part.group] += part.count
        plan = self.plans[:, None]
        for part in change.parts:
            group = part.group[:, None]
            after = self.sums[plan, group, change.ranks] + part.terms
            after *= (in_group[self.plans, part.group] > 0)[:, None, None]  # clears rounding errors of empty groups
            seconds = self.devices.evaluator.loads(after)
            change.add(ranks, seconds - self.cells[:, plan, group, change.ranks])
            sums.append(after)
            cells.append(seconds)
        free, host_free = self._free_after(change)
        score, total = self._priced(ranks, in_group)
        fits = np.logical_and((free >= 0).all(axis=1), (host_free >= 0).all(axis=1))
        return ChangeEffect(tuple(sums), tuple(cells), ranks, free, host_free, in_group, score, total, fits)

    def _free_after(self, change: PopulationChange) -> tuple[Ints, Ints]:
        """Free bytes on devices (K, W) and hosts (K, H) after a change."""
        free = self.free.copy()
        change.add(free[None], -change.device[None])
        if change.host is None:
            return free, self.host_free
        on_ranks = np.zeros_like(free)
        change.add(on_ranks[None], change.host[None])
        return free, self.host_free - self._per_host(on_ranks)

    def take(self, plans: Ints, change: PopulationChange, effect: ChangeEffect) -> None:
        """Apply a change to these plans."""
        for part, sums, cells in zip(change.parts, effect.sums, effect.cells, strict=True):
            place = plans[:, None], part.group[plans][:, None], change.ranks[plans]
            self.sums[place] = sums[plans]
            self.cells[:, *place] = cells[:, plans]
        self.ranks[:, plans] = effect.ranks[:, plans]
        for mine, theirs in ((self.free, effect.free), (self.host_free, effect.host_free),
                             (self.in_group, effect.in_group), (self.score, effect.score),
                             (self.total, effect.total)):  # fmt: skip
            mine[plans] = theirs[plans]
        for table, option, target in change.tables:
            self.option[plans, table[plans]], self.target[plans, table[plans]] = option[plans], target[plans]

    def copy(self, worse: Ints, better: Ints) -> None:
        """Replace the worse plans by copies of the better ones."""
        for each in (self.option, self.target, self.sums, self.free, self.host_free, self.in_group, self.score,
                     self.total):  # fmt: skip
            each[worse] = each[better]
        self.cells[:, worse], self.ranks[:, worse] = self.cells[:, better], self.ranks[:, better]

    def assignment(self, option: Ints, target: Ints) -> Assignment:
        """The assignment with options (T,) and targets (T, P)."""
        made = Assignment.of(self.devices.problem, option)
        made.target[:] = target[target != NOWHERE]
        return made

    def _priced(self, ranks: Floats, in_group: Ints) -> tuple[Floats, Floats]:
        """(smooth approximation of the step, the step) (K,) in seconds."""
        common = matmul(in_group > 0, self.options.shared.sum(axis=1))
        norm, slowest = smooth_norm(ranks, self.sharpness)
        return norm.sum(axis=0) + common, slowest.sum(axis=0) + common

    def _per_host(self, on_ranks: Ints) -> Ints:
        return on_ranks.reshape(*self.host_free.shape, -1).sum(axis=2)


def _padded(draft: Assignment, most: int) -> Ints:
    """Targets (T, P) of a draft's pieces, NOWHERE after the last piece of a table."""
    target = np.full((len(draft.option), most), NOWHERE)
    first = np.searchsorted(draft.table, np.arange(len(draft.option)))
    target[draft.table, np.arange(len(draft.table)) - first[draft.table]] = draft.target
    return target
