"""Blocks of a dataset as tables of pyarrow, one column a feature, with the keys of each sample."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsmith.data.batch import Batch
from recsmith.data.converting.keys import KeyColumns, Keys, block_keys, session_words
from recsmith.data.converting.layout import Layout
from recsmith.data.dataset import Dataset
from recsmith.data.deduplication import expanded
from recsmith.data.parquet.write import samples_table
from recsmith.errors import CorruptFile


@dataclass
class Blocks:
    """Blocks of a dataset as tables; corrupt rows are left out and counted, up to what the dataset allows."""

    dataset: Dataset
    columns: KeyColumns
    layout: Layout
    corrupt: int = 0

    def table(self, number: int) -> Any:
        """A block's samples; CorruptFile once more rows are corrupt than the dataset allows."""
        source = self.dataset.source
        block = source.read(number)
        samples = expanded(block.samples)
        keys = block_keys(source, number, samples, self.columns)
        if block.valid is not None:
            whole = np.flatnonzero(block.valid)
            self.corrupt += len(block.valid) - len(whole)
            if self.corrupt > source.max_corrupt:
                raise CorruptFile(
                    f"{self.corrupt:,} samples are corrupt, more than max_corrupt: {source.max_corrupt:,} allows; "
                    f"{block.first_corrupt}"
                )
            samples = samples.take(whole)
            keys = Keys(session=None if keys.session is None else keys.session[whole], time=keys.time[whole])
        return self._table(samples, keys)

    def sample_bytes(self) -> float:
        """Unpacked bytes of a sample, judged by the first block; what is wrong with its columns is raised here."""
        if not len(self.dataset.source.sizes()):
            return 1.0
        before, table = self.corrupt, self.table(0)
        self.corrupt = before
        return max(table.nbytes / max(table.num_rows, 1), 1.0)

    def tables(self, first: int, last: int) -> Iterator[Any]:
        """Blocks first to last - 1."""
        return (self.table(number) for number in range(first, last))

    @property
    def schema(self) -> Any:
        """Columns of the tables, as pyarrow's schema."""
        nothing = self.dataset.schema.empty()
        sessions = None if session_words(self.dataset, self.columns) is None else nothing.sample_ids
        return self._table(nothing, Keys(session=sessions, time=nothing.sample_ids)).schema

    def _table(self, samples: Batch, keys: Keys) -> Any:
        schema = self.dataset.schema
        return samples_table(schema, samples, keys.session, keys.time, self.layout.features(schema))
