"""Any dataset as a folder of Parquet files, in its own order."""

import hashlib
import json
from pathlib import Path

from recsmith._types import Ints
from recsmith.data.converting.folder import OnProgress, Progress, begin, finish, write_part
from recsmith.data.converting.keys import KeyColumns
from recsmith.data.converting.layout import Layout
from recsmith.data.converting.tables import Blocks
from recsmith.data.dataset import Dataset
from recsmith.data.parquet.manifest import Job, Manifest
from recsmith.data.parquet.write import refuse_other_than_parquet
from recsmith.files import encode


def convert_dataset(
    dataset: Dataset,
    folder: Path,
    layout: Layout | None = None,
    columns: KeyColumns | None = None,
    on_progress: OnProgress = lambda _: None,
) -> Manifest:
    """Write all samples in their order; a few blocks are in memory at a time.

    A command that was stopped, even by kill -9, goes on after the files it has finished; until its manifest is
    written, nobody takes the folder for a dataset.

    Raises:
        UsageError: something is in the folder that this command did not write, or a column is not there.
        CorruptFile: the source is damaged, or holds more corrupt samples than it allows.
        RecSmithError: the disk is full, or refuses; finished files stay.
    """
    layout, columns = layout or Layout(), columns or KeyColumns()
    blocks = Blocks(dataset, columns, layout)
    job = checked_job("convert", blocks)
    blocks.sample_bytes()  # a wrong column is told of before anything is written
    begin(folder, job)
    sizes = dataset.source.sizes()
    total = int(sizes.sum())
    for number, (first, last) in enumerate(block_ranges(sizes, layout.file_samples)):
        path = folder / f"part-{number:05d}.parquet"
        if not path.exists():
            write_part(path, blocks.tables(first, last), layout, blocks.schema)
        on_progress(Progress(doing="written", done=int(sizes[:last].sum()), total=total))
    return finish(folder, total, columns.session)


def checked_job(kind: str, blocks: Blocks) -> Job:
    """The job of a command, once its columns are known to fit."""
    dataset = blocks.dataset
    refuse_other_than_parquet(dataset.schema)
    blocks.layout.features(dataset.schema)
    words = [kind, dataset.source.digest, encode(blocks.layout), encode(blocks.columns)]
    return Job(digest=hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()[:16])


def block_ranges(sizes: Ints, samples: int) -> list[tuple[int, int]]:
    """Runs of blocks as (first, last + 1), each of at least so many samples but for the last; one at least."""
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
