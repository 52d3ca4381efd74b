"""The protocol of formats: blocks of samples whose sizes are known, each of which can be read."""

import hashlib
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from recsmith._types import Bools, Ints, record
from recsmith.data.batch import Batch, DataSchema
from recsmith.data.deduplication import expanded
from recsmith.errors import CorruptFile

MEMORY_BLOCK = 8192  # samples of a block


@record
class SampleBlock:
    """The samples of a block, one a row.

    samples: of some features, distinct bags alone (`Batch.inverse`) where a source found them; `expanded` undoes it.
    valid: which rows hold samples (n,); the others were corrupt. None: all do. first_corrupt: what is wrong with the
    first corrupt one. causes: what is wrong, and in how many rows, where that can be told of each column.
    """

    samples: Batch
    valid: Bools | None = None
    first_corrupt: str = ""
    causes: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def corrupt(self) -> int:
        """How many rows hold no sample."""
        return 0 if self.valid is None else int((~self.valid).sum())

    def whole(self) -> Batch:
        """The samples that are not corrupt, each with its own bags."""
        samples = expanded(self.samples)
        return samples if self.valid is None else samples.take(np.flatnonzero(self.valid))


class DataSpec(Protocol):
    """What a source is made of: a noun whose fields a file of a spec holds."""

    def beside(self, folder: Path) -> Any:
        """The spec of a file in a folder: paths that are not where the command runs are meant from this folder."""
        ...


def found_beside(path: str, folder: Path) -> str:
    """A path as it is, or in a folder where it is only there."""
    beside = folder / path
    return str(beside) if not Path(path).exists() and beside.exists() else path


class BlockSource(Protocol):
    """What a format has to offer; rows of a block that turn out to be corrupt count as samples until they are read."""

    @property
    def schema(self) -> DataSchema:
        """What a sample holds."""
        ...

    @property
    def num_samples(self) -> int | None:
        """How many samples there are; None where nobody has counted them yet."""
        ...

    @property
    def digest(self) -> str:
        """A digest, which changes with the data."""
        ...

    @property
    def files(self) -> tuple[tuple[int, int], ...]:
        """Blocks that can only be read one after the other, as (first, last + 1)."""
        ...

    @property
    def max_corrupt(self) -> int:
        """Corrupt rows of an epoch that a rank passes over before it stops."""
        ...

    def sizes(self) -> Ints:
        """Samples of each block (K,); counts them if need be."""
        ...

    def read(self, block: int) -> SampleBlock:
        """The samples of a block."""
        ...


def check_corrupt(count: int, source: BlockSource, which: str) -> None:
    """CorruptFile where more samples are corrupt than a source allows. which: one of them, or what says so."""
    if count > source.max_corrupt:
        raise CorruptFile(
            f"{count:,} samples are corrupt, more than max_corrupt: {source.max_corrupt:,} allows; {which}"
        )


@runtime_checkable
class ColumnSource(Protocol):
    """What formats offer that have columns beside those of the schema, such as sessions and times."""

    @property
    def column_names(self) -> tuple[str, ...]:
        """Every column there is."""
        ...

    def column(self, block: int, name: str) -> Any:
        """A column of a block: whole numbers of NumPy, or pyarrow's array."""
        ...


@runtime_checkable
class GrowingSource(Protocol):
    """What formats offer whose data may get more samples behind those that are there."""

    def earlier(self) -> dict[str, int]:
        """Digests that the data had with fewer files, and how many of its blocks there were then."""
        ...


@runtime_checkable
class RowSource(Protocol):
    """What formats offer that can read single samples, and know how many ids each has before that.

    Then no block is kept, and samples can be dealt to ranks by their lengths (dealing.py).
    """

    def lengths(self, block: int, feature: str) -> Ints:
        """Ids of a feature, of each sample of a block."""
        ...

    def rows(self, block: int, rows: Ints) -> SampleBlock:
        """Some samples of a block, in the order in which they are named."""
        ...


def by_rows(source: BlockSource) -> RowSource | None:
    """What reads single samples of a source; None where blocks are read whole."""
    within = source.source if isinstance(source, FirstBlocks) else source
    return within if isinstance(within, RowSource) else None


class FirstBlocks:
    """The first blocks of a source, under the digest that its data had when there were no more."""

    def __init__(self, source: BlockSource, blocks: int, digest: str) -> None:
        self.source, self.blocks, self.digest = source, blocks, digest
        self.schema, self.max_corrupt = source.schema, source.max_corrupt

    @property
    def num_samples(self) -> int:
        """How many samples they hold."""
        return int(self.sizes().sum())

    @property
    def files(self) -> tuple[tuple[int, int], ...]:
        """Those of their blocks that can only be read one after the other."""
        return tuple((first, last) for first, last in self.source.files if last <= self.blocks)

    def sizes(self) -> Ints:
        """Samples of each block."""
        return self.source.sizes()[: self.blocks]

    def read(self, block: int) -> SampleBlock:
        """The samples of a block."""
        return self.source.read(block)


class MemorySource:
    """Samples that were read as a whole, with columns beside those of the schema (B,)."""

    files: tuple[tuple[int, int], ...] = ()
    max_corrupt = 0

    def __init__(self, schema: DataSchema, samples: Batch, columns: dict[str, Ints] | None = None) -> None:
        self.schema, self.num_samples = schema, len(samples)
        self._samples, self._columns = samples, columns or {}
        self.column_names = tuple(self._columns)

    @property
    def digest(self) -> str:
        """A digest, which changes with the samples."""
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
        """A column beside those of the schema, of the samples of a block."""
        return self._columns[name][block * MEMORY_BLOCK : (block + 1) * MEMORY_BLOCK]
