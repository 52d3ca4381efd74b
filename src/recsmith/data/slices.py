"""Slices of a dataset in stored order, and the edges of a stream's periods, by number of samples or by time.

N samples of the whole, P periods
"""

from typing import Any

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.data.columns.times import micros_of
from recsmith.data.source import BlockSource, ColumnSource, SampleBlock
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import did_you_mean

TIME = "timestamp"  # the column of times in RecSmith's own files


class SlicedSource:
    """Samples first to last - 1 of a source, in stored order and with the source's digest."""

    def __init__(self, source: BlockSource, first: int, last: int) -> None:
        self.source, self.first, self.last = source, first, last
        self.schema, self.max_corrupt, self.digest = source.schema, source.max_corrupt, source.digest
        self.num_samples = last - first
        ends = np.cumsum(source.sizes())
        self._begin = int(np.searchsorted(ends, first, side="right"))  # the first block with samples of the slice
        self._end = int(np.searchsorted(ends, last, side="left")) + 1
        self._edges = np.concatenate([np.zeros(1, np.int64), ends])[self._begin : self._end + 1]

    @property
    def files(self) -> tuple[tuple[int, int], ...]:
        """Ranges of the slice's blocks that can only be read one after the other."""
        found = ((max(a, self._begin), min(b, self._end)) for a, b in self.source.files)
        return tuple((a - self._begin, b - self._begin) for a, b in found if a < b)

    def sizes(self) -> Ints:
        """Number of samples in each block; of the first and the last block, only those within the slice."""
        return np.diff(np.clip(self._edges, self.first, self.last))

    def read(self, block: int) -> SampleBlock:
        """The samples of a block that are within the slice."""
        found, begin = self.source.read(self._begin + block), int(self._edges[block])
        rows = np.arange(max(self.first - begin, 0), min(self.last - begin, len(found.samples)))
        return found if len(rows) == len(found.samples) else found.take(rows)


def times_of(source: BlockSource, column: str) -> Floats:
    """The times of all samples (N,), in the column's own unit, or in seconds if they are dates; reads the column once.

    Raises:
        UsageError: the data has no such column.
        CorruptFile: a sample has no time.
    """
    origin = _origin(source)
    known = origin.column_names if isinstance(origin, ColumnSource) else ()
    if column not in known:
        hint = did_you_mean(column, list(known)) if known else "; this data has no columns beside its features"
        raise UsageError(
            f"the data has no column '{column}' of times that periods could be cut by{hint}; or cut them by samples"
        )
    parts = [_seconds(origin.column(block, column), column, origin, block) for block in range(len(source.sizes()))]
    return np.concatenate([np.zeros(0), *parts])


def _origin(source: Any) -> Any:
    """The innermost wrapped source, or the first one that can read columns."""
    while not isinstance(source, ColumnSource) and hasattr(source, "source"):
        source = source.source
    return source


def _place(origin: Any, block: int, row: int) -> str:
    """Where a sample is, in words: its row and file if the source has files, else its number."""
    if hasattr(origin, "place"):
        return f"row {row:,} {origin.place(block)}"
    return f"sample {int(origin.sizes()[:block].sum()) + row:,}"


def _seconds(column: Any, name: str, origin: Any, block: int) -> Floats:
    values = np.asarray(column)
    if values.dtype.kind == "M":
        wrong, values = np.isnat(values), values.astype("datetime64[us]").astype(np.int64) / 1e6
    elif values.dtype.kind in "iuf":
        values = values.astype(np.float64)
        wrong = ~np.isfinite(values)
    elif hasattr(column, "is_null"):
        wrong = np.asarray(column.is_null())
        values = np.zeros(len(wrong))
        values[~wrong] = np.asarray(micros_of(column.drop_null(), f"column '{name}'")) / 1e6
    else:
        raise CorruptFile(f"column '{name}' holds {values.dtype}, which is no time; name a column of numbers or dates")
    if wrong.any():
        raise CorruptFile(
            f"column '{name}' has no time in {int(wrong.sum()):,} rows of a block, the first in "
            f"{_place(origin, block, int(wrong.argmax()))}; every sample needs one"
        )
    return values


def edges_by_samples(source: BlockSource, samples: int) -> Ints:
    """Where periods of `samples` samples begin, and where the last full one ends (P + 1,)."""
    total = int(source.sizes().sum())
    return np.arange(0, total + 1, samples, dtype=np.int64)


def edges_by_count(source: BlockSource, count: int) -> Ints:
    """Edges of `count` periods whose numbers of samples differ by one at most (P + 1,)."""
    total = int(source.sizes().sum())
    return np.round(np.linspace(0, total, count + 1)).astype(np.int64)


def edges_by_time(source: BlockSource, column: str, every: float) -> Ints:
    """Edges of periods of length `every`, which begin at its multiples; periods without samples are skipped (P + 1,).

    A period counts as complete once a sample of a later one exists, so the last period of the data is left out.

    Raises:
        UsageError: there is no such column, or samples are not in the order of their times.
        CorruptFile: a sample has no time.
    """
    times = times_of(source, column)
    numbers = np.floor(times / every)
    falls = np.flatnonzero(np.diff(numbers) < 0)
    if len(falls):
        raise _no_order(source, column, int(falls[0]) + 1, float(times[falls[0]]), float(times[falls[0] + 1]))
    return np.concatenate([np.zeros(1, np.int64), np.flatnonzero(np.diff(numbers) > 0) + 1])


def check_time_order(source: BlockSource, edges: Ints) -> None:
    """Refuse periods if the data has a `timestamp` column and a sample is older than one of an earlier period.

    Raises:
        UsageError: a sample is older.
    """
    origin = _origin(source)
    if not isinstance(origin, ColumnSource) or TIME not in origin.column_names or len(edges) < 2:
        return
    times = times_of(source, TIME)
    latest = np.maximum.accumulate(times)
    for edge, end in zip(edges[1:-1].tolist(), edges[2:].tolist(), strict=True):
        least = edge + int(times[edge:end].argmin())
        if times[least] < latest[edge - 1]:
            raise _no_order(source, TIME, least, float(latest[edge - 1]), float(times[least]))


def _no_order(source: BlockSource, column: str, at: int, before: float, after: float) -> UsageError:
    ends = np.cumsum(source.sizes())
    block = int(np.searchsorted(ends, at, side="right"))
    place = _place(_origin(source), block, at - int(ends[block] - source.sizes()[block]))
    return UsageError(
        f"periods want samples in the order of their times, and column '{column}' falls from {before:.15g} to "
        f"{after:.15g} at {place}; sort the data, and name its files in the order of time (of MovieLens, write "
        "split_by: time)"
    )
