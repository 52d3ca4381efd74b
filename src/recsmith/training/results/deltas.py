"""The difference between two exported models: changed table rows and layers, so that a copy can follow with few bytes.

`make_delta` compares two exported models and writes what differs in the newer one: of a table, the changed rows; of
anything else, the whole tensor. `apply_deltas` rebuilds the newer model from the older one, bit for bit, which its
digest proves. Rows are compared by their bits, and read and written in blocks, so that no table is held as a whole.

    DELTA/delta.json           what changed, and between which two models (schema recsmith/delta/1)
    DELTA/changed.safetensors  NAME: the changed rows, or a whole tensor; NAME#rows: their numbers, as 32 or 64 bits
    DELTA/files/               the card, and other files of the newer model that the older one lacks
"""

import filecmp
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from recsmith._types import Ints, noun
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Source, decode, dump_json, encode, source_text, write_text
from recsmith.files.nouns import read_raw
from recsmith.files.writable import check_writable, whole_folder
from recsmith.training.job.card import block_digests, fingerprint_of, found_model, weights_digest
from recsmith.training.job.export import (
    TYPE_NAMES,
    WEIGHTS,
    arrays_of,
    make_tensor_file,
    opened_file,
    tensors_in,
)
from recsmith.training.stores.protocol import WholeTensor
from recsmith.units import format_size

SCHEMA = "recsmith/delta/1"
TOLD, CHANGED, FILES, ROWS = "delta.json", "changed.safetensors", "files", "#rows"
BLOCK = 2**26  # bytes of a table that are compared at a time
TYPES = {name: kind for kind, name in TYPE_NAMES.items()}


@noun
class TensorChange:
    """How a tensor changed. shape, dtype: in the newer model. change: none of it, some rows, or all of it."""

    shape: tuple[int, ...]
    dtype: str
    change: Literal["none", "rows", "whole"]
    rows: int = 0


@noun
class Delta:
    """The difference between two exported models.

    base, result: digests of the weights of the older and the newer model. tensors: changes of the newer model's
    tensors, by name. files: other files of the newer model, by path in its folder: whether the older model has the same
    file.
    """

    base: str
    result: str
    tensors: dict[str, TensorChange]
    files: dict[str, bool]

    @property
    def changed_rows(self) -> int:
        """Number of rows in the delta."""
        return sum(each.rows for each in self.tensors.values())


def make_delta(old: Source, new: Source, output: Source, *, force: bool = False) -> Delta:
    """Write what a newer exported model changed from an older one, so that copies of the older one can follow.

    Args:
        old: folder of an exported model, or of the run that produced it.
        new: the same for the newer model.
        output: folder of the delta.
        force: whether an existing delta may be replaced.

    Raises:
        UsageError: there is no model, or the output exists or cannot be written.
        CorruptFile: weights are damaged.
        RecSmithError: the disk is full. Nothing is left in that case.
    """
    before, after, target = found_model(old), found_model(new), Path(source_text(output, "the folder of a delta"))
    _check_target(target, TOLD, force=force)
    there, wanted = _tensors(before), _tensors(after)
    base, result = weights_digest(before), weights_digest(after)
    arrays, newer = arrays_of(before / WEIGHTS, "r"), arrays_of(after / WEIGHTS, "r")
    numbers = {name: _changed_rows(arrays[name], newer[name]) for name in wanted
               if _by_rows(there.get(name), wanted[name])}  # fmt: skip
    changes = {name: _change(there.get(name), whole, numbers.get(name), arrays.get(name), newer[name])
               for name, whole in wanted.items()}  # fmt: skip
    with whole_folder(target) as folder:
        _write_changed(folder / CHANGED, changes, numbers, newer)
        files = dict(_files(before, after, folder / FILES))
        delta = Delta(base=base, result=result, tensors=changes, files=files)
        write_text(str(folder / TOLD), dump_json({"schema": SCHEMA, **encode(delta)}))
    return delta


def apply_deltas(model: Source, deltas: Sequence[Source], output: Source, *, force: bool = False) -> Path:
    """Rebuild the newest model from an older one and the deltas since then: the same files as its export, bit for bit.

    Args:
        model: folder of the exported model that the first delta starts from, or of its run.
        deltas: folders of deltas, the oldest first.
        output: folder of the rebuilt model.
        force: whether an existing model may be replaced.

    Raises:
        UsageError: there is no model or no delta, or the output exists or cannot be written.
        CorruptFile: a delta is of another model, or damaged.
        RecSmithError: the disk is full. Nothing is left in that case.
    """
    base, target = found_model(model), Path(source_text(output, "the folder of a model"))
    folders = [Path(source_text(each, "the folder of a delta")) for each in deltas]
    if not folders:
        raise UsageError("there is no delta to apply; name one at least")
    _check_target(target, WEIGHTS, force=force, kept=(base,))
    described, digest = [_told(each) for each in folders], weights_digest(base)
    for folder, delta in zip(folders, described, strict=True):
        if delta.base != digest:
            raise CorruptFile(
                f"'{folder}' changes the model with digest {delta.base}, and what is there has {digest}; apply deltas "
                "from the oldest on, to the model that the first was made from"
            )
        digest = delta.result
    with whole_folder(target) as made:
        for number, (folder, delta) in enumerate(zip(folders, described, strict=True)):
            step = made / f"{number}"
            _apply(base, folder, delta, step)
            if number:
                shutil.rmtree(base)
            base = step
        found = fingerprint_of(block_digests(base))
        if found != digest:
            raise CorruptFile(f"'{folders[-1]}' is damaged: it makes a model with digest {found}, not {digest}")
        for each in base.iterdir():
            each.rename(made / each.name)
        base.rmdir()
    return target


def size_of(folder: Source) -> str:
    """The bytes of a delta, or of an exported model, in words."""
    path = Path(source_text(folder, "a folder"))
    path = path if (path / TOLD).is_file() else found_model(path)
    return format_size(sum(each.stat().st_size for each in path.rglob("*") if each.is_file()))


def _tensors(model: Path) -> dict[str, WholeTensor]:
    with opened_file(model / WEIGHTS) as opened:
        return tensors_in(opened)


def _by_rows(before: WholeTensor | None, after: WholeTensor) -> bool:
    """Whether two tensors can be compared row by row: matrices with the same columns and element type."""
    if before is None or len(before.shape) != 2 or len(after.shape) != 2:
        return False
    return before.dtype == after.dtype and before.shape[1] == after.shape[1] > 0


def _changed_rows(before: Any, after: Any) -> Ints:
    """Numbers of the rows of a newer table that the older one lacks, or has with other bits."""
    shared = min(len(before), len(after))
    size = max(1, BLOCK // max(1, after[:1].nbytes))
    found = [np.arange(shared, len(after))]
    for first in range(0, shared, size):
        last = min(first + size, shared)
        same = _bits(before[first:last]) == _bits(after[first:last])
        found.append(first + np.flatnonzero(~same.all(axis=1)))
    return np.sort(np.concatenate(found))


def _bits(rows: Any) -> Any:
    """The bytes of rows (rows, bytes): -0 differs from 0, and NaN equals itself."""
    return np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)


def _change(before: WholeTensor | None, after: WholeTensor, rows: Ints | None, old: Any, new: Any) -> TensorChange:
    """How a tensor changed. rows: numbers of the changed rows, for a table. old, new: its values."""
    change: Literal["none", "rows", "whole"] = "whole"
    if before == after and (not len(rows) if rows is not None else old.tobytes() == new.tobytes()):
        change = "none"
    elif rows is not None and before is not None:
        change = "rows"
    count = len(rows) if change == "rows" and rows is not None else 0
    return TensorChange(shape=after.shape, dtype=TYPE_NAMES[after.dtype], change=change, rows=count)


def _write_changed(
    file: Path, changes: Mapping[str, TensorChange], numbers: Mapping[str, Ints], newer: Mapping[str, Any]
) -> None:
    make_tensor_file(file, _entries(changes))
    arrays = arrays_of(file)
    for name, change in changes.items():
        if change.change == "whole":
            arrays[name][...] = newer[name]
        elif change.change == "rows":
            arrays[f"{name}{ROWS}"][:] = numbers[name]
            for part in _parts(numbers[name], newer[name]):
                arrays[name][part] = newer[name][numbers[name][part]]


def _entries(changes: Mapping[str, TensorChange]) -> dict[str, WholeTensor]:
    """The tensors in the file of changes."""
    made: dict[str, WholeTensor] = {}
    for name, each in changes.items():
        if each.change == "whole":
            made[name] = WholeTensor(TYPES[each.dtype], each.shape)
        elif each.change == "rows":
            small = each.shape[0] <= np.iinfo(np.int32).max
            made[name] = WholeTensor(TYPES[each.dtype], (each.rows, *each.shape[1:]))
            made[f"{name}{ROWS}"] = WholeTensor(torch.int32 if small else torch.int64, (each.rows,))
    return made


def _parts(rows: Any, table: Any) -> Iterator[slice]:
    """Slices of row numbers, in blocks."""
    size = max(1, BLOCK // max(1, table[:1].nbytes))
    return (slice(first, first + size) for first in range(0, len(rows), size))


def _files(before: Path, after: Path, kept: Path) -> Iterator[tuple[str, bool]]:
    """(file of a model other than its weights, whether the older model has the same); others are copied to `kept`."""
    for path in sorted(each for each in after.rglob("*") if each.is_file() and each != after / WEIGHTS):
        name = path.relative_to(after)
        same = (before / name).is_file() and filecmp.cmp(before / name, path, shallow=False)
        if not same:
            (kept / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, kept / name)
        yield name.as_posix(), same


def _told(folder: Path) -> Delta:
    """The content of delta.json; CorruptFile if it is not a delta, or its tensors are not those that it names."""
    file = str(folder / TOLD)
    delta = decode(Delta, read_raw(file, SCHEMA), file)
    odd = next((name for name in delta.files if Path(name).is_absolute() or ".." in Path(name).parts), None)
    if odd is not None:
        raise CorruptFile(f"'{file}' names a file '{odd}' outside of the model; make the delta again")
    if odd := next((each.dtype for each in delta.tensors.values() if each.dtype not in TYPES), None):
        raise CorruptFile(f"'{file}' names element type '{odd}'; known: {', '.join(TYPES)}; make the delta again")
    with opened_file(folder / CHANGED, "make the delta again") as opened:
        there = tensors_in(opened)
    if there != _entries(delta.tensors):
        raise CorruptFile(f"'{folder / CHANGED}' holds other tensors than '{file}' names; make the delta again")
    return delta


def _apply(base: Path, folder: Path, delta: Delta, target: Path) -> None:
    """Write the model that results from applying a delta to another model."""
    target.mkdir()
    make_tensor_file(
        target / WEIGHTS, {name: WholeTensor(TYPES[each.dtype], each.shape) for name, each in delta.tensors.items()}
    )
    made, before = arrays_of(target / WEIGHTS), arrays_of(base / WEIGHTS, "r")
    changed = arrays_of(folder / CHANGED, "r")
    for name, each in delta.tensors.items():
        if each.change == "whole":
            made[name][...] = changed[name]
            continue
        if name not in before or before[name].shape[1:] != made[name].shape[1:]:
            raise CorruptFile(f"'{folder / TOLD}' changes rows of '{name}', which is another tensor in '{base}'")
        shared = min(len(before[name]), len(made[name]))
        for part in _parts(range(shared), before[name]):
            made[name][part.start : min(part.stop, shared)] = before[name][part.start : min(part.stop, shared)]
        if each.change == "rows":
            rows = changed[f"{name}{ROWS}"]
            if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(made[name]):
                raise CorruptFile(f"'{folder / CHANGED}' names rows that '{name}' does not have; make the delta again")
            for part in _parts(rows, made[name]):
                made[name][rows[part]] = changed[name][part]
    for name, same in delta.files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile((base if same else folder / FILES) / name, target / name)


def _check_target(target: Path, holds: str, *, force: bool, kept: Sequence[Path] = ()) -> None:
    """UsageError if an output is an input, cannot be written, or exists and may not be replaced."""
    if any(target.resolve() == each.resolve() for each in kept):
        raise UsageError(f"'{target}' is the model itself, which stays as it is; give another output")
    check_writable(target)
    if target.exists() and not (force and (target / holds).is_file()):
        add = ", or --force" if (target / holds).is_file() else ""
        raise UsageError(f"'{target}' is there; give another output{add}")
