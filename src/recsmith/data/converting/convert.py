"""Converts any dataset to a folder of Parquet files, in its own order or clustered by session in bounded memory.

Clustering is an external sort. Samples are put into buckets by the hash of their session, a run of blocks at a time.
Then each bucket is sorted by hash, session, time and sample number, and written as a file. So the order does not depend
on the memory.
"""

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recsmith._types import Ints
from recsmith.data.arrow import pyarrow
from recsmith.data.converting.folder import (
    RUNS,
    ConversionProgress,
    FileLayout,
    OnProgress,
    finish,
    finished,
    make_last,
    opened_folder,
    write_part,
)
from recsmith.data.converting.tables import SESSION, TIME, Blocks, KeyColumns, check_sessions, session_hashes
from recsmith.data.dataset import Dataset
from recsmith.data.parquet.write import Conversion, Manifest, refuse_other_than_parquet
from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.files import encode
from recsmith.units import format_size

MEMORY = 2**30  # default bytes of tables in memory
LEAST_MEMORY = 2**24  # smallest allowed memory, in bytes
SHARE = 4  # a run or a bucket takes 1/4 of the memory, since sorting copies it and writing packs it
MOST_BUCKETS = 1024  # a run has a record batch per bucket; with more buckets, their headers would outweigh the samples
HIGH_BITS = np.uint64(32)  # the upper 32 bits of a session's hash determine its bucket


def convert_dataset(
    dataset: Dataset,
    folder: Path,
    layout: FileLayout | None = None,
    columns: KeyColumns | None = None,
    on_progress: OnProgress = lambda _: None,
) -> Manifest:
    """Write all samples in their order; a few blocks are in memory at a time.

    A command that was stopped, even by kill -9, resumes after its finished files. Until the manifest is written, the
    folder is not accepted as a dataset. If the same command has already finished, nothing is written again.

    Raises:
        UsageError: the folder holds something that this command did not write, or a column does not exist.
        CorruptFile: the source is damaged, or holds more corrupt samples than it allows.
        RecSmithError: the disk is full or cannot be written to; finished files are kept.
    """
    layout, columns = layout or FileLayout(), columns or KeyColumns()
    blocks = Blocks(dataset, columns, layout)
    conversion = checked_conversion("convert", blocks)
    blocks.sample_bytes()  # raises an error for a wrong column before anything is written
    sizes = dataset.source.sizes()
    total = int(sizes.sum())
    if (there := finished(folder, conversion)) is not None:
        return there
    with opened_folder(folder, conversion):
        for number, (first, last) in enumerate(block_ranges(sizes, layout.file_samples)):
            path = folder / f"part-{number:05d}.parquet"
            if not path.exists():
                write_part(path, blocks.tables(first, last), layout, blocks.schema)
            on_progress(ConversionProgress(doing="written", done=int(sizes[:last].sum()), total=total))
        return finish(folder, conversion, total, columns.session)


def checked_conversion(kind: str, blocks: Blocks) -> Conversion:
    """The conversion of a command, after checking that its columns and feature order are valid."""
    dataset = blocks.dataset
    refuse_other_than_parquet(dataset.schema)
    blocks.layout.features(dataset.schema)
    described = [kind, dataset.source.digest, encode(blocks.layout), encode(blocks.columns)]
    return Conversion(digest=hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16])


def block_ranges(sizes: Ints, samples: int) -> list[tuple[int, int]]:
    """Runs of blocks as (first, last + 1), each of at least `samples` samples except the last; at least one run."""
    ranges: list[tuple[int, int]] = []
    first = held = 0
    for at, size in enumerate(sizes.tolist()):
        held += size
        if held >= samples:
            ranges.append((first, at + 1))
            first, held = at + 1, 0
    if first < len(sizes) or not ranges:
        ranges.append((first, len(sizes)))
    return ranges


def cluster_dataset(
    dataset: Dataset,
    folder: Path,
    layout: FileLayout | None = None,
    columns: KeyColumns | None = None,
    on_progress: OnProgress = lambda _: None,
    memory: int = MEMORY,
) -> Manifest:
    """Write all samples session by session, in order of time within a session; sessions are in order of their hashes.

    A command that was stopped, even by kill -9, resumes.

    memory: bytes of tables in memory.

    Raises:
        UsageError: the data does not say which samples form a session; or as in `convert_dataset`.
        CorruptFile: as in `convert_dataset`.
        RecSmithError: one session does not fit into the memory; or as in `convert_dataset`.
    """
    if memory < LEAST_MEMORY:
        raise UsageError(f"memory is {format_size(memory)}; it must be at least {format_size(LEAST_MEMORY)}")
    blocks = Blocks(dataset, columns or KeyColumns(), layout or FileLayout())
    session = check_sessions(dataset, blocks.columns)
    conversion = checked_conversion("cluster", blocks)
    if (there := finished(folder, conversion)) is not None:
        return there
    sizes = dataset.source.sizes()
    with opened_folder(folder, _sized(conversion, blocks, sizes, memory)) as conversion:
        runs = _runs(folder / RUNS, blocks, conversion, sizes, on_progress)
        done = 0
        for bucket in range(conversion.buckets):
            path = folder / f"part-{bucket:05d}.parquet"
            if not path.exists():
                write_part(path, [_bucket(runs, bucket, memory)], blocks.layout, blocks.schema)
            done += pyarrow().parquet.read_metadata(path).num_rows
            on_progress(ConversionProgress(doing="sorted and written", done=done, total=int(sizes.sum())))
        return finish(folder, conversion, int(sizes.sum()), session)


def _sized(conversion: Conversion, blocks: Blocks, sizes: Ints, memory: int) -> Conversion:
    """The conversion with the number of buckets and length of runs that fit the memory, judged by the first block."""
    total, sample_bytes, share = int(sizes.sum()), blocks.sample_bytes(), memory / SHARE
    buckets = max(math.ceil(total * sample_bytes / share), math.ceil(total / blocks.layout.file_samples), 1)
    if buckets > MOST_BUCKETS:
        raise UsageError(
            f"{format_size(int(total * sample_bytes))} of samples need {buckets:,} buckets of memory "
            f"{format_size(memory)}, and at most {MOST_BUCKETS:,} are made; give more memory or larger files"
        )
    return replace(conversion, buckets=buckets, run_samples=max(1, int(share / sample_bytes)))


def _runs(folder: Path, blocks: Blocks, conversion: Conversion, sizes: Ints, on_progress: OnProgress) -> list[Path]:
    """Write runs, one file per range of blocks, and return their paths; record batch b of a file holds bucket b."""
    folder.mkdir(exist_ok=True)
    found: list[Path] = []
    for number, (first, last) in enumerate(block_ranges(sizes, conversion.run_samples)):
        path = folder / f"run-{number:05d}.arrow"
        if not path.exists():
            _write_run(path, blocks, first, last, conversion.buckets)
        found.append(path)
        done = int(sizes[:last].sum())
        on_progress(ConversionProgress(doing="put into buckets", done=done, total=int(sizes.sum())))
    return found


def _write_run(path: Path, blocks: Blocks, first: int, last: int, buckets: int) -> None:
    arrow, temporary = pyarrow(), path.with_suffix(".unfinished")
    table = arrow.concat_tables([blocks.schema.empty_table(), *blocks.tables(first, last)])
    bucket = ((session_hashes(_column(table, SESSION)) >> HIGH_BITS) * np.uint64(buckets) >> HIGH_BITS).astype(np.int64)
    order = np.argsort(bucket, kind="stable")
    edges = np.searchsorted(bucket[order], np.arange(buckets + 1))
    sorted_table = table.take(arrow.array(order)).combine_chunks()
    options = arrow.ipc.IpcWriteOptions(compression="lz4")
    try:
        with (
            arrow.OSFile(str(temporary), "wb") as file,
            arrow.ipc.new_file(file, table.schema, options=options) as writer,
        ):
            for at, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
                writer.write_batch(_one_batch(arrow, sorted_table.slice(at, end - at)))
        make_last(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RecSmithError(
            f"cannot write '{path}': {error.strerror or error}; what is finished stays, so free some space and give "
            "the same command once more"
        ) from None


def _one_batch(arrow: Any, table: Any) -> Any:
    """A table as one record batch, even if it has no rows."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else arrow.RecordBatch.from_pylist([], schema=table.schema)


def _bucket(runs: list[Path], bucket: int, memory: int) -> Any:
    """The samples of a bucket from all runs, sorted."""
    arrow = pyarrow()
    table = arrow.concat_tables([_batch(run, bucket) for run in runs])
    if table.nbytes > memory:
        sessions, counts = np.unique(_column(table, SESSION), return_counts=True)
        raise RecSmithError(
            f"{format_size(table.nbytes)} of samples are in one bucket, {counts.max(initial=0):,} of them of session "
            f"{sessions[counts.argmax()]}; give a memory of {format_size(2 * table.nbytes)}, and the command goes on"
        )
    sessions = _column(table, SESSION)
    order = np.lexsort((_column(table, "sample_id"), _column(table, TIME), sessions, session_hashes(sessions)))
    return table.take(arrow.array(order)).combine_chunks()


def _batch(run: Path, bucket: int) -> Any:
    """The samples of a bucket in one run."""
    arrow = pyarrow()
    try:
        with arrow.memory_map(str(run)) as file:
            table = arrow.Table.from_batches([arrow.ipc.open_file(file).get_batch(bucket)])
            table.validate(full=True)
            return table
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise CorruptFile(f"'{run}' is damaged ({error}); remove it, and give the same command once more") from None


def _column(table: Any, name: str) -> Ints:
    return np.asarray(table[name].to_numpy())
