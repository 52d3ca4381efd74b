"""Looks up the table row of each value in a vocabulary's file, which is mapped into memory and not loaded.

The file is an Arrow file of columns `key`, `value`, `count` and `row`, in parts, sorted by key. Values are found by key
and then compared, so that an unknown value that shares a known value's key gets no row of its own. n values, K values
of the file
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from recsmith._random import Words
from recsmith._types import Ints
from recsmith.data.arrow import pyarrow
from recsmith.data.batch import VocabularyMeaning
from recsmith.data.vocabularies.keys import keys_of
from recsmith.data.vocabularies.settings import VocabularySpec
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import check_is_file

COLUMNS = ("key", "value", "count", "row")
ABOUT = b"recsmith.vocabulary"  # metadata key of the file's description, which is JSON
MAKE = "`recsmith data vocabulary` makes it"


class Vocabulary:
    """A vocabulary's file, opened to look up the rows of values.

    Raises:
        UsageError: there is no such file, or no value in it is counted as often as `least` asks.
        CorruptFile: the file is no vocabulary, or damaged.
    """

    def __init__(self, spec: VocabularySpec) -> None:
        self.spec, self.path = spec, Path(spec.path)
        self._parts = _parts(self.path)
        self.about: dict[str, Any] = _about(self.path, self._parts.schema)
        self.is_text = pyarrow().types.is_large_string(self._parts.schema.field("value").type)
        batches = [self._parts.get_batch(at) for at in range(self._parts.num_record_batches)]
        self._keys = [_numbers(each, "key") for each in batches]
        self._rows = [_numbers(each, "row") for each in batches]
        self._values = [each.column("value") for each in batches]
        self._firsts = np.array([each[0] for each in self._keys], np.uint64)
        kept = self._kept([_numbers(each, "count") for each in batches])
        self.meaning = VocabularyMeaning(
            digest=self.about["digest"], values=kept, unknown=spec.unknown, extends=tuple(self.about["extends"])
        )

    @property
    def num_embeddings(self) -> int:
        """Rows of a table for all used values and for unknown values."""
        return self.meaning.num_embeddings

    def rows(self, values: Any) -> Ints:
        """The row of each value (n,). values: a pyarrow array of text or whole numbers, without nulls."""
        distinct = as_values(values, self.is_text).dictionary_encode()
        return self.rows_of(distinct.dictionary)[distinct.indices.to_numpy(zero_copy_only=False)]

    def rows_of(self, values: Any) -> Ints:
        """The row of each distinct value (n,). values: a pyarrow array as `as_values` returns it."""
        keys = keys_of(values)
        made = (keys % np.uint64(self.spec.unknown)).astype(np.int64)
        order = np.argsort(keys)
        part = np.searchsorted(self._firsts, keys[order], side="right") - 1
        for at in np.unique(part[part >= 0]).tolist():
            these = order[part == at]
            self._fill(made, these, keys[these], values, at)
        return made

    def _fill(self, made: Ints, these: Ints, keys: Words, values: Any, at: int) -> None:
        """Write the rows of the values that part `at` holds into `made`. these: indices of values to look up."""
        place = np.searchsorted(self._keys[at], keys)
        found = self._keys[at][np.minimum(place, len(self._keys[at]) - 1)] == keys
        these, place = these[found], place[found]
        arrow = pyarrow()
        same = arrow.compute.equal(self._values[at].take(arrow.array(place)), values.take(arrow.array(these)))
        rows = self._rows[at][place]
        known = same.to_numpy(zero_copy_only=False).astype(np.bool_) & (rows < self.meaning.values)
        made[these[known]] = self.spec.unknown + rows[known]

    def _kept(self, counts: "list[Ints]") -> int:
        """Number of used values: rows are in order of falling counts, so those counted often enough come first."""
        values = self.about["values"]
        if self.spec.least > 1:
            often = (rows[each >= self.spec.least] for each, rows in zip(counts, self._rows, strict=True))
            values = max((int(each.max(initial=-1)) for each in often), default=-1) + 1
        values = min(values, self.spec.rows or values)
        if not values:
            raise UsageError(
                f"no value of '{self.path}' was counted {self.spec.least:,} times, as `least` asks; give a smaller one"
            )
        return values


def as_values(values: Any, is_text: bool) -> Any:
    """Values cast to the vocabulary's type, large_string (whole numbers as digits) or int64; CorruptFile for others."""
    arrow, kind = pyarrow(), values.type
    if arrow.types.is_null(kind):  # a column of nulls alone, whose writer did not know the type
        return arrow.array([""] * len(values), arrow.large_string()) if is_text else arrow.array([0] * len(values))
    if is_text and (arrow.types.is_string(kind) or arrow.types.is_large_string(kind) or arrow.types.is_integer(kind)):
        return values.cast(arrow.large_string())
    if not is_text and arrow.types.is_integer(kind):
        return values.cast(arrow.int64(), safe=False)
    if not (arrow.types.is_string(kind) or arrow.types.is_large_string(kind) or arrow.types.is_integer(kind)):
        raise CorruptFile(f"holds {kind}; a vocabulary is of texts or whole numbers, so cast the column to one of them")
    wanted = "text" if is_text else "whole numbers"
    raise CorruptFile(f"holds {kind}, and its vocabulary {wanted}; make the vocabulary of this data")


def is_vocabulary(path: Path) -> bool:
    """Whether a file is a vocabulary."""
    try:
        _about(path, _parts(path).schema)
    except CorruptFile:
        return False
    return True


def _parts(path: Path) -> Any:
    """The Arrow file, mapped into memory."""
    if not path.exists():
        raise UsageError(f"there is no vocabulary '{path}'; {MAKE}")
    check_is_file(path)
    arrow = pyarrow()
    try:
        return arrow.ipc.open_file(arrow.memory_map(str(path)))
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise CorruptFile(f"'{path}' is no vocabulary ({str(error).splitlines()[0]}); {MAKE}") from None


def _about(path: Path, schema: Any) -> dict[str, Any]:
    """The description in a vocabulary file's metadata."""
    metadata: dict[bytes, bytes] = schema.metadata or {}
    said = metadata.get(ABOUT)
    if said is None or tuple(schema.names) != COLUMNS:
        raise CorruptFile(f"'{path}' is no vocabulary: its columns are {', '.join(schema.names[:8])}; {MAKE}")
    return json.loads(said)


def _numbers(batch: Any, name: str) -> Any:
    """A column of a part as a NumPy array, without a copy of the mapped file."""
    return batch.column(name).to_numpy(zero_copy_only=True)
