"""Plans the new checkpoint entry by entry: the source of every chunk, and the change of each table.

Everything is checked before anything is written.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Literal

from recsmith._types import record
from recsmith.adapters.checkpoints import DTYPES, Checkpoint, Entry
from recsmith.adapters.reshard import StateChange, TableChange
from recsmith.adapters.reshard.layout import StoredLayout, layouts
from recsmith.adapters.reshard.sources import Copy, Filled, Item, filled, held, moved, moved_rows, sizes_of
from recsmith.adapters.reshard.table_entries import (
    EntriesByName,
    Kept,
    State,
    TableEntries,
    counterparts,
    is_keyed_by_number,
    kept_by,
    state_path,
    states_of,
    weight_path,
)
from recsmith.errors import PlanMismatch, UsageError
from recsmith.plans import Plan, check_placements

Init = Literal["zeros", "uniform"]
TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
ARCHIVE_HEAD = 2048  # bytes added per stored tensor; torch.save adds about 1.5 KiB


@record
class NewEntry:
    """An entry of the new checkpoint: its path, element type (None for an object), sizes and chunks."""

    path: tuple[str | int, ...]
    dtype: str | None
    sizes: tuple[int, ...]
    items: tuple[Item, ...]

    @property
    def key(self) -> str:
        """The name that PyTorch gives the entry."""
        return ".".join(map(str, self.path))


@record
class Before:
    """A table of the old checkpoint: its layout and its entries."""

    layout: StoredLayout
    entries: TableEntries


def untouched(entry: Entry, rank: int) -> NewEntry:
    """A copy of an entry with all its chunks, written into the file of `rank`."""
    items = tuple(
        Item(offsets=chunk.offsets, sizes=chunk.sizes, rank=rank, made=Copy(chunk=chunk)) for chunk in entry.chunks
    )
    return NewEntry(path=entry.path, dtype=entry.dtype, sizes=entry.sizes, items=items)


def move_table(before: Before, after: StoredLayout, kept: Kept | None) -> tuple[list[NewEntry], TableChange]:
    """The new entries of a table that both plans have, and its change. kept: states of the table's new optimizer."""
    weight = before.entries.weight
    olds = held(weight, before.layout, "element-wise")
    made = [_entry(weight.path, weight.dtype, after, "element-wise", moved(olds, after))]
    changes: list[StateChange] = []
    for state, path, source in _continued(before, after, kept):
        entry, change = _move_state(state, path, source, before, after)
        made.append(entry)
        changes.append(StateChange(name=state.name, change=change))
    return made, _change(after, before.layout, made, changes)


def _continued(
    before: Before, after: StoredLayout, kept: Kept | None
) -> Iterator[tuple[State, tuple[str | int, ...], State | None]]:
    """Each state that the table will have, its path, and the old state that it continues (None: it starts at zero)."""
    states = states_of(before.entries, before.layout)
    if before.layout.dense == after.dense:
        for state in states:
            yield state, before.entries.states[state.name].path, state
        return
    if kept is None:
        return
    pairs = counterparts(states, kept.states)
    by_name = {state.name: state for state in states}
    for state in kept.states:
        name = state.name if after.dense else f"{after.name}.{state.name}"
        source = by_name.get(pairs.get(state.name, ""))
        yield state, state_path(kept.prefix, before.entries.weight.path, name), source


def _move_state(
    state: State, path: tuple[str | int, ...], source: State | None, before: Before, after: StoredLayout
) -> tuple[NewEntry, str]:
    if state.shape == "scalar":
        return _scalar(state, path, after), "exact" if state.like else "reset"
    if source is None or source.like is None:
        return _zeros(state, path, after), "reset"
    olds = held(source.like, before.layout, state.shape)
    if state.shape == "row-wise":
        items, change = moved_rows(olds, after, after.dense)
        return _entry(path, source.dtype, after, "row-wise", items), change
    return _entry(path, source.dtype, after, "element-wise", moved(olds, after)), "exact"


def add_table(
    after: StoredLayout, sibling: Before | None, kept: Kept | None, init: Init | None, seed: int
) -> tuple[list[NewEntry], TableChange]:
    """The entries of a new table, and its change.

    Args:
        after: the table's layout under the new plan.
        sibling: an old table of the same collection, whose entries show how the new table's are named.
        kept: states of the table's optimizer; None without any.
        init: initial weights.
        seed: seed of uniform weights.
    """
    table = after.table
    if init is None:
        raise UsageError(
            f"table '{table.name}' of the new plan is not in the old one; say what it begins with: --init uniform, or "
            "--init zeros"
        )
    if sibling is None:
        where = f"collection '{table.collection}'" if table.collection else "its kind"
        raise PlanMismatch(
            f"table '{table.name}' is new, and the old plan has no table of {where}, whose entry would show how the "
            "entry of a new one is called; add it to a collection that has tables"
        )
    if table.data_type not in TYPES:
        raise UsageError(f"table '{table.name}' is new and {table.data_type}; only {', '.join(TYPES)} can be added")
    limit = math.sqrt(1 / table.num_embeddings) if init == "uniform" else 0.0
    path = weight_path(sibling.entries.weight, sibling.layout.name, after.name)
    items = filled(after, "element-wise", after.dense, limit=limit, seed=seed)
    made = [_entry(path, TYPES[table.data_type], after, "element-wise", items)]
    for state in kept.states if kept else ():
        own = state.name if after.dense else f"{after.name}.{state.name}"
        where = state_path(kept.prefix, path, own) if kept else ()
        made.append(_scalar(state, where, after) if state.shape == "scalar" else _zeros(state, where, after))
    changes = [StateChange(name=state.name, change="new") for state in (kept.states if kept else ())]
    return made, _change(after, None, made, changes)


def _scalar(state: State, path: tuple[str | int, ...], after: StoredLayout) -> NewEntry:
    """The entry of a scalar state, such as a number of steps, copied from the checkpoint, or zero if it has none."""
    rank = after.blocks[0].rank
    if state.like is not None:
        return NewEntry(
            path=path, dtype=state.like.dtype, sizes=state.like.sizes, items=untouched(state.like, rank).items
        )
    block = after.blocks[0]
    item = Item(offsets=(), sizes=(), rank=rank, made=Filled(block=block, dim=1))
    return NewEntry(path=path, dtype=state.dtype, sizes=(), items=(item,))


def _zeros(state: State, path: tuple[str | int, ...], after: StoredLayout) -> NewEntry:
    return _entry(path, state.dtype, after, state.shape, filled(after, state.shape, after.dense))


def _entry(
    path: tuple[str | int, ...], dtype: str | None, after: StoredLayout, shape: str, items: list[Item]
) -> NewEntry:  # fmt: skip
    return NewEntry(path=path, dtype=dtype, sizes=sizes_of(after, shape, after.dense), items=tuple(items))


def _change(
    after: StoredLayout, before: StoredLayout | None, made: list[NewEntry], states: list[StateChange]
) -> TableChange:
    return TableChange(
        table=after.table.name, before=before.placement.sharding_type if before else None,
        after=after.placement.sharding_type, bytes=sum(bytes_of(entry) for entry in made), states=tuple(states),
    )  # fmt: skip


def bytes_of(entry: NewEntry | Entry) -> int:
    """Bytes of an entry's numbers; 0 for objects."""
    return 0 if entry.dtype is None else math.prod(entry.sizes) * DTYPES[entry.dtype]


def stored_bytes(item: Item, dtype: str | None) -> int:
    """Approximate bytes of an item in a file: of its numbers and the archive's header, or of the copied chunk."""
    if isinstance(item.made, Copy):
        return item.made.chunk.length
    return math.prod(item.sizes) * DTYPES[dtype or ""] + ARCHIVE_HEAD


def siblings(tables: Mapping[str, Before]) -> dict[tuple[str, bool], Before]:
    """One table of each collection, by collection and whether it is pooled (for plans that name no collections)."""
    return {(each.layout.table.collection, each.layout.table.pooled): each for each in tables.values()}


def plan_moves(
    stored: Checkpoint, before: Plan, after: Plan, init: Init | None, seed: int
) -> tuple[list[NewEntry], list[TableChange], int]:
    """All entries of the new checkpoint, the change of each table, and the number of entries copied unchanged."""
    _check_plans(before, after)
    olds, news = layouts(before), layouts(after)
    _check_tables(olds, news)
    named = EntriesByName(stored.entries.values(), str(stored.folder))
    tables = {name: Before(layout=layout, entries=named.find(layout)) for name, layout in olds.items()}
    named.check_unplanned(each.entries for each in tables.values())
    _check_numbered(stored, olds, news)
    found = {name: each.entries for name, each in tables.items()}
    kept = {
        (dense, optimizer): kept_by(dense, found, olds, stored.entries, before.workload, optimizer)
        for dense in (False, True)  # whether a dense optimizer stores the states
        for optimizer in after.workload.optimizers
    }
    entries: list[NewEntry] = []
    changes: list[TableChange] = []
    examples = siblings(tables)
    for name, layout in news.items():
        own = kept[layout.dense, after.workload.optimizer_of(layout.table)]
        if name in tables:
            made, change = move_table(tables[name], layout, own)
        else:
            example = examples.get((layout.table.collection, layout.table.pooled))
            made, change = add_table(layout, example, own, init, seed)
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


def _removed(layout: StoredLayout) -> TableChange:
    return TableChange(table=layout.table.name, before=layout.placement.sharding_type, after=None, bytes=0)


def _check_plans(before: Plan, after: Plan) -> None:
    """Refuse plans that cannot be run. The checkpoint of a 2D job holds the tables of one sharding group."""
    for plan in (before, after):
        check_placements(plan.placements, plan.workload, plan.cluster)  # plans made in Python are unchecked


def _check_tables(olds: dict[str, StoredLayout], news: dict[str, StoredLayout]) -> None:
    """Refuse tables whose shape, data type, collection or optimizer differs between the plans."""
    for name in olds.keys() & news.keys():
        one, other = olds[name].table, news[name].table
        for what in ("num_embeddings", "embedding_dim", "data_type", "collection", "optimizer"):
            if getattr(one, what) != getattr(other, what):
                raise PlanMismatch(
                    f"table '{name}' has {what} {getattr(one, what)!r} in the old plan and {getattr(other, what)!r} "
                    "in the new one; resharding moves tables as they are, so call a changed table by a new name"
                )


def _check_numbered(stored: Checkpoint, olds: dict[str, StoredLayout], news: dict[str, StoredLayout]) -> None:
    """Refuse to change which tables are data_parallel if a dense optimizer stores its parameters by number only."""
    copies = [{name for name, layout in each.items() if layout.dense} for each in (olds, news)]
    numbered = next((entry for entry in stored.entries.values() if is_keyed_by_number(entry)), None)
    if numbered is not None and copies[0] != copies[1]:
        raise PlanMismatch(
            f"'{numbered.key}' is the state of a parameter that is known by its number, and table "
            f"'{min(copies[0] ^ copies[1])}' is data_parallel in one plan only, which changes the numbers; save the "
            "dense optimizer through torchrec.optim.keyed.KeyedOptimizerWrapper"
        )


def _check_names(entries: list[NewEntry]) -> None:
    """Refuse a new table whose entries would have the key of an existing entry."""
    seen: set[str] = set()
    twin = next((entry.key for entry in entries if entry.key in seen or seen.add(entry.key)), None)
    if twin is not None:
        raise PlanMismatch(
            f"a new table would write entry '{twin}', which the checkpoint has already; rename the table"
        )


def _check_whole(entries: list[NewEntry]) -> None:
    """Refuse to write an entry whose chunks do not add up to it: a second check of what the layouts promise."""
    for entry in entries:
        written = sum(math.prod(item.sizes) for item in entry.items)
        if entry.dtype is not None and written != math.prod(entry.sizes):
            raise PlanMismatch(
                f"'{entry.key}' has {math.prod(entry.sizes):,} numbers and its shards hold {written:,}; the checkpoint "
                "is damaged, copy it again"
            )
