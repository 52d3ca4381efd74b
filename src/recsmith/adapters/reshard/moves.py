"""The new checkpoint, entry by entry: what every chunk is made of, and what becomes of each table."""

import math
from collections.abc import Iterator, Mapping
from typing import Literal

from recsmith._types import record
from recsmith.adapters.reshard.inert_pickle import DTYPES
from recsmith.adapters.reshard.layout import Layout
from recsmith.adapters.reshard.report import StateChange, TableChange
from recsmith.adapters.reshard.sources import Copy, Filled, Item, filled, held, moved, moved_rows, sizes_of
from recsmith.adapters.reshard.states import Kept, State, counterparts, states_of
from recsmith.adapters.reshard.stored import Entry
from recsmith.adapters.reshard.table_entries import TableEntries, state_path, weight_path
from recsmith.errors import PlanMismatch, UsageError

Init = Literal["zeros", "uniform"]
TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
ARCHIVE_HEAD = 2048  # bytes; torch.save adds 1.5 KiB to a tensor


@record
class NewEntry:
    """An entry of the new checkpoint: path, element type (None: an object), sizes, and its chunks."""

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
    """A table of the old checkpoint: where it lay and what is stored of it."""

    layout: Layout
    entries: TableEntries


def untouched(entry: Entry, rank: int) -> NewEntry:
    """An entry that is no table's: its chunks as they are."""
    items = tuple(
        Item(offsets=chunk.offsets, sizes=chunk.sizes, rank=rank, made=Copy(chunk=chunk)) for chunk in entry.chunks
    )
    return NewEntry(path=entry.path, dtype=entry.dtype, sizes=entry.sizes, items=items)


def move_table(before: Before, after: Layout, kept: Kept | None) -> tuple[list[NewEntry], TableChange]:
    """A table that stays: its entries under the new plan. kept: of the new kind of optimizer, where that changes."""
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
    before: Before, after: Layout, kept: Kept | None
) -> Iterator[tuple[State, tuple[str | int, ...], State | None]]:
    """Each state that the table will have, its path, and the state that it continues (None: it begins anew)."""
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
    state: State, path: tuple[str | int, ...], source: State | None, before: Before, after: Layout
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
    after: Layout, sibling: Before | None, kept: Kept | None, init: Init | None, seed: int
) -> tuple[list[NewEntry], TableChange]:
    """A new table. sibling: a table of its collection, which shows how the collection's entries are called."""
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


def _scalar(state: State, path: tuple[str | int, ...], after: Layout) -> NewEntry:
    """A number that all parameters of an optimizer share, such as its steps; zero where the checkpoint has none."""
    rank = after.blocks[0].rank
    if state.like is not None:
        return NewEntry(
            path=path, dtype=state.like.dtype, sizes=state.like.sizes, items=untouched(state.like, rank).items
        )
    block = after.blocks[0]
    item = Item(offsets=(), sizes=(), rank=rank, made=Filled(block=block, dim=1))
    return NewEntry(path=path, dtype=state.dtype, sizes=(), items=(item,))


def _zeros(state: State, path: tuple[str | int, ...], after: Layout) -> NewEntry:
    return _entry(path, state.dtype, after, state.shape, filled(after, state.shape, after.dense))


def _entry(
    path: tuple[str | int, ...], dtype: str | None, after: Layout, shape: str, items: list[Item]
) -> NewEntry:  # fmt: skip
    return NewEntry(path=path, dtype=dtype, sizes=sizes_of(after, shape, after.dense), items=tuple(items))


def _change(after: Layout, before: Layout | None, made: list[NewEntry], states: list[StateChange]) -> TableChange:
    return TableChange(
        table=after.table.name, before=before.placement.sharding_type if before else None,
        after=after.placement.sharding_type, bytes=sum(bytes_of(entry) for entry in made), states=tuple(states),
    )  # fmt: skip


def bytes_of(entry: NewEntry | Entry) -> int:
    """Bytes of an entry's numbers; objects count as nothing."""
    return 0 if entry.dtype is None else math.prod(entry.sizes) * DTYPES[entry.dtype]


def stored_bytes(item: Item, dtype: str | None) -> int:
    """Bytes that an item takes in a file, about: numbers and the head of its archive, or those that are copied."""
    if isinstance(item.made, Copy):
        return item.made.chunk.length
    return math.prod(item.sizes) * DTYPES[dtype or ""] + ARCHIVE_HEAD


def siblings(tables: Mapping[str, Before]) -> dict[tuple[str, bool], Before]:
    """One table of each collection (and of each kind, pooled or not, where plans name no collections)."""
    return {(each.layout.table.collection, each.layout.table.pooled): each for each in tables.values()}
