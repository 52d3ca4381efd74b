"""Counts any number of distinct values in bounded memory: sorted runs on disk are merged range by range of keys.

Values are distinguished by 64-bit keys. Two texts with equal keys are counted as one of them; of vocabularies with 100
million values, one in 3,700 has such a pair. n values, P ranges of keys
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from recsmith._random import Words
from recsmith._types import Ints
from recsmith.data.arrow import pyarrow
from recsmith.data.vocabularies.keys import keys_of

RANGES = 256  # ranges of keys; a merge holds one range of each run in memory
RANGE_SHIFT = np.uint64(56)  # bits; a key's leading 8 bits are the number of its range
COPIES = 6  # memory for sorting, joining and writing, as a multiple of the size of the held values


@dataclass(frozen=True)
class Counted:
    """Distinct values in order of their keys, and how often each occurred (n,). values: a pyarrow array."""

    keys: Words
    values: Any
    counts: Ints

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.keys.nbytes + self.counts.nbytes + self.values.nbytes

    def part(self, first: int, last: int) -> Self:
        """The values with indices first to last - 1."""
        return type(self)(self.keys[first:last], self.values.slice(first, last - first), self.counts[first:last])


def counted(values: Any) -> Counted:
    """The distinct values and their counts. values: a pyarrow array of large_string or int64, without nulls."""
    return distinct(keys_of(values), values, np.ones(len(values), np.int64))


def distinct(keys: Words, values: Any, counts: Ints) -> Counted:
    """Values in order of their keys; counts of values with equal keys are added up."""
    order = np.argsort(keys)
    keys = keys[order]
    first = np.flatnonzero(np.concatenate([np.ones(min(len(keys), 1), np.bool_), keys[1:] != keys[:-1]]))
    if not len(first):
        return Counted(keys, values, counts)
    kept = values.take(pyarrow().array(order[first]))
    return Counted(keys[first], kept, np.add.reduceat(counts[order], first))


def joined(parts: Sequence[Counted]) -> Counted:
    """The sum of several counts."""
    if len(parts) == 1:
        return parts[0]
    keys, counts = (np.concatenate([getattr(each, name) for each in parts]) for name in ("keys", "counts"))
    return distinct(keys, pyarrow().concat_arrays([each.values for each in parts]), counts)


class ValueCounter:
    """Counts the values of one vocabulary; what does not fit into memory is written to a folder as sorted runs.

    memory: bytes of memory to use. kind: pyarrow type of the values, large_string or int64.
    """

    def __init__(self, folder: Path, memory: int, kind: Any) -> None:
        self.folder, self.kind = folder, kind
        self._room = memory // COPIES
        self._held: list[Counted] = []
        self._bytes, self._runs = 0, list[Any]()

    def add(self, values: Any) -> None:
        """Count values, which are of the counter's kind and without nulls."""
        self.add_counted(counted(values))

    def add_counted(self, found: Counted) -> None:
        """Add values that are already counted."""
        if not len(found):
            return
        self._held.append(found)
        self._bytes += found.nbytes
        if self._bytes > self._room:
            self._make_room()

    def merged(self) -> Iterator[Counted]:
        """All distinct values in order of their keys, range by range; values still in memory are merged as one run."""
        held = joined(self._held) if self._held else None
        edges = None if held is None else _edges(held.keys)
        for at in range(RANGES):
            parts = [counted_of(run.get_batch(at)) for run in self._runs]
            if held is not None and edges is not None:
                parts.append(held.part(int(edges[at]), int(edges[at + 1])))
            if parts := [each for each in parts if len(each)]:
                yield joined(parts)

    def _make_room(self) -> None:
        """Join the values in memory; write them as a run if they still take more than half of the room."""
        held = joined(self._held)
        self._held, self._bytes = [held], held.nbytes
        if self._bytes <= self._room // 2:
            return
        edges, file = _edges(held.keys), self.folder / f"{len(self._runs)}.arrow"
        arrow = pyarrow()
        with arrow.OSFile(str(file), "wb") as opened, arrow.ipc.new_file(opened, run_schema(self.kind)) as writer:
            for at in range(RANGES):
                writer.write_batch(batch_of(held.part(int(edges[at]), int(edges[at + 1]))))
        self._runs.append(arrow.ipc.open_file(arrow.OSFile(str(file), "rb")))
        self._held, self._bytes = [], 0


def run_schema(kind: Any) -> Any:
    """The pyarrow schema of a run: keys, values, counts."""
    arrow = pyarrow()
    return arrow.schema([("key", arrow.uint64()), ("value", kind), ("count", arrow.int64())])


def batch_of(found: Counted) -> Any:
    """The counted values as a record batch of a run."""
    arrow = pyarrow()
    columns = [arrow.array(found.keys), found.values, arrow.array(found.counts)]
    return arrow.RecordBatch.from_arrays(columns, schema=run_schema(found.values.type))


def counted_of(batch: Any) -> Counted:
    """The counted values in a record batch of a run or of a vocabulary."""
    keys, counts = (batch.column(name).to_numpy(zero_copy_only=True) for name in ("key", "count"))
    return Counted(keys, batch.column("value"), counts)


def _edges(keys: Words) -> Ints:
    """Where each range of sorted keys begins, and the end of the last one (P + 1,)."""
    begins = np.arange(RANGES, dtype=np.uint64) << RANGE_SHIFT
    return np.append(np.searchsorted(keys, begins), len(keys))


class Digest:
    """A digest of counted values, taken range by range of keys, so that the order of counting does not matter."""

    def __init__(self) -> None:
        self._held = hashlib.sha256()

    def add(self, found: Counted) -> None:
        """Add the next range of keys to the digest."""
        self._held.update(found.keys.tobytes() + found.counts.tobytes())

    def text(self, *more: object) -> str:
        """The digest as text. more: further values that distinguish vocabularies."""
        self._held.update(repr(more).encode())
        return self._held.hexdigest()[:16]
