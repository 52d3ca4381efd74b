"""The folder that a dataset is written to, and how its files are laid out; a stopped command goes on."""

import os
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recsmith._types import noun, record
from recsmith.data.arrow import pyarrow
from recsmith.data.batch import DataSchema
from recsmith.data.parquet.write import (
    Conversion,
    Manifest,
    PartFile,
    parquet_writer,
    read_conversion,
    read_manifest,
    save_conversion,
    save_manifest,
)
from recsmith.errors import CorruptFile, RecSmithError, UsageError, check_rules, too_small
from recsmith.files import did_you_mean, in_order, locked_folder, parse, read_text
from recsmith.files.writable import check_writable

GROUP_SAMPLES = 2**15  # of a row group: what a reader keeps a few of
FILE_SAMPLES = 2**20  # of a file
LEAST_GROUP_BYTES = 2**16
RUNS = "_runs"  # the folder of what is put into buckets, until the dataset is finished


@noun
class FileLayout:
    """Row groups of group_samples rows, or of group_bytes of unpacked columns where those are given.

    popular: features whose columns come first, the most read one first; the others keep their order behind them.
    """

    group_samples: int = GROUP_SAMPLES
    group_bytes: int | None = None
    file_samples: int = FILE_SAMPLES
    popular: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_rules(
            too_small("group_samples", self.group_samples, 1),
            too_small("file_samples", self.file_samples, 1),
            too_small("group_bytes", self.group_bytes, LEAST_GROUP_BYTES),
        )

    def group_rows(self, rows: int, unpacked: int) -> int:
        """Rows of a row group of a table that has so many rows and unpacked bytes."""
        if self.group_bytes is None or not rows:
            return self.group_samples
        return max(1, self.group_bytes * rows // max(unpacked, 1))

    def features(self, schema: DataSchema) -> list[str]:
        """The features of a schema in the order of their columns; UsageError for a popular one that it has not."""
        known = schema.feature_names
        unknown = next((name for name in self.popular if name not in known), None)
        if unknown is not None:
            raise UsageError(f"no feature is called '{unknown}'{did_you_mean(unknown, list(known))}")
        return list(dict.fromkeys([*self.popular, *known]))


def read_popularity(source: str) -> tuple[str, ...]:
    """Features, the most read one first, from a YAML or JSON file that says of each how many jobs read it.

    Raises:
        CorruptFile: it does not hold numbers by name.
    """
    raw = parse(read_text(source), source)
    wrong = [name for name, count in raw.items() if isinstance(count, bool) or not isinstance(count, int | float)]
    if wrong or not raw:
        raise CorruptFile(f"'{source}' must say of each feature how many jobs read it, such as `user: 12`")
    return by_count(Path(source).name, list(raw), [float(count) for count in raw.values()])


def by_count(source: str, names: Sequence[str], counts: Sequence[float]) -> tuple[str, ...]:
    """Names by falling counts, equal ones in their order; CorruptFile for a negative count."""
    if any(not 0 <= count < float("inf") for count in counts):
        raise CorruptFile(f"'{source}' holds a count that is negative or no number; jobs are counted from 0")
    order = sorted(range(len(names)), key=lambda at: -counts[at])
    return tuple(names[at] for at in order)


@record
class ConversionProgress:
    """How far a command is: what it does, and how many of the samples it has done."""

    doing: str
    done: int
    total: int


OnProgress = Callable[[ConversionProgress], None]


def finished(folder: Path, conversion: Conversion) -> Manifest | None:
    """The manifest of a folder that the same command has finished, as one that was killed after its last write has."""
    if not folder.is_dir() or read_conversion(folder) is not None:
        return None
    manifest = read_manifest(folder)
    if manifest is None or manifest.digest != conversion.digest:
        return None
    there = {path.name: path.stat().st_size for path in folder.glob("part-*.parquet")}
    return manifest if there == {part.name: part.bytes for part in manifest.parts} else None


@contextmanager
def opened_folder(folder: Path, conversion: Conversion) -> Generator[Conversion]:
    """The folder for this process alone, and the conversion that goes on in it: as `begin` says.

    Raises:
        UsageError: another process writes to it, it cannot be made, or as `begin` raises.
    """
    if folder.is_file():
        raise UsageError(f"cannot write '{folder}': a file is there; give a new folder, or remove it first")
    check_writable(folder)
    with locked_folder(folder):
        yield begin(folder, conversion)[0]


def begin(folder: Path, conversion: Conversion) -> tuple[Conversion, bool]:
    """(the folder's conversion, whether it was begun before); what is unfinished goes on with its own.

    Raises:
        UsageError: something else is there, or what is unfinished has another source or other options.
    """
    found = read_conversion(folder) if folder.is_dir() else None
    if found is not None:
        if found.digest != conversion.digest:
            raise UsageError(
                f"'{folder}' is unfinished, and was begun from other data or with other options; give those, or "
                "remove the folder"
            )
        return found, True
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"cannot write '{folder}': something is there; give a new folder, or remove it first")
    save_conversion(folder, conversion)
    return conversion, False


def write_part(path: Path, tables: Iterable[Any], layout: FileLayout, schema: Any) -> None:
    """Write tables as a Parquet file in row groups of the layout's size; it appears whole, or not at all.

    schema: of its columns, where there are no rows. Raises RecSmithError where the disk is full, or refuses.
    """
    temporary, writer = path.with_name(f".{path.name}"), None
    try:
        for table in grouped(tables, layout):
            writer = writer or parquet_writer(temporary, table.schema)
            writer.write_table(table, row_group_size=table.num_rows)
        writer = writer or parquet_writer(temporary, schema)
        writer.close()
        make_last(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RecSmithError(
            f"cannot write '{path}': {error.strerror or error}; finished files stay, so free some space and give the "
            "same command once more"
        ) from None


def make_last(temporary: Path, path: Path) -> None:
    """Give a file its name once all of it is on the disk."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)


def grouped(tables: Iterable[Any], layout: FileLayout) -> Iterator[Any]:
    """The rows of tables, in tables of one row group each; only the last may be smaller."""
    arrow = pyarrow()
    held: Any = None
    rows = 0
    for table in tables:
        held = table if held is None else arrow.concat_tables([held, table])
        rows = rows or layout.group_rows(held.num_rows, held.nbytes)
        while held.num_rows >= rows > 0:
            yield held.slice(0, rows).combine_chunks()
            held = held.slice(rows)
    if held is not None and held.num_rows:
        yield held.combine_chunks()


def finish(folder: Path, conversion: Conversion, rows: int, session: str | None) -> Manifest:
    """Write the manifest of what is in the folder, and remove what only the work needed. rows: of the source."""
    parts = tuple(_part(path) for path in in_order(folder.glob("part-*.parquet")))
    corrupt = rows - sum(part.samples for part in parts)
    manifest = Manifest(parts=parts, corrupt=corrupt, session=session, digest=conversion.digest)
    if rows and not manifest.samples:
        shutil.rmtree(folder)
        raise CorruptFile(f"none of {rows:,} samples can be read, nothing is written; `recsmith data check` says why")
    shutil.rmtree(folder / RUNS, ignore_errors=True)
    for left in folder.glob(".part-*"):
        left.unlink(missing_ok=True)
    save_manifest(folder, manifest)
    return manifest


def _part(path: Path) -> PartFile:
    arrow = pyarrow()
    try:
        found = arrow.parquet.read_metadata(path)
    except (arrow.ArrowException, OSError) as error:
        raise CorruptFile(f"'{path}' cannot be read ({error}); remove it, and give the same command again") from None
    return PartFile(name=path.name, samples=found.num_rows, row_groups=found.num_row_groups, bytes=path.stat().st_size)
