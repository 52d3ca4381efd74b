"""A vocabulary that is read: the row of each value, looked up in a file that stays where it is.

An Arrow file of `key`, `value`, `count` and `row`, in order of keys, in parts. Values are found by their keys and then
compared, so that one that shares a key with another has no row of its own. n values, K values of the file
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
ABOUT = b"recsmith.vocabulary"  # of a file's metadata: what it says of itself, as JSON
MAKE = "`recsmith data vocabulary` makes it"


class Vocabulary:
    """The rows of a file's values.

    Raises:
        UsageError: there is no such file, or nothing in it is used.
        CorruptFile: it is no vocabulary, or damaged.
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
        """Rows of a table for all of its values."""
        return self.meaning.num_embeddings

    def rows(self, values: Any) -> Ints:
        """The row of each value (n,). values: pyarrow's array of text or whole numbers, without nulls."""
        distinct = as_values(values, self.is_text).dictionary_encode()
        return self.rows_of(distinct.dictionary)[distinct.indices.to_numpy(zero_copy_only=False)]

    def rows_of(self, values: Any) -> Ints:
        """The same of distinct values, as `as_values` makes them."""
        keys = keys_of(values)
        made = (keys % np.uint64(self.spec.unknown)).astype(np.int64)
        order = np.argsort(keys)
        part = np.searchsorted(self._firsts, keys[order], side="right") - 1
        for at in np.unique(part[part >= 0]).tolist():
            these = order[part == at]
            self._fill(made, these, keys[these], values, at)
        return made

    def _fill(self, made: Ints, these: Ints, keys: Words, values: Any, at: int) -> None:
        """Put the rows of those values that a part holds in their places."""
        place = np.searchsorted(self._keys[at], keys)
        found = self._keys[at][np.minimum(place, len(self._keys[at]) - 1)] == keys
        these, place = these[found], place[found]
        arrow = pyarrow()
        same = arrow.compute.equal(self._values[at].take(arrow.array(place)), values.take(arrow.array(these)))
        rows = self._rows[at][place]
        known = same.to_numpy(zero_copy_only=False).astype(np.bool_) & (rows < self.meaning.values)
        made[these[known]] = self.spec.unknown + rows[known]

    def _kept(self, counts: "list[Ints]") -> int:
        """How many of the values are used: those counted often enough are the first ones."""
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
    """Values as a vocabulary holds them: large_string, whole numbers by their digits, or int64; else CorruptFile."""
    arrow, kind = pyarrow(), values.type
    if arrow.types.is_null(kind):  # a part of nulls alone, whose writer did not know the type
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
    """What a file says of itself."""
    metadata: dict[bytes, bytes] = schema.metadata or {}
    said = metadata.get(ABOUT)
    if said is None or tuple(schema.names) != COLUMNS:
        raise CorruptFile(f"'{path}' is no vocabulary: its columns are {', '.join(schema.names[:8])}; {MAKE}")
    return json.loads(said)


def _numbers(batch: Any, name: str) -> Any:
    """A column of a part, where the file lies."""
    return batch.column(name).to_numpy(zero_copy_only=True)
