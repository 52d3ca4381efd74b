"""Reads datasets from end to end and says all that is wrong with them, counted."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from recsmith._types import noun
from recsmith.data.dataset import Dataset
from recsmith.data.parquet import ParquetSource, ParquetSpec
from recsmith.data.parquet.faults import Fault, column_faults, manifest_faults, merged, opened
from recsmith.data.parquet.source import column_files, columns_of, written_spec
from recsmith.data.specs import DataSpec, TransformedSpec, open_dataset
from recsmith.errors import CorruptFile

MOST_CORRUPT_SHOWN = 3  # descriptions of corrupt samples that are kept
Progress = Callable[[int], None]


@noun
class DataCheck:
    """What reading a dataset from end to end found: samples, corrupt ones with some descriptions, its largest block.

    allowed: corrupt samples that a rank passes over before training stops. faults: of files; those of a dataset without
    any that break can be read.
    """

    samples: int
    corrupt: int
    allowed: int
    examples: tuple[str, ...]
    blocks: int
    largest_block: int
    faults: tuple[Fault, ...] = ()

    @property
    def is_usable(self) -> bool:
        """Whether training can read the data."""
        return self.corrupt <= self.allowed and not any(each.breaks for each in self.faults)


def check_spec(spec: DataSpec, on_progress: Progress = lambda _: None) -> DataCheck:
    """Check the data of a spec: of columns every file on its own, so that one that is damaged hides no other.

    Raises:
        UsageError: nothing is there.
        CorruptFile: data of another format is damaged.
    """
    if isinstance(spec, TransformedSpec):
        before = check_spec(spec.data, on_progress)
        usable = not any(each.breaks for each in before.faults)
        return replace(check_data(open_dataset(spec), on_progress), faults=before.faults) if usable else before
    if not isinstance(spec, ParquetSpec):
        return check_data(open_dataset(spec), on_progress)
    files, faults = opened(column_files(spec.paths))
    described = spec if spec.features or not files else written_spec(spec, files[0])
    faults += column_faults(files, columns_of(described))
    faults += [each for path in spec.paths if Path(path).is_dir() for each in manifest_faults(Path(path))]
    broken = {each.file for each in faults if each.breaks}
    good = tuple(str(file.path) for file in files if str(file.path) not in broken)
    if not good:
        return _nothing(spec, faults)
    found = check_data(open_dataset(replace(described, paths=good)), on_progress)
    return replace(found, faults=merged([*faults, *found.faults]))


def check_data(dataset: Dataset, on_progress: Progress = lambda _: None) -> DataCheck:
    """Read a dataset from end to end; corrupt samples are counted, whatever its limit is, and faults of Parquet files.

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
            faults += source.faults(number, error)
            continue
        good, corrupt = good + len(block.samples) - block.corrupt, corrupt + block.corrupt
        if block.corrupt and len(examples) < MOST_CORRUPT_SHOWN:
            examples.append(block.first_corrupt)
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
