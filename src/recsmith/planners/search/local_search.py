"""Local search around the ranks that decide the step: pieces move or are swapped, tables are placed again.

Every change keeps legality and memory and lowers a smooth approximation of the step (smooth_max.py). Three kinds are
tried, the next one if the one before finds no gain: a piece of a slowest rank moves or is swapped for another
(piece_moves.py); a table of a slowest rank is taken out and placed again by the best of all its options; several
tables, some of a slowest rank and some not, are taken out and placed again one after the other, in many copies of the
plan side by side.

Legend: W ranks, T tables.
"""

import numpy as np

from recsmith._types import Ints
from recsmith.bounds.relaxation import Relaxation
from recsmith.planners.search.device_state import Assignment, DeviceState
from recsmith.planners.search.piece_moves import (
    MOST_MOVED,
    MOST_PARTNERS,
    CurrentPlan,
    MovablePieces,
    move_or_swap,
)
from recsmith.planners.search.plan_copies import PlanCopies
from recsmith.planners.search.trials import Trial, best_trials
from recsmith.problems import Legality

SHARPNESS = (24, 96, 384)  # powers of the loads whose sum is minimized, in turn: low ones see all slow ranks, not one
MOST_TABLES = 24  # costliest tables of a slowest rank that are tried in one round
COPIES = 32  # copies of the plan, with several tables taken out of each; trade-off: more find more, cost more time
MOST_OUT = 6  # most tables that are taken out of a copy
MOST_PIECES = 64  # most pieces of a table that is placed again by itself
FEW_PIECES = 12  # most pieces of a table that is placed again together with others
MOST_OPTIONS = 24  # cheapest options tried of a table that is placed again together with others
SPARE_PIECES = 4  # a table is tried in at most this many more pieces than there are ranks


class LocalSearch:
    """A plan that is improved change by change. sharpness: of the smoothed maximum; set it between rounds."""

    def __init__(self, devices: DeviceState, relaxation: Relaxation, draft: Assignment, seed: int = 0) -> None:
        self.devices = devices
        self.copies = PlanCopies.of(devices, draft)
        self.options = TableOptions(relaxation)
        self.random = np.random.default_rng(seed)
        self.sharpness = SHARPNESS[0]
        self._pieces: MovablePieces | None = None  # the plan's pieces, until a table is placed again

    def assignment(self) -> Assignment:
        """The plan: all tables' pieces, in order of tables."""
        return self.copies.assignment(0)

    @property
    def total(self) -> float:
        """Seconds of the current plan's step."""
        return float(self.copies.totals()[0])

    @property
    def round_effort(self) -> int:
        """Numbers that a round works on outside its trials: all pieces, and all ranks for each piece that may move."""
        pieces, ranks = (len(self._pieces.piece) if self._pieces else 0), len(self.devices.free)
        return pieces + (min(MOST_MOVED, pieces // ranks) + 1) * (ranks + min(MOST_PARTNERS, pieces))

    def round(self, *, several: bool) -> bool:
        """Make one change for the better; False if none was found. several: also take several tables out at once."""
        plan = CurrentPlan.of(self.devices, self.copies, self.sharpness, self._pieces)
        self._pieces, worst = plan.pieces, plan.slowest_ranks()
        if any(move_or_swap(plan, rank) for rank in worst):
            return True
        if any(replace_table(plan, self.options, rank) for rank in worst):
            self._pieces = None
            return True
        better = replace_several(plan, self.options, worst, self.random) if several else None
        if better is not None:
            self.copies, self._pieces = better, None
        return better is not None


# --- tables placed again ----------------------------------------------------------------------------------------------


def replace_table(plan: CurrentPlan, options: "TableOptions", worst: int) -> bool:
    """Give one table of a slowest rank the best of all its options, with each piece where it then fits best.

    Returns False if no table gains enough.
    """
    tables = plan.tables_on(worst)[:MOST_TABLES]
    if not tables:
        return False
    without = plan.copies.take(np.zeros(len(tables), dtype=np.int64))
    for copy, table in enumerate(tables):
        without.remove(copy, table)
    listed = [options.below_slowest(plan, table) for table in tables]
    copy = np.repeat(np.arange(len(tables)), [len(some) for some in listed])
    found = best_trials(without, copy, copy, np.concatenate(listed), plan.objective) if len(copy) else {}
    if not found:
        return False
    best = min(found, key=lambda i: found[i].score)
    if found[best].score >= plan.goal(worst):
        return False
    table, before = tables[best], (int(plan.copies.option[0, tables[best]]), plan.copies.targets[0][tables[best]])
    plan.copies.remove(0, table)
    plan.copies.insert(0, table, found[best].option, found[best].target)
    if plan.copies.keeps_groups(0):
        return True
    plan.copies.remove(0, table)
    plan.copies.insert(0, table, *before)
    return False


def replace_several(
    plan: CurrentPlan, options: "TableOptions", worst: list[int], random: np.random.Generator
) -> PlanCopies | None:
    """Take some tables out of copies of the plan, place them again in a random order, and return the best copy.

    Returns None if no copy gains enough. worst: the slowest ranks.
    """
    out = [_some_tables(plan, worst, random) for _ in range(COPIES)]
    copies = plan.copies.take(np.zeros(COPIES, dtype=np.int64))
    for copy, tables in enumerate(out):
        for table in tables:
            copies.remove(copy, table)
    complete = list(range(COPIES))
    for turn in range(max(map(len, out), default=0)):
        waiting = [copy for copy in complete if turn < len(out[copy])]
        if not waiting:
            break
        found = _best_of_each(plan, options, copies, waiting, [out[copy][turn] for copy in waiting])
        for i, copy in enumerate(waiting):
            if i in found:
                copies.insert(copy, out[copy][turn], found[i].option, found[i].target)
            else:
                complete.remove(copy)
    complete = [copy for copy in complete if copies.keeps_groups(copy)]
    if not complete:
        return None
    scores = plan.objective.score(copies.full_loads()[complete])
    best = int(scores.argmin())
    return copies.take(np.array([complete[best]])) if scores[best] < plan.goal(worst[0]) else None


def _best_of_each(
    plan: CurrentPlan, options: "TableOptions", copies: PlanCopies, waiting: list[int], tables: list[int]
) -> dict[int, Trial]:
    """The best trial of one table in each waiting copy, by the copy's index in `waiting`."""
    listed = [options.cheapest(table) for table in tables]
    slot = np.repeat(np.arange(len(tables)), [len(some) for some in listed])
    return best_trials(copies, slot, np.array(waiting)[slot], np.concatenate(listed), plan.objective)


def _some_tables(plan: CurrentPlan, worst: list[int], random: np.random.Generator) -> list[int]:
    """One or two tables of a slowest rank and some others, in random order, without tables of very many pieces."""
    rank = worst[int(random.integers(len(worst)))]
    here = plan.tables_on(rank)
    if not here:
        return []
    count = int(random.integers(2, MOST_OUT + 1))
    mine = random.choice(here, size=min(len(here), int(random.integers(1, 3))), replace=False)
    others = random.choice(len(plan.devices.problem.tables), size=count, replace=True)
    chosen: list[int] = list(dict.fromkeys([*mine.tolist(), *others.tolist()]))[:count]
    legality = plan.devices.legality
    chosen = [*chosen, *partners(legality, chosen)] if legality.groups else chosen
    few = [t for t in chosen if len(plan.copies.targets[0][t]) <= MOST_PIECES and not legality.pinned[t]]
    return random.permutation(few).tolist()


def partners(legality: Legality, tables: list[int]) -> list[int]:
    """Other tables that must stay together with some tables, and so move with them."""
    groups = [group for table in tables for group in legality.groups_of.get(table, ()) if group.kind == "together"]
    rows = {int(row) for group in groups for row in group.rows}
    return [t for t in np.flatnonzero(legality.row >= 0).tolist() if legality.row[t] in rows and t not in tables]


# --- which options are tried ------------------------------------------------------------------------------------------


class TableOptions:
    """The options of each table that local search tries, computed once for each table and number of pieces."""

    def __init__(self, relaxation: Relaxation) -> None:
        self.relaxation = relaxation
        self._fitting: dict[tuple[int, int], Ints] = {}

    def below_slowest(self, plan: CurrentPlan, table: int) -> Ints:
        """Options whose additional work would still fit below the slowest ranks if all loads were level."""
        relaxation, loads = self.relaxation, plan.copies.loads[0]
        own, most = self._fitting_options(table, MOST_PIECES), float(plan.objective.reference.sum())
        level = float(loads.sum()) + relaxation.option_seconds[own]
        return own[(relaxation.option_largest[own] < most) & (level < most * loads.shape[1])]

    def cheapest(self, table: int) -> Ints:
        """The cheapest options of a table with few pieces."""
        own = self._fitting_options(table, FEW_PIECES)
        return own[np.argsort(self.relaxation.option_seconds[own], kind="stable")[:MOST_OPTIONS]]

    def _fitting_options(self, table: int, most: int) -> Ints:
        """The options of a table that fit an empty device, in at most `most` pieces or in as few as fit."""
        problem = self.relaxation.problem
        most = min(most, len(problem.capacity) + SPARE_PIECES)
        if (table, most) not in self._fitting:
            options = problem.options
            own = np.arange(int(options.start[table]), int(options.start[table + 1]))
            count = options.count[own].sum(axis=1)
            fits = self.relaxation.option_fits[own]
            few = count <= max(most, int(count[fits].min(initial=most)))
            self._fitting[table, most] = own[fits & few]
        return self._fitting[table, most]
