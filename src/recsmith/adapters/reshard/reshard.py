"""Reshards a checkpoint: checks everything first, then writes the new one beside the old, which is only read."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from recsmith._types import Source
from recsmith.adapters.installed import require_torchrec
from recsmith.adapters.reshard.fingerprints import FINGERPRINT, check_fingerprint, write_fingerprint
from recsmith.adapters.reshard.layout import Layout, fingerprint, layouts
from recsmith.adapters.reshard.moves import (
    Before,
    Init,
    NewEntry,
    add_table,
    bytes_of,
    move_table,
    siblings,
    stored_bytes,
    untouched,
)
from recsmith.adapters.reshard.partial import Partial, free_bytes, lock, sync
from recsmith.adapters.reshard.report import Resharded, TableChange
from recsmith.adapters.reshard.states import is_keyed_by_number, kept_by
from recsmith.adapters.reshard.stored import METADATA, Checkpoint, Chunk, read_checkpoint
from recsmith.adapters.reshard.table_entries import EntriesByName
from recsmith.errors import PlanMismatch, RecSmithError, UsageError
from recsmith.files import source_text
from recsmith.plans import Plan, load_plan
from recsmith.units import format_size

PARTIAL = ".partial"
Progress = Callable[[int, int], object]  # bytes done, bytes in all


def reshard(
    checkpoint: Source, old: Plan | Source, new: Plan | Source, output: Source, *,
    init: Init | None = None, seed: int = 0, strict: bool = False, on_progress: Progress | None = None,
) -> Resharded:  # fmt: skip
    """Write the checkpoint of a job that ran under plan `old` as one for a job under plan `new`.

    checkpoint, output: folders of torch.distributed.checkpoint; the first is only read, the second appears when it is
    complete. init: what tables begin with that the new plan adds: 'zeros', or 'uniform' as TorchRec draws them, by
    `seed`. strict: refuse to change any state of an optimizer; without it, row-wise state is replicated where columns
    are split and averaged where they are merged, and the report says of which tables.

    Raises:
        UsageError: an input is missing, the output exists, or `strict` forbids what would be done.
        CorruptFile: the checkpoint is damaged, cut short or foreign.
        PlanMismatch: the checkpoint was not written under `old`, or a table has another shape in `new`.
        RecSmithError: the disk is full, or the output cannot be written; what is done is kept for the next run.
    """
    require_torchrec()
    source, target = Path(source_text(checkpoint, "a folder")), Path(source_text(output, "a folder"))
    before, after = load_plan(old), load_plan(new)
    _check_output(source, target)
    stored = read_checkpoint(source)
    check_fingerprint(source, before)
    entries, changes, rest = _plan_moves(stored, before, after, init, seed)
    _check_strict(changes, strict)
    made = {"checkpoint": stored.digest, "old": fingerprint(before), "new": fingerprint(after), "init": [init, seed]}
    of = hashlib.sha256(json.dumps(made).encode()).hexdigest()
    resumed = _write(stored, entries, target, of, after, on_progress)
    return Resharded(
        output=str(target), tables=tuple(changes), untouched=rest, written_bytes=sum(map(bytes_of, entries)),
        resumed_bytes=resumed, fingerprint=fingerprint(after),
    )  # fmt: skip


def _check_output(source: Path, target: Path) -> None:
    """Refuse an output that exists, or that would lie where it must not."""
    if target.exists() or target.is_symlink():
        raise UsageError(f"cannot write '{target}': it exists; give the path of a new folder")
    if not target.parent.is_dir():
        raise UsageError(f"cannot write '{target}': folder '{target.parent}' does not exist; create it first")
    if source.resolve() in target.resolve().parents:
        raise UsageError(f"cannot write '{target}': it lies inside the checkpoint; give a folder beside it")


def _plan_moves(
    stored: Checkpoint, before: Plan, after: Plan, init: Init | None, seed: int
) -> tuple[list[NewEntry], list[TableChange], int]:
    """All entries of the new checkpoint, what becomes of each table, and how many entries pass through."""
    olds, news = layouts(before), layouts(after)
    _check_plans(before, after, olds, news)
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
    return entries, sorted(changes, key=lambda change: change.table), len(rest)


def _removed(layout: Layout) -> TableChange:
    return TableChange(table=layout.table.name, before=layout.placement.sharding_type, after=None, bytes=0)


def _check_plans(before: Plan, after: Plan, olds: dict[str, Layout], news: dict[str, Layout]) -> None:
    """Refuse plans between which tables cannot be moved."""
    for plan in (before, after):
        if plan.cluster.replication is not None:
            raise UsageError(
                "a plan of a 2D job (sharding groups) cannot be resharded yet; load its checkpoint in a job"
            )
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


def _check_strict(changes: list[TableChange], strict: bool) -> None:
    inexact = [each for each in changes if not each.exact]
    if strict and inexact:
        state = next(state for state in inexact[0].states if state.change != "exact")
        more = f" (and of {len(inexact) - 1} more)" if len(inexact) > 1 else ""
        raise UsageError(
            f"--strict: state '{state.name}' of table '{inexact[0].table}'{more} would be {state.change}; keep the "
            "columns of these tables as they were, or leave --strict out"
        )


def _write(
    stored: Checkpoint, entries: list[NewEntry], target: Path, of: str, after: Plan, on_progress: Progress | None
) -> int:
    """Write the new checkpoint; the bytes that an earlier run had written."""
    partial = Partial(target.with_name(target.name + PARTIAL), of)
    fresh = not partial.folder.exists()
    total = sum(stored_bytes(item, entry.dtype) for entry in entries for item in entry.items)
    if fresh:
        _check_room(total, 0, target)
    try:
        with lock(partial.folder):
            partial.resume()
            resumed = sum(chunk.length for chunk in partial.chunks.values())
            _check_room(total, resumed, target)
            _write_items(stored, entries, partial, total, resumed, on_progress)
            _complete(entries, partial, target, after)
    except OSError as error:
        raise RecSmithError(
            f"cannot write '{target}': {error.strerror or error}; what is done is kept in '{partial.folder}': make "
            "room and run the same command again, or delete it"
        ) from None
    return resumed


def _check_room(total: int, done: int, target: Path) -> None:
    free = free_bytes(target.parent)
    if total - done > free:
        raise UsageError(
            f"cannot write '{target}': it takes {format_size(total - done)}, and its disk has {format_size(free)} "
            "free; make room, or give another output"
        )


def _write_items(
    stored: Checkpoint, entries: list[NewEntry], partial: Partial, total: int, done: int,
    on_progress: Progress | None,
) -> None:  # fmt: skip
    from recsmith.adapters.reshard.items import write_item

    for entry in entries:
        for number, item in enumerate(entry.items):
            if (entry.key, number) in partial.chunks:
                continue
            place = Chunk(offsets=item.offsets, sizes=item.sizes, file=f"__{item.rank}_0.distcp", start=0, length=0)
            partial.add(
                entry.key, number, place,
                lambda file, item=item, entry=entry: write_item(item, entry.dtype, stored.folder, file),
            )  # fmt: skip
            done += stored_bytes(item, entry.dtype)
            if on_progress:
                on_progress(done, total)
    partial.commit()


def _complete(entries: list[NewEntry], partial: Partial, target: Path, after: Plan) -> None:
    from recsmith.adapters.reshard.written_metadata import write_metadata

    write_fingerprint(partial.folder, after)
    sync(partial.folder / FINGERPRINT)
    write_metadata(partial.folder, entries, partial.chunks)
    sync(partial.folder / METADATA)
    if target.exists():
        raise UsageError(f"cannot write '{target}': it appeared meanwhile; the new one is in '{partial.folder}'")
    partial.become(target)
