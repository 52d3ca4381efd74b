"""Reshards a checkpoint: checks everything first, then writes the new checkpoint; the old one is only read."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from recsmith._types import Source
from recsmith.adapters.checkpoints import METADATA, Checkpoint, Chunk, read_checkpoint
from recsmith.adapters.installed import require_torchrec
from recsmith.adapters.reshard import Resharded, ReshardProgress, TableChange
from recsmith.adapters.reshard.collisions import check_collisions
from recsmith.adapters.reshard.layout import FINGERPRINT, check_fingerprint, fingerprint, layouts, write_fingerprint
from recsmith.adapters.reshard.moves import Init, NewEntry, bytes_of, plan_moves, stored_bytes
from recsmith.adapters.reshard.partial import Partial, free_bytes, lock, sync
from recsmith.errors import RecSmithError, UsageError
from recsmith.files import source_text
from recsmith.files.writable import check_writable
from recsmith.plans import Plan, load_plan
from recsmith.units import format_size

PARTIAL = ".partial"
Progress = Callable[[ReshardProgress], object]


def reshard(
    checkpoint: Source, old: Plan | Source, new: Plan | Source, output: Source, *,
    init: Init | None = None, seed: int = 0, strict: bool = False, on_progress: Progress | None = None,
) -> Resharded:  # fmt: skip
    """Write the checkpoint of a job that ran under plan `old` as one for a job under plan `new`.

    Args:
        checkpoint: folder of torch.distributed.checkpoint, or of a step that `recsmith train` saved; it is only read.
        old: the plan under which the checkpoint was written, or its file.
        new: the plan of the new checkpoint, or its file.
        output: the new folder; it appears when it is complete.
        init: initial weights of tables that only the new plan has: 'zeros', or 'uniform' in TorchRec's range.
        seed: seed of the uniform weights.
        strict: refuse to change any optimizer state. Otherwise row-wise state is replicated if columns are split and
            averaged if they are merged, and the report lists these tables.
        on_progress: called with the bytes written so far.

    Raises:
        UsageError: an input is missing, the output exists, or `strict` forbids a change.
        CorruptFile: the checkpoint is damaged, cut short or in another format.
        PlanMismatch: the checkpoint was not written under `old`, a table has another shape in `new`, or managed
            collisions cannot be split at its row blocks.
        RecSmithError: the disk is full, or the output cannot be written; the finished part is kept for the next run.
    """
    require_torchrec()
    source, target = Path(source_text(checkpoint, "a folder")), Path(source_text(output, "a folder"))
    before, after = load_plan(old), load_plan(new)
    source = _state_of(source)
    _check_output(source, target)
    stored = read_checkpoint(source)
    check_fingerprint(source, before)
    entries, changes, rest = plan_moves(stored, before, after, init, seed)
    _check_strict(changes, strict)
    check_collisions(stored, layouts(after))
    made = {"checkpoint": stored.digest, "old": fingerprint(before), "new": fingerprint(after), "init": [init, seed]}
    of = hashlib.sha256(json.dumps(made).encode()).hexdigest()
    resumed = _write(stored, entries, target, of, after, on_progress)
    return Resharded(
        output=str(target), tables=tuple(changes), untouched=rest, written_bytes=sum(map(bytes_of, entries)),
        resumed_bytes=resumed, fingerprint=fingerprint(after),
    )  # fmt: skip


def _state_of(folder: Path) -> Path:
    """The folder of tensors (step-N/state) in a checkpoint that `recsmith train` wrote; any other folder unchanged."""
    state = folder / "state"
    return state if not (folder / METADATA).exists() and (state / METADATA).is_file() else folder


def _check_output(source: Path, target: Path) -> None:
    """Refuse an output that exists, is inside the checkpoint, or cannot be written."""
    if target.exists() or target.is_symlink():
        raise UsageError(f"cannot write '{target}': it exists; give the path of a new folder")
    if source.resolve() in target.resolve().parents:
        raise UsageError(f"cannot write '{target}': it lies inside the checkpoint; give a folder beside it")
    check_writable(target)


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
    """Write the new checkpoint; returns the number of bytes that an earlier run had written."""
    partial = Partial(target.with_name(target.name + PARTIAL), of)
    fresh = not partial.folder.exists()
    total = sum(stored_bytes(item, entry.dtype) for entry in entries for item in entry.items)
    target.parent.mkdir(parents=True, exist_ok=True)
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
    from recsmith.adapters.reshard.writing import write_item

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
                on_progress(ReshardProgress(done=done, total=total))
    partial.commit()


def _complete(entries: list[NewEntry], partial: Partial, target: Path, after: Plan) -> None:
    from recsmith.adapters.reshard.writing import write_metadata

    write_fingerprint(partial.folder, after)
    sync(partial.folder / FINGERPRINT)
    write_metadata(partial.folder, entries, partial.chunks)
    sync(partial.folder / METADATA)
    if target.exists():
        raise UsageError(f"cannot write '{target}': it appeared meanwhile; the new one is in '{partial.folder}'")
    partial.become(target)
