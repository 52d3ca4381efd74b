"""The folder that a dataset is written to, and the layout of its files; a stopped command can resume."""

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

GROUP_SAMPLES = 2**15  # samples in a row group; a reader keeps a few row groups in memory
FILE_SAMPLES = 2**20  # samples in a file
LEAST_GROUP_BYTES = 2**16  # smallest allowed group_bytes
RUNS = "_runs"  # subfolder of the bucketed runs until the dataset is finished


@noun
class FileLayout:
    """Row groups of group_samples rows, or of group_bytes of unpacked columns if these are given.

    popular: features whose columns are written first, the most read one first; all other features follow in their
    order.
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
        """Rows per row group of a table with `rows` rows and `unpacked` bytes."""
        if self.group_bytes is None or not rows:
            return self.group_samples
        return max(1, self.group_bytes * rows // max(unpacked, 1))

    def features(self, schema: DataSchema) -> list[str]:
        """The features of a schema in column order; UsageError if a popular feature is not in the schema."""
        known = schema.feature_names
        unknown = next((name for name in self.popular if name not in known), None)
        if unknown is not None:
            raise UsageError(f"no feature is called '{unknown}'{did_you_mean(unknown, list(known))}")
        return list(dict.fromkeys([*self.popular, *known]))


def read_popularity(source: str) -> tuple[str, ...]:
    """Features, the most read one first, from a YAML or JSON file with the number of jobs that read each feature.

    Raises:
        CorruptFile: the file is no mapping from names to numbers.
    """
    raw = parse(read_text(source), source)
    wrong = [name for name, count in raw.items() if isinstance(count, bool) or not isinstance(count, int | float)]
    if wrong or not raw:
        raise CorruptFile(f"'{source}' must say of each feature how many jobs read it, such as `user: 12`")
    return by_count(Path(source).name, list(raw), [float(count) for count in raw.values()])


def by_count(source: str, names: Sequence[str], counts: Sequence[float]) -> tuple[str, ...]:
    """Names in order of falling counts; names of equal counts keep their order. CorruptFile for a negative count."""
    if any(not 0 <= count < float("inf") for count in counts):
        raise CorruptFile(f"'{source}' holds a count that is negative or no number; jobs are counted from 0")
    order = sorted(range(len(names)), key=lambda at: -counts[at])
    return tuple(names[at] for at in order)


@record
class ConversionProgress:
    """Progress of a command: its current phase, and how many of all samples are done."""

    doing: str
    done: int
    total: int


OnProgress = Callable[[ConversionProgress], None]


def finished(folder: Path, conversion: Conversion) -> Manifest | None:
    """The manifest if the same command has already finished this folder and all its files are there; else None."""
    if not folder.is_dir() or read_conversion(folder) is not None:
        return None
    manifest = read_manifest(folder)
    if manifest is None or manifest.digest != conversion.digest:
        return None
    there = {path.name: path.stat().st_size for path in folder.glob("part-*.parquet")}
    return manifest if there == {part.name: part.bytes for part in manifest.parts} else None


@contextmanager
def opened_folder(folder: Path, conversion: Conversion) -> Generator[Conversion]:
    """Lock the folder for this process and yield the conversion to run in it, which `begin` returns.

    Raises:
        UsageError: another process writes to the folder, it cannot be created, or as in `begin`.
    """
    if folder.is_file():
        raise UsageError(f"cannot write '{folder}': a file is there; give a new folder, or remove it first")
    check_writable(folder)
    with locked_folder(folder):
        yield begin(folder, conversion)[0]


def begin(folder: Path, conversion: Conversion) -> tuple[Conversion, bool]:
    """(the folder's conversion, whether it was begun before); an unfinished folder resumes with its saved conversion.

    Raises:
        UsageError: the folder holds something else, or was begun from another source or with other options.
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
    """Write tables as a Parquet file in row groups of the layout's size; the file appears whole or not at all.

    schema: of the columns, used if there are no rows.

    Raises:
        RecSmithError: the disk is full or cannot be written to.
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
    """Rename a temporary file to its final name after all of it is synced to the disk."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)


def grouped(tables: Iterable[Any], layout: FileLayout) -> Iterator[Any]:
    """The rows of the tables, regrouped into tables of one row group each; only the last may be smaller."""
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
    """Write the manifest of the folder's files and remove temporary files. rows: number of rows in the source."""
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
