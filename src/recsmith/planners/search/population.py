"""Many plans side by side, and what a change to each of them costs: array operations for all plans together.

A change touches cells, a cell being a fusion group on a rank: only their seconds are worked out anew.

Legend: K plans, T tables, P pieces of an option at most, W ranks, H hosts, G fusion groups in reach, C cells of a
change in one group, F phases, k work terms.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.planners.search.annealing_options import AnnealingOptions
from recsmith.planners.search.assignment import NOWHERE, Assignment
from recsmith.planners.search.device_state import DeviceState


@dataclass
class GroupChange:
    """What a change does to one fusion group of each plan: group, count (K,) of pieces, and terms (K, C, k)."""

    group: Ints
    count: Ints
    terms: Floats


@dataclass
class PopulationChange:
    """A change to each plan: parts on the same ranks (K, C), the bytes that come to them, and which plans may take it.

    everywhere: the ranks are all of them, in order.
    tables: for each table (K,) that changes, its option (K,) and targets (K, P) afterwards.
    """

    ranks: Ints
    parts: tuple[GroupChange, ...]
    device: Ints
    host: Ints | None
    tables: tuple[tuple[Ints, Ints, Ints], ...]
    legal: Bools
    everywhere: bool = False

    def add(self, loads: Floats | Ints, more: Floats | Ints) -> None:
        """Let loads (F, K, W) grow by `more` (F, K, C) on the ranks, of which two may be the same."""
        if self.everywhere:
            loads += more
            return
        plans: Ints = np.arange(len(self.ranks))
        for cell in range(self.ranks.shape[1]):
            loads[:, plans, self.ranks[:, cell]] += more[:, :, cell]


@dataclass
class ChangeEffect:
    """What plans would be after a change: what `Population.take` needs of it.

    score: a smooth stand-in of the step; total: the step (K,).
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

    sums (K, G, W, k): terms; cells (F, K, G, W): their seconds; ranks (F, K, W): over all groups.
    """

    def __init__(
        self, ledger: DeviceState, options: AnnealingOptions, starts: Sequence[Assignment], plans: int
    ) -> None:
        self.ledger, self.options, problem = ledger, options, ledger.problem
        self.plans = np.arange(plans)
        first = [starts[plan % len(starts)] for plan in range(plans)]
        self.option: Ints = np.stack([draft.option for draft in first])
        self.target: Ints = np.stack([_padded(draft, options.most) for draft in first])
        self.world = np.arange(len(problem.capacity))
        self.sums = np.zeros((plans, options.groups, len(self.world), ledger.terms.shape[1]))
        self.free = np.tile(problem.capacity, (plans, 1))
        self.host_free = np.tile(problem.host_capacity, (plans, 1))
        self.in_group = np.zeros((plans, options.groups), dtype=np.int64)
        for table in range(self.option.shape[1]):
            terms, device, host = self.spread(self.option[:, table], self.target[:, table])
            self.sums[self.plans, options.group[self.option[:, table]]] += terms
            self.free -= device
            if host is not None:
                self.host_free -= self._per_host(host)
            self.in_group[self.plans, options.group[self.option[:, table]]] += options.pieces[self.option[:, table]]
        self.sharpness = 1.0
        self.refresh()

    def refresh(self) -> None:
        """Work out all seconds anew, which clears what rounding has left in them."""
        self.cells = self.ledger.evaluator.loads(self.sums)
        self.ranks = self.cells.sum(axis=2)
        self.score, self.total = self._priced(self.ranks, self.in_group)

    def spread(self, option: Ints, target: Ints) -> tuple[Floats, Ints, Ints | None]:
        """Terms (K, W, k) and bytes on device and host (K, W) of options (K,) on targets (K, P)."""
        options = self.options
        size = options.size[option]
        on: Bools = self.world // size[:, None, None] == target[:, :, None]  # (K, P, W)
        first: Bools = options.first[option][:, :, None]
        wide: Ints = (on & first).sum(axis=1)  # (K, W): pieces of each width
        narrow: Ints = on.sum(axis=1) - wide
        last: Bools = self.world % size[:, None] == size[:, None] - 1
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
        """What a change makes of each plan."""
        sums: list[Floats] = []
        cells: list[Floats] = []
        ranks, in_group = self.ranks.copy(), self.in_group.copy()
        for part in change.parts:
            in_group[self.plans, part.group] += part.count
        plan = self.plans[:, None]
        for part in change.parts:
            group = part.group[:, None]
            after = self.sums[plan, group, change.ranks] + part.terms
            after *= (in_group[self.plans, part.group] > 0)[:, None, None]  # what rounding has left
            seconds = self.ledger.evaluator.loads(after)
            change.add(ranks, seconds - self.cells[:, plan, group, change.ranks])
            sums.append(after)
            cells.append(seconds)
        free, host_free = self.free.copy(), self.host_free
        change.add(free[None], -change.device[None])
        if change.host is not None:
            on_ranks = np.zeros_like(free)
            change.add(on_ranks[None], change.host[None])
            host_free = host_free - self._per_host(on_ranks)
        score, total = self._priced(ranks, in_group)
        fits = np.logical_and((free >= 0).all(axis=1), (host_free >= 0).all(axis=1))
        return ChangeEffect(tuple(sums), tuple(cells), ranks, free, host_free, in_group, score, total, fits)

    def take(self, plans: Ints, change: PopulationChange, outcome: ChangeEffect) -> None:
        """Let plans change."""
        for part, sums, cells in zip(change.parts, outcome.sums, outcome.cells, strict=True):
            place = plans[:, None], part.group[plans][:, None], change.ranks[plans]
            self.sums[place] = sums[plans]
            self.cells[:, *place] = cells[:, plans]
        self.ranks[:, plans] = outcome.ranks[:, plans]
        for mine, theirs in ((self.free, outcome.free), (self.host_free, outcome.host_free),
                             (self.in_group, outcome.in_group), (self.score, outcome.score),
                             (self.total, outcome.total)):  # fmt: skip
            mine[plans] = theirs[plans]
        for table, option, target in change.tables:
            self.option[plans, table[plans]], self.target[plans, table[plans]] = option[plans], target[plans]

    def copy(self, worse: Ints, better: Ints) -> None:
        """Plans become what others are."""
        for each in (self.option, self.target, self.sums, self.free, self.host_free, self.in_group, self.score,
                     self.total):  # fmt: skip
            each[worse] = each[better]
        self.cells[:, worse], self.ranks[:, worse] = self.cells[:, better], self.ranks[:, better]

    def assignment(self, option: Ints, target: Ints) -> Assignment:
        """A plan of options (T,) and targets (T, P)."""
        made = Assignment.of(self.ledger.problem, option)
        made.target[:] = target[target != NOWHERE]
        return made

    def _priced(self, ranks: Floats, in_group: Ints) -> tuple[Floats, Floats]:
        """(a smooth stand-in of the step, the step) (K,)."""
        common = (in_group > 0) @ self.options.shared.sum(axis=1)
        slowest = np.maximum(ranks.max(axis=2), 0.0)
        relative = np.maximum(ranks, 0.0) / np.maximum(slowest, 1e-300)[:, :, None]
        norm = slowest * (relative**self.sharpness).sum(axis=2) ** (1 / self.sharpness)
        return norm.sum(axis=0) + common, slowest.sum(axis=0) + common

    def _per_host(self, on_ranks: Ints) -> Ints:
        return on_ranks.reshape(*self.host_free.shape, -1).sum(axis=2)


def _padded(draft: Assignment, most: int) -> Ints:
    """Targets (T, P) of a draft's pieces."""
    target = np.full((len(draft.option), most), NOWHERE)
    first = np.searchsorted(draft.table, np.arange(len(draft.option)))
    target[draft.table, np.arange(len(draft.table)) - first[draft.table]] = draft.target
    return target
