"""What is wrong with the files of a dataset, all of it and counted."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recsmith._types import noun
from recsmith.data.parquet.arrow import ColumnFile, pyarrow
from recsmith.data.parquet.columns import ids_outside
from recsmith.data.parquet.manifest import read_manifest
from recsmith.data.parquet.maps import flattened
from recsmith.data.parquet.spec import ParquetFeature
from recsmith.errors import CorruptFile
from recsmith.files import did_you_mean

MOST_NAMES = 8  # columns that one line names


@noun
class Fault:
    """What is wrong with a file, how many rows, columns or ids it concerns, and whether it keeps it from being read."""

    file: str
    fault: str
    count: int = 1
    breaks: bool = True


def merged(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """Faults with those of the same file and words counted together."""
    counts = Counter[tuple[str, str, bool]]()
    for each in faults:
        counts[each.file, each.fault, each.breaks] += each.count
    return tuple(
        Fault(file=file, fault=fault, count=count, breaks=breaks) for (file, fault, breaks), count in counts.items()
    )


def opened(paths: Sequence[Path]) -> tuple[list[ColumnFile], list[Fault]]:
    """(the files that can be opened, what is wrong with the others)."""
    files: list[ColumnFile] = []
    faults: list[Fault] = []
    for path in paths:
        try:
            files.append(ColumnFile(path))
        except CorruptFile as error:
            faults.append(Fault(file=str(path), fault=without_path(error, path)))
    return files, faults


def column_faults(files: Sequence[ColumnFile], wanted: Sequence[str]) -> list[Fault]:
    """Missing columns, ones that other files do not have, and types that are not those of the first file."""
    faults: list[Fault] = []
    known = dict(zip(files[0].schema.names, files[0].schema.types, strict=True)) if files else {}
    for file in files:
        there = dict(zip(file.schema.names, file.schema.types, strict=True))
        missing = [name for name in wanted if name not in there]
        if missing:
            hint = did_you_mean(missing[0], list(there)) if len(missing) == 1 else ""
            faults.append(_fault(file, f"has no {_columns(missing)}{hint}", len(missing)))
        left = [name for name in known if name not in there and name not in wanted]
        extra = [name for name in there if name not in known]
        changed = [name for name in wanted if name in there and name in known and there[name] != known[name]]
        faults += [_fault(file, f"lacks {_columns(left)}, which the first file has", len(left), False)] if left else []
        faults += [_fault(file, f"has {_columns(extra)} more than the first file", len(extra), False)] if extra else []
        for name in changed:
            words = f"column '{name}' holds {there[name]}, and {known[name]} in '{files[0].path.name}'"
            faults.append(_fault(file, words, 1, _family(there[name]) != _family(known[name])))
    return faults


def manifest_faults(folder: Path) -> list[Fault]:
    """Where the files of a folder are not those that its manifest lists; none for a folder without a manifest."""
    manifest = read_manifest(folder)
    if manifest is None:
        return []
    faults: list[Fault] = []
    for part in manifest.parts:
        path = folder / part.name
        size = path.stat().st_size if path.is_file() else None
        if size is None:
            faults.append(
                Fault(file=str(path), fault="is missing, and the manifest lists its samples", count=part.samples)
            )
        elif size != part.bytes:
            faults.append(Fault(file=str(path), fault=f"has {size:,} bytes, and {part.bytes:,} in the manifest"))
    listed = {part.name for part in manifest.parts}
    extra = sorted(path for path in folder.glob("*.parquet") if path.name not in listed and path.name[0] not in "._")
    return faults + [Fault(file=str(path), fault="is not in the manifest", breaks=False) for path in extra]


def part_faults(table: Any, features: Sequence[ParquetFeature], path: Path, error: CorruptFile) -> list[Fault]:
    """Why a part that was read cannot be used: ids outside their tables, counted, or else what the error says."""
    found: list[Fault] = []
    try:
        taken_apart = flattened(table, features, "")
        for each in features:
            column = taken_apart[each.column or ""] if each.key else table
            found += _id_faults(each, ids_outside(column, each, ""), path)
    except CorruptFile:
        found = []
    return found or [Fault(file=str(path), fault=without_path(error, path), count=table.num_rows)]


def _id_faults(feature: ParquetFeature, outside: tuple[int, int], path: Path) -> list[Fault]:
    rows = feature.num_embeddings
    words = (
        f"feature '{feature.name}' has negative ids; leave them out, or give `ids: modulo`",
        f"feature '{feature.name}' has ids of {rows:,} and more, and its table has {rows:,} rows; give a larger "
        "num_embeddings, or `ids: modulo`",
    )
    return [Fault(file=str(path), fault=each, count=count) for each, count in zip(words, outside, strict=True) if count]


def _fault(file: ColumnFile, words: str, count: int, breaks: bool = True) -> Fault:
    return Fault(file=str(file.path), fault=words, count=count, breaks=breaks)


def _columns(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:MOST_NAMES])
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"column{'s' if len(names) > 1 else ''} {shown}{more}"


def _family(kind: Any) -> str:
    """What readers may take for the same: numbers of any kind, and lists of them; reading says whether they can."""
    types = pyarrow().types
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _family(kind.value_type)
    return "numbers" if types.is_integer(kind) or types.is_floating(kind) else str(kind)


def without_path(error: Exception, path: Path) -> str:
    """What an error says of a file, without its path."""
    return str(error).removeprefix(f"'{path}'").lstrip(": ")
