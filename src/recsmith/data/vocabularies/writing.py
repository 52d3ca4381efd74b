"""Writes counted values as a vocabulary's file, in two passes: count frequencies, then give each value its row."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recsmith._types import Ints, noun
from recsmith.data.arrow import pyarrow
from recsmith.data.vocabularies.counting import Counted, Digest, batch_of, counted_of, run_schema
from recsmith.data.vocabularies.vocabulary import ABOUT, Vocabulary

PART = 2**18  # values in a part of the file, about


@noun
class VocabularyFigures:
    """A vocabulary that was written: file, values with a row, number of distinct values, and number of all occurrences.

    share: share of all counted occurrences that belong to values with a row.
    """

    file: str
    values: int
    distinct: int
    counted: int
    share: float


class _Rows:
    """Assigns rows to values: the most frequent first, equally frequent values in order of their keys.

    base: a vocabulary whose values keep their rows; new values get the rows after them.
    """

    def __init__(self, frequencies: dict[int, int], least: int, most: int | None, base: Vocabulary | None) -> None:
        self.base, self.first = base, 0 if base is None else base.meaning.values
        room = None if most is None else max(0, most - self.first)
        self._next: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        row = self.first
        for count in sorted((each for each in frequencies if each >= least), reverse=True):
            number = frequencies[count] if room is None else min(frequencies[count], self.first + room - row)
            self._next[count], self._ends[count] = row, row + number
            row += number
        self.count = row

    def of(self, found: Counted) -> Ints:
        """The row of each value (n,), -1 if it gets none; values must be passed in order of keys, each value once."""
        rows, known = np.full(len(found), -1, np.int64), _known_rows(self.base, found)
        if known is not None:
            rows = known
        for count in np.unique(found.counts[rows < 0]).tolist():
            if count not in self._next:
                continue
            at = np.flatnonzero((found.counts == count) & (rows < 0))[: self._ends[count] - self._next[count]]
            rows[at] = self._next[count] + np.arange(len(at))
            self._next[count] += len(at)
        return rows


def write_vocabulary(
    ranges: Iterable[Counted], target: Path, kind: Any, *, least: int = 1, rows: int | None = None,
    base: Vocabulary | None = None, about: dict[str, Any],
) -> VocabularyFigures:  # fmt: skip
    """Write a vocabulary of counted values, which come in order of their keys.

    Args:
        ranges: the counted values, range by range of keys.
        target: the file to write.
        kind: pyarrow type of the values, large_string or int64.
        least: how often a value must have been counted to get a row.
        rows: largest number of values with a row; None: no limit.
        base: a vocabulary whose values keep their rows.
        about: further entries of the file's description.
    """
    scratch, digest, frequencies, totals = target.with_suffix(".counted"), Digest(), dict[int, int](), [0, 0]
    _write(scratch, run_schema(kind), (batch_of(each) for each in _noted(ranges, digest, frequencies, totals, base)))
    made = _Rows(frequencies, least, rows, base)
    text = digest.text(least, rows, None if base is None else base.meaning.digest)
    extends = () if base is None else (base.meaning.digest, *base.meaning.extends)
    cut = made.count < totals[0]
    said = {**about, "digest": text, "values": made.count, "least": least, "cut": cut, "extends": extends}
    arrow = pyarrow()
    schema = run_schema(kind).append(arrow.field("row", arrow.int64())).with_metadata({ABOUT: json.dumps(said)})
    covered = [0]
    with arrow.OSFile(str(scratch), "rb") as opened:
        reader = arrow.ipc.open_file(opened)
        parts = (counted_of(reader.get_batch(at)) for at in range(reader.num_record_batches))
        _write(target, schema, _with_rows(parts, made, schema, covered))
    scratch.unlink()
    share = covered[0] / totals[1] if totals[1] else 0.0
    return VocabularyFigures(file=str(target), values=made.count, distinct=totals[0], counted=totals[1], share=share)


def _noted(
    ranges: Iterable[Counted], digest: Digest, frequencies: dict[int, int], totals: list[int], base: Vocabulary | None
) -> Iterator[Counted]:
    """Pass the ranges on while filling `digest`, `frequencies` (number of new values by count) and `totals`."""
    for each in ranges:
        digest.add(each)
        known = _known_rows(base, each)
        counts, numbers = np.unique(each.counts if known is None else each.counts[known < 0], return_counts=True)
        for count, number in zip(counts.tolist(), numbers.tolist(), strict=True):
            frequencies[count] = frequencies.get(count, 0) + number
        totals[0] += len(each)
        totals[1] += int(each.counts.sum())
        yield each


def _known_rows(base: Vocabulary | None, found: Counted) -> Ints | None:
    """Rows of values in the base vocabulary, -1 for values without one; None if there is no base."""
    if base is None:
        return None
    rows = base.rows_of(found.values) - base.spec.unknown
    return np.maximum(rows, -1)


def _with_rows(parts: Iterable[Counted], made: _Rows, schema: Any, covered: list[int]) -> Iterator[Any]:
    """Record batches of about PART values each: the values that have a row, in order of keys."""
    arrow, held = pyarrow(), list[Any]()
    for each in parts:
        rows = made.of(each)
        kept = np.flatnonzero(rows >= 0)
        covered[0] += int(each.counts[kept].sum())
        taken = replace(
            each, keys=each.keys[kept], values=each.values.take(arrow.array(kept)), counts=each.counts[kept]
        )
        columns = [*batch_of(taken).columns, arrow.array(rows[kept])]
        held.append(arrow.Table.from_arrays(columns, schema=schema))
        if sum(map(len, held)) >= PART:
            yield from _joined(held)
            held = []
    yield from _joined(held)


def _joined(tables: list[Any]) -> list[Any]:
    """The tables joined into record batches; an empty list if they hold no rows."""
    if not any(map(len, tables)):
        return []
    return pyarrow().concat_tables(tables).combine_chunks().to_batches()


def _write(file: Path, schema: Any, batches: Iterable[Any]) -> None:
    arrow = pyarrow()
    with arrow.OSFile(str(file), "wb") as opened, arrow.ipc.new_file(opened, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
