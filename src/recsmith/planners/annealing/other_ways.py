"""Other options for single tables of an annealed plan, which annealing's own changes seldom lead to.

A table that takes most of a rank's time costs less in one piece than in two. But first the rank would have to be
emptied, and every change on the way makes the step longer. The same holds for a table that covers a whole host. So a
few tables are given another option, whatever that costs at first, and keep it for one round, while all other tables
make room for them. After that they may change again like all others.

Legend: T tables, O options, W ranks, N options that may be tried.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.groups import GroupCosts, groups_dominated_by_type
from recsmith.bounds.linear_bounds import least_opening
from recsmith.bounds.relaxation import Relaxation
from recsmith.planners.annealing.starts import TriedOptions
from recsmith.planners.annealing.successive_halving import AnnealedPlan, Round
from recsmith.planners.search.device_state import DeviceState
from recsmith.problems import NO_PIECE
from recsmith.sharding.coverage import by_target

MOST_WAYS, AS_BEFORE = 7, 2  # plans with one table changed; and copies of the plan with no table changed
WAYS_OF_A_TABLE = 2  # other options of a table at most
WEIGHT = 0.3  # share of a table's cost taken off its other options: annealing changes costly tables least
WAY_ROUNDS = (Round(9, (1.0,), 1), Round(4, (0.5,), 2), Round(2, (0.25,), 2))


def other_ways(devices: DeviceState, relaxation: Relaxation, best: AnnealedPlan) -> list[AnnealedPlan]:
    """Copies of the best plan of a search, and plans in which one table is placed in another way.

    Such a table keeps its option for a round. Empty if no table has another option. For cost models with planes.
    """
    ways = _OtherWays(devices, relaxation, best)
    found = list(islice(filter(None, map(ways.placed, ways.options())), MOST_WAYS))
    return [*(AS_BEFORE * [best]), *found] if found else []


class _OtherWays:
    """Other options for the tables of a plan. loads (W,): seconds of the pieces on each rank, each priced alone."""

    def __init__(self, devices: DeviceState, relaxation: Relaxation, best: AnnealedPlan) -> None:
        self.devices, self.relaxation, self.best = devices, relaxation, best
        self.problem, self.evaluator = devices.problem, devices.evaluator
        self.plan, self.flat, self.world = best.plan, best.options.flat, len(devices.free)
        self.coverage: Ints = self.problem.modes.coverage
        self.held: Bools = np.arange(self.flat.slots) < self.plan.count[:, None]  # (T, S)
        self.used: Bools = np.isin(np.arange(self.evaluator.groups), self.evaluator.group[self.plan.mode])
        self.loads = self._loads_of(np.arange(len(self.plan.count)))

    def options(self) -> Iterator[int]:
        """Options of another kind than their table's in the plan, the most promising first.

        A kind is a fusion group, in one piece or in several. The promise of an option is what it saves on the table,
        plus a share of the table's cost, so that costly tables come first.
        """
        groups: Bools = self.used | ~groups_dominated_by_type(self.evaluator)
        tried, options = TriedOptions(self.devices, self.relaxation.within(groups)), self.problem.options
        own: Ints = np.unique(tried.tried[tried.count > 0])
        table, group = options.table[own], self.evaluator.group
        kind: Ints = 2 * group[options.mode[own]] + (tried.pieces[own] > 1)
        now: Ints = 2 * group[self.plan.mode] + (self.plan.count > 1)
        seconds, room = self._priced(own)
        left = np.flatnonzero((kind != now[table]) & room & ~self.problem.legality.pinned[table])
        left = left[np.lexsort((seconds[left], kind[left], table[left]))]
        is_first = (np.diff(table[left], prepend=-1) != 0) | (np.diff(kind[left], prepend=-1) != 0)
        left = left[is_first]  # keep the cheapest option of each kind
        promised = (1 + WEIGHT) * self._seconds_now()[table[left]] - seconds[left]
        ways = np.zeros(len(self.plan.count), dtype=np.int64)  # number of options yielded for each table so far
        for each in left[np.argsort(-promised, kind="stable")].tolist():
            ways[table[each]] += 1
            if ways[table[each]] <= WAYS_OF_A_TABLE:
                yield int(own[each])

    def placed(self, option: int) -> AnnealedPlan | None:
        """The plan with a table in an option, each piece on the least loaded target, whether or not it fits the memory.

        Returns None if the table has fewer open targets than the option has pieces.
        """
        options, plan = self.problem.options, self.plan.copy()
        table, mode = int(options.table[option]), int(options.mode[option])
        pieces, size = np.repeat(options.piece[option], options.count[option]), int(self.coverage[mode])
        full = by_target(self.loads - self._loads_of(np.array([table])), size).max(axis=1)
        if self.problem.legality.open is not None:
            full = np.where(by_target(self.problem.legality.open[table], size).all(axis=1), full, np.inf)
        targets = np.argsort(full, kind="stable")[: len(pieces)]
        if len(targets) < len(pieces) or np.isinf(full[targets]).any():
            return None
        plan.option[table], plan.mode[table], plan.count[table] = option, mode, len(pieces)
        plan.unit[table, : len(pieces)] = self.flat.piece_unit[pieces]
        plan.target[table, : len(pieces)] = targets
        return replace(self.best, seconds=np.inf, plan=plan, first=self.best.options.keeping(mode))

    def _priced(self, own: Ints) -> tuple[Floats, Bools]:
        """What options (N,) cost the mean rank, with the groups that they would open, and whether their pieces fit.

        A piece does not fit if, with the pieces that are on all ranks, it would take longer than the step.
        """
        options, piece = self.problem.options, self.problem.options.piece[own]
        alone = np.where(piece == NO_PIECE, 0.0, self.flat.seconds[self.flat.piece_unit[piece]])
        mode = options.mode[own]
        seconds = (alone * options.count[own]).sum(axis=1) * self.coverage[mode] / self.world
        added = GroupCosts(self.evaluator, least_opening(self.evaluator)).added(self.used)
        seconds += np.where(self.used, 0.0, added)[self.evaluator.group[mode]]
        everywhere = self._loads_of(np.flatnonzero(self.coverage[self.plan.mode] == self.world)).min()
        return seconds, alone.max(axis=1) <= self.best.seconds - everywhere

    def _seconds_now(self) -> Floats:
        """What each table (T,) costs the mean rank in the plan."""
        alone = np.where(self.held, self.flat.seconds[self.plan.unit], 0.0).sum(axis=1)
        return alone * self.coverage[self.plan.mode] / self.world

    def _loads_of(self, tables: Ints) -> Floats:
        """Seconds (W,) of the pieces of some tables on each rank."""
        row, slot = np.nonzero(self.held[tables])
        size = self.coverage[self.plan.mode[tables[row]]]
        first = self.plan.target[tables[row], slot] * size
        seconds = self.flat.seconds[self.plan.unit[tables[row], slot]]
        more = np.zeros(self.world + 1)  # differences from each rank to the next, summed up below
        np.add.at(more, first, seconds)
        np.subtract.at(more, first + size, seconds)
        return np.add.accumulate(more)[: self.world]
