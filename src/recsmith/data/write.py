"""Writes datasets as files: Parquet with one column a feature, or lines as Criteo published them."""

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

FILE_SAMPLES = 2**20  # of a file, about
GROUP_SAMPLES = 2**15  # of a row group, about: what a reader keeps a few of

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
    """Write all samples in their order into a new folder, whole or not at all; a few blocks are in memory at a time.

    session_size: samples that follow each other and have one session_id. packed: Criteo's lines as .gz.

    Raises:
        UsageError: the folder is there and not empty, or samples do not fit into Criteo's lines.
        MissingExtra: Parquet is to be written, and pyarrow is not installed.
        RecSmithError: the disk is full, or refuses; nothing is left behind.
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
    """Refuse an output folder that holds something, or cannot be made."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"cannot write '{folder}': something is there; give a new folder, or remove it first")
    check_writable(folder)


def _groups(dataset: Dataset, on_progress: Progress) -> Iterator[tuple[int, Batch]]:
    """(number of the file, samples) of all samples in their order, GROUP_SAMPLES or more at a time."""
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
