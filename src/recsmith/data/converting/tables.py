"""Blocks of a dataset as pyarrow tables, one column per feature, with the session and the time of each sample.

B samples of a block
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recsmith._random import mixed
from recsmith._types import Ints, noun, record
from recsmith.data.batch import Batch
from recsmith.data.columns.times import micros_of
from recsmith.data.converting.folder import FileLayout
from recsmith.data.dataset import Dataset
from recsmith.data.deduplication import expanded
from recsmith.data.generator.source import GeneratorSource
from recsmith.data.parquet.write import samples_table
from recsmith.data.source import BlockSource, ColumnSource, check_corrupt
from recsmith.data.transforms.graph import TransformedSource
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import did_you_mean

Hashes = npt.NDArray[np.uint64]
SESSION, TIME = "session_id", "timestamp"  # names of the columns in which RecSmith writes sessions and times
STEP = np.uint64(0x9E3779B97F4A7C15)  # increment of SplitMix64


@noun
class KeyColumns:
    """The column or feature that holds sessions, and the column of times; None takes the data's own.

    Generated data and files that RecSmith wrote have both. Samples without times are ordered by their numbers.
    """

    session: str | None = None
    time: str | None = None


@record
class Keys:
    """Sessions and times of samples.

    session: the session of each sample (B,); None if sessions are not known. time: the time of each sample (B,), in
    microseconds since 1970 if the data has timestamps or text.
    """

    session: Ints | None
    time: Ints


def block_keys(source: BlockSource, number: int, samples: Batch, columns: KeyColumns) -> Keys:
    """Sessions and times of a block's samples. samples: all rows of the block, corrupt ones included.

    Raises:
        UsageError: there is no such column, or it is a feature whose bags do not all hold one id.
        CorruptFile: a sample has no session or no valid time.
    """
    time = _named(source, number, samples, columns.time, TIME, _times)
    session = _named(source, number, samples, columns.session, SESSION, _numbers)
    origin = _origin(source)
    if session is None and isinstance(origin, GeneratorSource):
        session = samples.sample_ids // origin.spec.sessions.size
    return Keys(session=session, time=samples.sample_ids if time is None else time)


def session_words(dataset: Dataset, columns: KeyColumns) -> str | None:
    """Name of the session column; None if neither the data nor `columns` say which samples form a session."""
    source = _origin(dataset.source)
    own = isinstance(source, GeneratorSource) or SESSION in _columns_of(source)
    return columns.session or (SESSION if own else None)


def check_sessions(dataset: Dataset, columns: KeyColumns) -> str:
    """Name of the session column; UsageError if sessions are not known, before any sample is read."""
    found = session_words(dataset, columns)
    if found is None:
        known = _known(dataset.source)
        raise UsageError(f"the data does not say which samples are of one session; give --session, one of {known}")
    return found


def session_hashes(sessions: Ints) -> Hashes:
    """Hashes of sessions, the same on every machine: splitmix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    return mixed(sessions.astype(np.int64).view(np.uint64) + STEP)


def _named(
    source: BlockSource, number: int, samples: Batch, name: str | None, own: str, read: Callable[[Any, str], Ints]
) -> Ints | None:  # fmt: skip
    """A column or feature of a block as whole numbers; if `name` is None, the column `own` if the source has it."""
    known = _columns_of(source)
    wanted = name if name is not None else own if own in known else None
    if wanted is None:
        return None
    origin = _origin(source)
    if isinstance(origin, ColumnSource) and wanted in known:
        return read(origin.column(number, wanted), wanted)
    if wanted not in samples.ids:
        raise UsageError(f"there is no column '{wanted}'{did_you_mean(wanted, [*known, *samples.ids])}")
    bags = samples.ids[wanted]
    if not bool((bags.lengths == 1).all()):
        raise UsageError(f"feature '{wanted}' has bags of more ids than one, or none; give one of {_known(source)}")
    return bags.values


def _times(column: Any, name: str) -> Ints:
    """Times as numbers to sort by: whole numbers unchanged, timestamps and texts of times in microseconds."""
    if isinstance(column, np.ndarray):
        return np.asarray(column, dtype=np.int64)
    _check_there(column, name)
    return np.asarray(micros_of(column, f"column '{name}'"))


def _check_there(column: Any, name: str) -> None:
    if column.null_count:
        raise CorruptFile(f"column '{name}' is null in {column.null_count:,} rows of a block; each sample needs one")


def _numbers(column: Any, name: str) -> Ints:
    """Sessions as numbers: whole numbers unchanged, times in microseconds, texts as 63 bits of their hash."""
    from recsmith.data.arrow import pyarrow

    if isinstance(column, np.ndarray):
        return np.asarray(column, dtype=np.int64)
    arrow = pyarrow()
    _check_there(column, name)
    if arrow.types.is_temporal(column.type):
        return _times(column, name)
    if arrow.types.is_integer(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.int64)
    if not (arrow.types.is_string(column.type) or arrow.types.is_large_string(column.type)):
        raise CorruptFile(f"column '{name}' holds {column.type}; sessions and times are whole numbers or text")
    encoded = column.dictionary_encode()
    hashes = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in encoded.dictionary.to_pylist()]
    numbers = (np.frombuffer(b"".join(hashes), "<u8") >> np.uint64(1)).astype(np.int64)
    return numbers[encoded.indices.to_numpy(zero_copy_only=False)]


def _origin(source: BlockSource) -> BlockSource:
    """The source without transforms, which has the columns that are not in the schema."""
    return source.source if isinstance(source, TransformedSource) else source


def _columns_of(source: BlockSource) -> tuple[str, ...]:
    origin = _origin(source)
    return origin.column_names if isinstance(origin, ColumnSource) else ()


def _known(source: BlockSource) -> str:
    features = [each.name for each in source.schema.features]
    return ", ".join([*dict.fromkeys([*_columns_of(source), *features])][:20])


@dataclass
class Blocks:
    """Blocks of a dataset as tables; corrupt rows are skipped and counted, up to the dataset's limit."""

    dataset: Dataset
    columns: KeyColumns
    layout: FileLayout
    corrupt: int = 0

    def table(self, number: int) -> Any:
        """The table of a block's samples; CorruptFile if more rows are corrupt than the dataset allows."""
        source = self.dataset.source
        block = source.read(number)
        samples = expanded(block.samples)
        keys = block_keys(source, number, samples, self.columns)
        if block.valid is not None:
            whole = np.flatnonzero(block.valid)
            self.corrupt += len(block.valid) - len(whole)
            check_corrupt(self.corrupt, source, block.first_corrupt)
            samples = samples.take(whole)
            keys = Keys(session=None if keys.session is None else keys.session[whole], time=keys.time[whole])
        return self._table(samples, keys)

    def sample_bytes(self) -> float:
        """Unpacked bytes per sample, judged by the first block; errors of its columns are raised here."""
        if not len(self.dataset.source.sizes()):
            return 1.0
        before, table = self.corrupt, self.table(0)
        self.corrupt = before
        return max(table.nbytes / max(table.num_rows, 1), 1.0)

    def tables(self, first: int, last: int) -> Iterator[Any]:
        """The tables of blocks first to last - 1."""
        return (self.table(number) for number in range(first, last))

    @property
    def schema(self) -> Any:
        """The pyarrow schema of the tables."""
        nothing = self.dataset.schema.empty()
        sessions = None if session_words(self.dataset, self.columns) is None else nothing.sample_ids
        return self._table(nothing, Keys(session=sessions, time=nothing.sample_ids)).schema

    def _table(self, samples: Batch, keys: Keys) -> Any:
        schema = self.dataset.schema
        return samples_table(schema, samples, keys.session, keys.time, self.layout.features(schema))
