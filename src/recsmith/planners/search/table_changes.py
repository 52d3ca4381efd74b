"""Tables taken out of the plan and placed again: one by itself, or several one after the other.

Legend: W ranks, T tables.
"""

import numpy as np

from recsmith.planners.search.current_plan import CurrentPlan
from recsmith.planners.search.plan_copies import PlanCopies
from recsmith.planners.search.table_options import MOST_PIECES, TableOptions
from recsmith.planners.search.trials import Trial, best_trials
from recsmith.problems import Legality

MOST_TABLES = 24  # of a slowest rank, the dearest, that are tried in one round
COPIES = 32  # of the plan, from each of which several tables are taken out; trade-off: more find more, cost more time
MOST_OUT = 6  # tables that are taken out of a copy


def replace_table(plan: CurrentPlan, options: TableOptions, worst: int) -> bool:
    """Give one table of a slowest rank the best of all its options, its pieces placed where they then fit best.

    False where no table gains enough.
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
    plan: CurrentPlan, options: TableOptions, worst: list[int], random: np.random.Generator
) -> PlanCopies | None:
    """Take some tables out of copies of the plan, place them again in a random order, and keep the best copy.

    None where no copy gains enough. worst: the slowest ranks.
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
    plan: CurrentPlan, options: TableOptions, copies: PlanCopies, waiting: list[int], tables: list[int]
) -> dict[int, Trial]:
    """The best trial of one table in each waiting copy, by its place among those that wait."""
    listed = [options.cheapest(table) for table in tables]
    slot = np.repeat(np.arange(len(tables)), [len(some) for some in listed])
    return best_trials(copies, slot, np.array(waiting)[slot], np.concatenate(listed), plan.objective)


def _some_tables(plan: CurrentPlan, worst: list[int], random: np.random.Generator) -> list[int]:
    """One or two tables of a slowest rank and some others, in random order; none of very many pieces."""
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
    """Other tables that stay together with some: they move with them."""
    groups = [group for table in tables for group in legality.groups_of.get(table, ()) if group.kind == "together"]
    rows = {int(row) for group in groups for row in group.rows}
    return [t for t in np.flatnonzero(legality.row >= 0).tolist() if legality.row[t] in rows and t not in tables]
