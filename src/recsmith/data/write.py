"""Writes datasets as files: Parquet with one column per feature, or lines in Criteo's format."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from recsmith.data.batch import Batch, concatenated
from recsmith.data.criteo.lines import refuse_other_than_criteo, write_lines
from recsmith.data.dataset import Dataset
from recsmith.data.parquet.write import refuse_other_than_parquet, write_parquet
from recsmith.errors import UsageError
from recsmith.files.writable import check_writable, whole_folder

FILE_SAMPLES = 2**20  # samples in a file, about
GROUP_SAMPLES = 2**15  # samples in a row group, about; a reader keeps a few row groups in memory

FileForm = Literal["parquet", "criteo"]
Progress = Callable[[int], None]


def write_dataset(
    dataset: Dataset,
    folder: Path,
    form: FileForm = "parquet",
    *,
    session_size: int = 1,
    packed: bool = False,
    on_progress: Progress = lambda _: None,
) -> None:
    """Write all samples in order into a new folder, whole or not at all; a few blocks are in memory at a time.

    session_size: consecutive samples that get the same session_id. packed: whether to write Criteo's lines as .gz.

    Raises:
        UsageError: the folder exists and is not empty, or the samples do not fit into Criteo's format.
        MissingExtra: Parquet is to be written, and pyarrow is not installed.
        RecSmithError: the disk is full or cannot be written to; no partial output is left behind.
    """
    check_folder(folder)
    schema = dataset.schema
    (refuse_other_than_criteo if form == "criteo" else refuse_other_than_parquet)(schema)
    with whole_folder(folder) as inside:
        for number, groups in itertools.groupby(_groups(dataset, on_progress), key=lambda group: group[0]):
            samples = (each for _, each in groups)
            if form == "criteo":
                write_lines(samples, inside / (f"day_{number}.gz" if packed else f"day_{number}"))
            else:
                write_parquet(samples, schema, inside / f"part-{number:05d}.parquet", session_size)


def check_folder(folder: Path) -> None:
    """Refuse an output folder that is not empty, or that cannot be created."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"cannot write '{folder}': something is there; give a new folder, or remove it first")
    check_writable(folder)


def _groups(dataset: Dataset, on_progress: Progress) -> Iterator[tuple[int, Batch]]:
    """(number of the file, samples) in order, in batches of GROUP_SAMPLES samples or more."""
    held: list[Batch] = []
    done = written = 0
    for number in range(len(dataset.source.sizes())):
        block = dataset.source.read(number)
        held.append(block.whole())
        done += len(held[-1])
        on_progress(done)
        if done - written >= GROUP_SAMPLES:
            yield written // FILE_SAMPLES, concatenated(held)
            held, written = [], done
    if done > written:
        yield written // FILE_SAMPLES, concatenated(held)
