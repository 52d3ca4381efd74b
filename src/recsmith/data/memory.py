"""Datasets that fit into memory, as blocks."""

import hashlib

import numpy as np

from recsmith._types import Ints
from recsmith.data.batch import Batch
from recsmith.data.schema import DataSchema
from recsmith.data.source import Block

BLOCK = 8192  # samples of a block


class MemorySource:
    """Samples that were read as a whole, with columns beside those of the schema (B,)."""

    files: tuple[tuple[int, int], ...] = ()
    max_corrupt = 0

    def __init__(self, schema: DataSchema, samples: Batch, columns: dict[str, Ints] | None = None) -> None:
        self._schema, self._samples, self._columns = schema, samples, columns or {}

    @property
    def schema(self) -> DataSchema:
        """What a sample holds."""
        return self._schema

    @property
    def num_samples(self) -> int:
        """How many samples there are."""
        return len(self._samples)

    @property
    def digest(self) -> str:
        """A word that changes with the samples."""
        held = hashlib.sha256(self._samples.sample_ids.tobytes() + self._samples.labels.tobytes())
        for name, bags in self._samples.ids.items():
            held.update(name.encode() + bags.values.tobytes() + bags.lengths.tobytes())
        return held.hexdigest()[:16]

    def sizes(self) -> Ints:
        """Samples of each block."""
        return np.diff(np.append(np.arange(0, len(self._samples), BLOCK), len(self._samples)))

    def read(self, block: int) -> Block:
        """The samples of a block."""
        first = block * BLOCK
        return Block(samples=self._samples.take(np.arange(first, min(first + BLOCK, len(self._samples)))))

    @property
    def column_names(self) -> tuple[str, ...]:
        """Columns beside those of the schema."""
        return tuple(self._columns)

    def column(self, block: int, name: str) -> Ints:
        """One of them, of the samples of a block."""
        return self._columns[name][block * BLOCK : (block + 1) * BLOCK]
