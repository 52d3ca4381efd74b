"""All entries of the new checkpoint, and what becomes of each table; everything is checked before it is written."""

import math

from recsmith.adapters.reshard.layout import Layout, layouts
from recsmith.adapters.reshard.moves import Before, Init, NewEntry, add_table, move_table, siblings, untouched
from recsmith.adapters.reshard.report import TableChange
from recsmith.adapters.reshard.states import is_keyed_by_number, kept_by
from recsmith.adapters.reshard.stored import Checkpoint
from recsmith.adapters.reshard.table_entries import EntriesByName
from recsmith.errors import PlanMismatch, UsageError
from recsmith.plans import Plan, check_placements


def plan_moves(
    stored: Checkpoint, before: Plan, after: Plan, init: Init | None, seed: int
) -> tuple[list[NewEntry], list[TableChange], int]:
    """All entries of the new checkpoint, what becomes of each table, and how many entries pass through."""
    _check_plans(before, after)
    olds, news = layouts(before), layouts(after)
    _check_tables(olds, news)
    named = EntriesByName(stored.entries.values(), str(stored.folder))
    tables = {name: Before(layout=layout, entries=named.find(layout)) for name, layout in olds.items()}
    named.check_unplanned(each.entries for each in tables.values())
    _check_numbered(stored, olds, news)
    found = {name: each.entries for name, each in tables.items()}
    kept = {
        dense: kept_by(dense, found, olds, stored.entries, after.workload.optimizer) for dense in (False, True)
    }  # by whether a dense optimizer keeps it
    entries: list[NewEntry] = []
    changes: list[TableChange] = []
    examples = siblings(tables)
    for name, layout in news.items():
        if name in tables:
            made, change = move_table(tables[name], layout, kept[layout.dense])
        else:
            example = examples.get((layout.table.collection, layout.table.pooled))
            made, change = add_table(layout, example, kept[layout.dense], init, seed)
        entries += made
        changes.append(change)
    changes += [_removed(layout) for name, layout in olds.items() if name not in news]
    of_tables = {entry.key for each in tables.values() for entry in each.entries.all}
    rest = [entry for key, entry in stored.entries.items() if key not in of_tables]
    world = after.cluster.world_size
    entries += [untouched(entry, number % world) for number, entry in enumerate(rest)]
    _check_names(entries)
    _check_whole(entries)
    return entries, sorted(changes, key=lambda change: change.table), len(rest)


def _removed(layout: Layout) -> TableChange:
    return TableChange(table=layout.table.name, before=layout.placement.sharding_type, after=None, bytes=0)


def _check_plans(before: Plan, after: Plan) -> None:
    """Refuse plans that cannot be run, and those of 2D jobs."""
    for plan in (before, after):
        check_placements(plan.placements, plan.workload, plan.cluster)  # plans of Python were not read from a file
        if plan.cluster.replication is not None:
            raise UsageError(
                "a plan of a 2D job (sharding groups) cannot be resharded yet; load its checkpoint in a job"
            )


def _check_tables(olds: dict[str, Layout], news: dict[str, Layout]) -> None:
    """Refuse tables that are not the same in both plans."""
    for name in olds.keys() & news.keys():
        one, other = olds[name].table, news[name].table
        for what in ("num_embeddings", "embedding_dim", "data_type", "collection"):
            if getattr(one, what) != getattr(other, what):
                raise PlanMismatch(
                    f"table '{name}' has {what} {getattr(one, what)!r} in the old plan and {getattr(other, what)!r} "
                    "in the new one; resharding moves tables as they are, so call a changed table by a new name"
                )


def _check_numbered(stored: Checkpoint, olds: dict[str, Layout], news: dict[str, Layout]) -> None:
    """Refuse a change of the data_parallel tables where a dense optimizer knows its parameters by number alone."""
    copies = [{name for name, layout in each.items() if layout.dense} for each in (olds, news)]
    numbered = next((entry for entry in stored.entries.values() if is_keyed_by_number(entry)), None)
    if numbered is not None and copies[0] != copies[1]:
        raise PlanMismatch(
            f"'{numbered.key}' is the state of a parameter that is known by its number, and table "
            f"'{min(copies[0] ^ copies[1])}' is data_parallel in one plan only, which changes the numbers; save the "
            "dense optimizer through torchrec.optim.keyed.KeyedOptimizerWrapper"
        )


def _check_names(entries: list[NewEntry]) -> None:
    """Refuse a new table whose entries would stand in the way of others."""
    seen: set[str] = set()
    twin = next((entry.key for entry in entries if entry.key in seen or seen.add(entry.key)), None)
    if twin is not None:
        raise PlanMismatch(
            f"a new table would write entry '{twin}', which the checkpoint has already; rename the table"
        )


def _check_whole(entries: list[NewEntry]) -> None:
    """Refuse to write an entry whose chunks are not the whole of it: a second look at what the layouts promise."""
    for entry in entries:
        written = sum(math.prod(item.sizes) for item in entry.items)
        if entry.dtype is not None and written != math.prod(entry.sizes):
            raise PlanMismatch(
                f"'{entry.key}' has {math.prod(entry.sizes):,} numbers and its shards hold {written:,}; the checkpoint "
                "is damaged, copy it again"
            )
