"""Reads datasets from end to end, and reports and counts everything that is wrong with them and their files."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsmith._types import noun
from recsmith.data.arrow import pyarrow
from recsmith.data.columns.arrays import UNCOUNTED, flattened, ids_outside
from recsmith.data.columns.features import ColumnFeature
from recsmith.data.columns.samples import columns_of
from recsmith.data.dataset import Dataset, DataSpec, TransformedSpec, open_dataset
from recsmith.data.parquet.arrow import ColumnFile, column_files
from recsmith.data.parquet.source import ParquetSource, written_spec
from recsmith.data.parquet.spec import ParquetSpec
from recsmith.data.parquet.write import read_manifest
from recsmith.errors import CorruptFile
from recsmith.files import AnyPath, did_you_mean, in_order

MOST_NAMES = 8  # column names in one line of a report
MOST_CORRUPT_SHOWN = 3  # descriptions of corrupt samples that are kept
Progress = Callable[[int], None]


@noun
class Fault:
    """A fault of a file, how many rows, columns or ids have it, and whether it prevents reading the file (`breaks`)."""

    file: str
    fault: str
    count: int = 1
    breaks: bool = True


def merged(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """The faults, where equal faults of the same file are merged and their counts added."""
    counts = Counter[tuple[str, str, bool]]()
    for each in faults:
        counts[each.file, each.fault, each.breaks] += each.count
    return tuple(
        Fault(file=file, fault=fault, count=count, breaks=breaks) for (file, fault, breaks), count in counts.items()
    )


def opened(paths: Sequence[AnyPath]) -> tuple[list[ColumnFile], list[Fault]]:
    """(the files that can be opened, faults of those that cannot)."""
    files: list[ColumnFile] = []
    faults: list[Fault] = []
    for path in paths:
        try:
            files.append(ColumnFile(path))
        except CorruptFile as error:
            faults.append(Fault(file=str(path), fault=without_path(error, path)))
    return files, faults


def column_faults(files: Sequence[ColumnFile], wanted: Sequence[str], may_lack: Sequence[str] = ()) -> list[Fault]:
    """Faults of columns: wanted ones that are missing, and columns and types that differ from the first file's.

    may_lack: wanted columns that a file may lack without a fault.
    """
    faults: list[Fault] = []
    known = dict(zip(files[0].names, files[0].schema.types, strict=True)) if files else {}
    for file in files:
        there = dict(zip(file.names, file.schema.types, strict=True))
        missing = [name for name in wanted if name not in (*there, *may_lack)]
        if missing:
            hint = did_you_mean(missing[0], list(there)) if len(missing) == 1 else ""
            faults.append(_fault(file, f"has no {_columns(missing)}{hint}", len(missing)))
        left = [name for name in known if name not in (*there, *missing)]
        extra = [name for name in there if name not in known]
        changed = [name for name in wanted if name in there and name in known and there[name] != known[name]]
        faults += [_fault(file, f"lacks {_columns(left)}, which the first file has", len(left), False)] if left else []
        faults += [_fault(file, f"has {_columns(extra)} more than the first file", len(extra), False)] if extra else []
        for name in changed:
            changed_type = f"column '{name}' holds {there[name]}, and {known[name]} in the first file"
            families = {_family(there[name]), _family(known[name])}
            if "null" not in families:  # the type of a column of nulls alone is unknown
                faults.append(_fault(file, changed_type, 1, len(families) > 1))
    return faults


def manifest_faults(folder: Path) -> list[Fault]:
    """Differences between a folder's files and its manifest; none if the folder has no manifest."""
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
    extra = in_order(path for path in folder.glob("*.parquet") if path.name not in listed and path.name[0] not in "._")
    return faults + [Fault(file=str(path), fault="is not in the manifest", breaks=False) for path in extra]


def block_faults(source: ParquetSource, block: int, error: CorruptFile) -> list[Fault]:
    """Why a block cannot be used: the file is damaged, ids are outside their tables, or else the text of the error."""
    file, part = source.parts[block]
    path, found = file.path, list[Fault]()
    try:
        table = file.read(part, columns_of(source.spec, source.spec.sample_id))
    except CorruptFile as damage:
        return [Fault(file=str(path), fault=without_path(damage, path), count=file.sizes[part])]
    try:
        taken_apart = flattened(table, source.spec.features, "")
        for each in source.spec.features:
            column = taken_apart[each.column or ""] if each.key else table
            found += _id_faults(each, ids_outside(column, each, ""), path)
    except CorruptFile:
        found = []
    return found or [Fault(file=str(path), fault=without_path(error, path), count=table.num_rows)]


def _id_faults(feature: ColumnFeature, outside: tuple[int, int], path: AnyPath) -> list[Fault]:
    rows = feature.num_embeddings or UNCOUNTED
    kinds = (
        f"feature '{feature.name}' has negative ids; leave them out, or give `ids: modulo`",
        f"feature '{feature.name}' has ids of {rows:,} and more, and its table has {rows:,} rows; give a larger "
        "num_embeddings, or `ids: modulo`",
    )
    return [Fault(file=str(path), fault=each, count=count) for each, count in zip(kinds, outside, strict=True) if count]


def _values(path: str, cause: str, count: int) -> Fault:
    return Fault(file=path, fault=f"holds {cause}", count=count, breaks=False)


def _fault(file: ColumnFile, fault: str, count: int, breaks: bool = True) -> Fault:
    return Fault(file=str(file.path), fault=fault, count=count, breaks=breaks)


def _columns(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:MOST_NAMES])
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"column{'s' if len(names) > 1 else ''} {shown}{more}"


def _family(kind: Any) -> str:
    """The family of a type: numbers, times, text, or the type itself; types of one family may be read as each other."""
    types = pyarrow().types
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _family(kind.value_type)
    if types.is_dictionary(kind):
        return _family(kind.value_type)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        return "numbers"
    if types.is_timestamp(kind) or types.is_date(kind):
        return "times"
    return "text" if types.is_string(kind) or types.is_large_string(kind) else str(kind)


def without_path(error: Exception, path: AnyPath) -> str:
    """The text of an error about a file, without the leading path."""
    return str(error).removeprefix(f"'{path}'").lstrip(": ")


@noun
class DataCheck:
    """What reading a dataset from end to end found: samples, corrupt ones with some descriptions, its largest block.

    allowed: corrupt samples that a rank skips before training stops. faults: of files; training can read the files
    unless a fault `breaks` them.
    """

    samples: int
    corrupt: int
    allowed: int
    examples: tuple[str, ...]
    blocks: int
    largest_block: int
    faults: tuple[Fault, ...] = ()

    @property
    def problem(self) -> str | None:
        """Why training could not read the data; None if it can."""
        broken = next((each for each in self.faults if each.breaks), None)
        if broken is not None:
            return f"'{broken.file}' {broken.fault}"
        if not self.samples:
            return "no sample could be read: " + (self.examples[0] if self.examples else "the data holds none")
        if self.corrupt > self.allowed:
            return f"{self.corrupt:,} samples are corrupt, more than max_corrupt: {self.allowed:,} allows"
        return None


def check_spec(spec: DataSpec, on_progress: Progress = lambda _: None) -> DataCheck:
    """Check the data of a spec. Parquet and Arrow files are checked one by one, so that all damaged files are reported.

    Raises:
        UsageError: a file or folder does not exist.
        CorruptFile: data of another format is damaged.
    """
    if isinstance(spec, TransformedSpec):
        before = check_spec(spec.data, on_progress)
        usable = not any(each.breaks for each in before.faults)
        if not usable:
            return before
        found, known = check_data(open_dataset(spec), on_progress), {each.fault for each in before.faults}
        return replace(found, faults=(*before.faults, *(each for each in found.faults if each.fault not in known)))
    if not isinstance(spec, ParquetSpec):
        return check_data(open_dataset(spec), on_progress)
    files, faults = opened(column_files(spec.paths))
    described = spec if spec.features or not files else written_spec(spec, files[0])
    faults += column_faults(files, columns_of(described, described.sample_id), described.missing_columns)
    faults += [each for path in spec.paths if Path(path).is_dir() for each in manifest_faults(Path(path))]
    broken = {each.file for each in faults if each.breaks}
    good = tuple(str(file.path) for file in files if str(file.path) not in broken)
    if not good:
        return _nothing(spec, faults)
    found = check_data(open_dataset(replace(described, paths=good)), on_progress)
    return replace(found, faults=merged([*faults, *found.faults]))


def check_data(dataset: Dataset, on_progress: Progress = lambda _: None) -> DataCheck:
    """Read a dataset from end to end and count corrupt samples, without a limit, and faults of Parquet files.

    Raises:
        CorruptFile: data of another format is damaged.
    """
    examples: list[str] = []
    faults: list[Fault] = []
    good = corrupt = 0
    source, sizes = dataset.source, dataset.source.sizes()
    for number in range(len(sizes)):
        try:
            block = source.read(number)
        except CorruptFile as error:
            if not isinstance(source, ParquetSource):
                raise
            faults += block_faults(source, number, error)
            continue
        good, corrupt = good + len(block.samples) - block.corrupt, corrupt + block.corrupt
        if block.corrupt and len(examples) < MOST_CORRUPT_SHOWN:
            examples.append(block.first_corrupt)
        path = str(source.parts[number][0].path) if isinstance(source, ParquetSource) else "the data"
        faults += [_values(path, cause, count) for cause, count in block.causes.items()]
        on_progress(good)
    return DataCheck(
        samples=good,
        corrupt=corrupt,
        allowed=source.max_corrupt,
        examples=tuple(examples),
        blocks=len(sizes),
        largest_block=int(sizes.max(initial=0)),
        faults=merged(faults),
    )


def _nothing(spec: ParquetSpec, faults: list[Fault]) -> DataCheck:
    return DataCheck(
        samples=0, corrupt=0, allowed=spec.max_corrupt, examples=(), blocks=0, largest_block=0, faults=merged(faults)
    )
