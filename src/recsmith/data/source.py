"""The protocol of data formats: numbered blocks of samples, whose sizes are known before they are read."""

import hashlib
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from recsmith._types import Bools, Ints, record
from recsmith.data.batch import Batch, DataSchema
from recsmith.data.deduplication import expanded
from recsmith.errors import CorruptFile

MEMORY_BLOCK = 8192  # samples in a block of a MemorySource


@record
class SampleBlock:
    """The samples of a block, one a row.

    samples: all rows; a source may keep only the distinct bags of some features (`Batch.inverse`), which `expanded`
    undoes. valid: which rows hold samples (n,); the other rows are corrupt. None: all rows do. first_corrupt: what is
    wrong with the first corrupt row. faults: which rows are corrupt by what is wrong with them (n,), if the source can
    tell. A block that is made of another one is made by `take` or `marked`, which keep all of this true.
    """

    samples: Batch
    valid: Bools | None = None
    first_corrupt: str = ""
    faults: dict[str, Bools] = field(default_factory=dict[str, Bools])

    @property
    def corrupt(self) -> int:
        """Number of corrupt rows."""
        return 0 if self.valid is None else int((~self.valid).sum())

    @property
    def causes(self) -> dict[str, int]:
        """Number of corrupt rows by what is wrong with them, if the source can tell."""
        return {cause: int(rows.sum()) for cause, rows in self.faults.items()}

    def take(self, rows: Ints) -> "SampleBlock":
        """The given rows, in the given order; of corrupt rows only these are counted and described."""
        samples, valid = self.samples.take(rows), None if self.valid is None else self.valid[rows]
        if self.valid is None or valid is None or valid.all():
            return SampleBlock(samples=samples)
        faults = {cause: mask[rows] for cause, mask in self.faults.items() if mask[rows].any()}
        at = int(valid.argmin())
        said = f"sample {int(samples.sample_ids[at]):,} is corrupt"
        said = next((f"{said}, one of: {cause}" for cause, mask in faults.items() if mask[at]), said)
        first = self.first_corrupt if rows[at] == self.valid.argmin() else said
        return SampleBlock(samples=samples, valid=valid, first_corrupt=first, faults=faults)

    def marked(self, faults: dict[str, Bools], said: str) -> "SampleBlock":
        """The block with more corrupt rows, by what is wrong with them (n,). said: what is wrong with their first."""
        before = np.ones(len(self.samples), np.bool_) if self.valid is None else self.valid
        wrong: Bools = np.logical_or.reduce(list(faults.values()))
        was_corrupt = not before[: int(wrong.argmax()) + 1].all()
        return replace(
            self,
            valid=before & ~wrong,
            first_corrupt=self.first_corrupt if was_corrupt else said,
            faults={**self.faults, **{cause: mask | self.faults.get(cause, False) for cause, mask in faults.items()}},
        )

    def whole(self) -> Batch:
        """The samples without corrupt rows, each with its own bags (not deduplicated)."""
        samples = expanded(self.samples)
        return samples if self.valid is None else samples.take(np.flatnonzero(self.valid))


class DataSpec(Protocol):
    """The settings of a data source: a noun whose fields are the keys of a spec's file."""

    def beside(self, folder: Path) -> Any:
        """The spec with relative paths resolved in this folder, if they do not exist in the working directory."""
        ...


def found_beside(path: str, folder: Path) -> str:
    """The path unchanged, or the path inside `folder` if it exists only there."""
    beside = folder / path
    return str(beside) if not Path(path).exists() and beside.exists() else path


class BlockSource(Protocol):
    """What every format provides; rows that turn out to be corrupt count as samples until they are read."""

    @property
    def schema(self) -> DataSchema:
        """Features, dense columns and labels of every sample."""
        ...

    @property
    def num_samples(self) -> int | None:
        """Number of samples; None if they have not been counted yet."""
        ...

    @property
    def digest(self) -> str:
        """Digest of the data; it changes when the data changes."""
        ...

    @property
    def files(self) -> tuple[tuple[int, int], ...]:
        """Ranges of blocks that can only be read one after the other, each as (first, last + 1)."""
        ...

    @property
    def max_corrupt(self) -> int:
        """How many corrupt rows a rank skips in an epoch before it stops with an error."""
        ...

    def sizes(self) -> Ints:
        """Number of samples in each block (K,); counts them if that was not done yet."""
        ...

    def read(self, block: int) -> SampleBlock:
        """The samples of a block."""
        ...


def check_corrupt(count: int, source: BlockSource, which: str) -> None:
    """Raise CorruptFile if more samples are corrupt than the source allows. which: an example, for the error."""
    if count > source.max_corrupt:
        raise CorruptFile(
            f"{count:,} samples are corrupt, more than max_corrupt: {source.max_corrupt:,} allows; {which}"
        )


@runtime_checkable
class ColumnSource(Protocol):
    """What a format also provides if it has columns in addition to the schema's, such as sessions and times."""

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of all columns that `column` can read."""
        ...

    def column(self, block: int, name: str) -> Any:
        """A column of a block: a NumPy array of whole numbers, or a pyarrow array."""
        ...


@runtime_checkable
class GrowingSource(Protocol):
    """What a format also provides if new files may be appended to its data."""

    def earlier(self) -> dict[str, int]:
        """By the digest that the data had with fewer files, the number of blocks that it had then."""
        ...


@runtime_checkable
class RowSource(Protocol):
    """What a format also provides if it can read single samples, and knows their numbers of ids without reading them.

    A rank then keeps no blocks in memory, and samples can be dealt to ranks by their lengths (dealing.py).
    """

    def lengths(self, block: int, feature: str) -> Ints:
        """Number of ids of a feature in each sample of a block."""
        ...

    def rows(self, block: int, rows: Ints) -> SampleBlock:
        """The given rows of a block, in the given order."""
        ...


def by_rows(source: BlockSource) -> RowSource | None:
    """The source as a reader of single samples; None if it reads whole blocks only."""
    within = source.source if isinstance(source, FirstBlocks) else source
    return within if isinstance(within, RowSource) else None


class FirstBlocks:
    """The first blocks of a source, with the digest that its data had before further blocks were appended."""

    def __init__(self, source: BlockSource, blocks: int, digest: str) -> None:
        self.source, self.blocks, self.digest = source, blocks, digest
        self.schema, self.max_corrupt = source.schema, source.max_corrupt

    @property
    def num_samples(self) -> int:
        """Number of samples in these blocks."""
        return int(self.sizes().sum())

    @property
    def files(self) -> tuple[tuple[int, int], ...]:
        """Ranges of these blocks that can only be read one after the other."""
        return tuple((first, last) for first, last in self.source.files if last <= self.blocks)

    def sizes(self) -> Ints:
        """Samples of each block."""
        return self.source.sizes()[: self.blocks]

    def read(self, block: int) -> SampleBlock:
        """The samples of a block."""
        return self.source.read(block)


class MemorySource:
    """Samples that are held in memory as a whole. columns: further columns by name, such as times (B,)."""

    files: tuple[tuple[int, int], ...] = ()
    max_corrupt = 0

    def __init__(self, schema: DataSchema, samples: Batch, columns: dict[str, Ints] | None = None) -> None:
        self.schema, self.num_samples = schema, len(samples)
        self._samples, self._columns = samples, columns or {}
        self.column_names = tuple(self._columns)

    @property
    def digest(self) -> str:
        """Digest of the samples' numbers, labels and ids."""
        held = hashlib.sha256(self._samples.sample_ids.tobytes() + self._samples.labels.tobytes())
        for name, bags in self._samples.ids.items():
            held.update(name.encode() + bags.values.tobytes() + bags.lengths.tobytes())
        return held.hexdigest()[:16]

    def sizes(self) -> Ints:
        """Samples of each block."""
        return np.diff(np.append(np.arange(0, len(self._samples), MEMORY_BLOCK), len(self._samples)))

    def read(self, block: int) -> SampleBlock:
        """The samples of a block."""
        first = block * MEMORY_BLOCK
        return SampleBlock(samples=self._samples.take(np.arange(first, min(first + MEMORY_BLOCK, len(self._samples)))))

    def column(self, block: int, name: str) -> Ints:
        """A further column, such as times, of the samples in a block."""
        return self._columns[name][block * MEMORY_BLOCK : (block + 1) * MEMORY_BLOCK]
