"""The folder that a dataset is written to: files appear whole, and a stopped command goes on after those it has."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from recsmith._types import record
from recsmith.data.converting.layout import Layout
from recsmith.data.parquet.arrow import pyarrow
from recsmith.data.parquet.manifest import Job, Manifest, PartFile, read_job, save_job, save_manifest
from recsmith.data.parquet.write import parquet_writer
from recsmith.errors import CorruptFile, RecSmithError, UsageError

RUNS = "_runs"  # the folder of what is put into buckets, until the dataset is finished


@record
class Progress:
    """How far a command is: what it does, and how many of the samples it has done."""

    doing: str
    done: int
    total: int


OnProgress = Callable[[Progress], None]


def begin(folder: Path, job: Job) -> tuple[Job, bool]:
    """(the job of the folder, whether it was begun before); an unfinished folder goes on with its own job.

    Raises:
        UsageError: something else is there, or what is unfinished has another source or other options.
    """
    found = read_job(folder) if folder.is_dir() else None
    if found is not None:
        if found.digest != job.digest:
            raise UsageError(
                f"'{folder}' is unfinished, and was begun from other data or with other options; give those, or "
                "remove the folder"
            )
        return found, True
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"cannot write '{folder}': something is there; give a new folder, or remove it first")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write '{folder}': {error.strerror}; give a folder in one that exists") from None
    save_job(folder, job)
    return job, False


def write_part(path: Path, tables: Iterable[Any], layout: Layout, schema: Any) -> None:
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


def grouped(tables: Iterable[Any], layout: Layout) -> Iterator[Any]:
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


def finish(folder: Path, rows: int, session: str | None) -> Manifest:
    """Write the manifest of what is in the folder, and remove what only the work needed. rows: of the source."""
    parts = tuple(_part(path) for path in sorted(folder.glob("part-*.parquet")))
    manifest = Manifest(parts=parts, corrupt=rows - sum(part.samples for part in parts), session=session)
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
