"""Which columns of Parquet and Arrow files are what, and how they become arrays: bags, dense values, labels, keys."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from recsmith._types import Bools, Ints, noun
from recsmith.data.batch import JaggedIds, Singles, unknown_labels
from recsmith.data.domain import Faults, check_ids
from recsmith.data.parquet.arrow import pyarrow
from recsmith.data.source import found_beside
from recsmith.errors import CorruptFile, check_rules, too_small
from recsmith.units import counted
from recsmith.workloads.workload import wrong_count

UNCOUNTED = 2**63 - 1  # ids of a feature that no table has
SCHEMA_KEY = b"recsmith.dataset"  # of a file's metadata: its DataSchema as JSON


def weights_column(feature: str) -> str:
    """The column in which RecSmith writes the weights of a feature's ids."""
    return f"{feature}_weights"


@noun
class ParquetFeature:
    """A feature and its column: whole numbers, or lists of them for bags.

    column: where it has another name than the feature. weights: a column of as many weights.
    key: of a column of maps or structs that holds many features; `column` is its name then.
    num_embeddings: rows of its table; none: numbers that no table has, such as times. ids: `exact` ones are 0 to
        num_embeddings - 1 or an error; `modulo` takes the rest of any whole number when divided by num_embeddings.
    """

    name: str
    num_embeddings: int | None = None
    column: str | None = None
    weights: str | None = None
    key: str | None = None
    ids: Literal["exact", "modulo"] = "exact"

    def __post_init__(self) -> None:
        check_rules(
            wrong_count(self.num_embeddings, f"num_embeddings of feature '{self.name}'"),
            f"feature '{self.name}' has ids: modulo and no num_embeddings; give the rows of its table"
            if self.ids == "modulo" and self.num_embeddings is None
            else None,
            f"feature '{self.name}' has a key and no column; give the column of maps or structs that the key is in"
            if self.key is not None and self.column is None
            else None,
        )


@noun
class ParquetSpec:
    """Parquet or Arrow files (.arrow, .feather), or folders of them by names and numbers (part-2 before part-10).

    features, dense, labels: columns to read; all empty takes what `recsmith data generate` wrote into the files.
    missing_labels: labels that a row may lack, by null or NaN; it has no loss for them (docs/tasks.md).
    number_labels: labels of any finite number, which a squared error fits; others are 0 to 1.
    sample_id: a column with the numbers of samples; without it they are counted along the files.
    An empty id or list is an empty bag, an empty dense value 0; a row is corrupt without a label, with a null in a
    list, or with other than one weight an id.
    max_corrupt: such rows, which a rank passes over in an epoch.
    read_gap: bytes between two wanted columns up to which one read takes both and what lies between them; for stores
        where a read costs more than its bytes.
    """

    paths: tuple[str, ...]
    features: tuple[ParquetFeature, ...] = ()
    dense: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    missing_labels: tuple[str, ...] = ()
    number_labels: tuple[str, ...] = ()
    sample_id: str | None = None
    max_corrupt: int = 100
    read_gap: int = 0

    def __post_init__(self) -> None:
        """Check that there is something to read."""
        some = bool(self.features or self.dense or self.labels)
        check_rules(
            None if self.paths else "paths is empty; give the files of the dataset, or their folder",
            too_small("max_corrupt", self.max_corrupt),
            too_small("read_gap", self.read_gap),
            "the column map names no features; list them, or leave features, dense and labels out"
            if some and not self.features
            else None,
            "the column map names no labels; list at least one, or leave features, dense and labels out"
            if some and not self.labels
            else None,
            *unknown_labels(self),
        )

    def beside(self, folder: Path) -> "ParquetSpec":
        """With paths that are meant from a folder."""
        return replace(self, paths=tuple(found_beside(path, folder) for path in self.paths))


def bags(table: Any, feature: ParquetFeature, place: str) -> tuple[JaggedIds, Faults]:
    """The bags of a feature: a list a row, or one id a row; empty for null. table: of pyarrow, with a column for a key.

    A row with a null in a list, or with other than one weight an id, is told as a fault, and its bag means nothing.

    Raises:
        CorruptFile: an id is outside the table, or a column holds something else than numbers.
    """
    name, faults = feature.name, Faults()
    values, lengths, gaps = _lists(table, feature.key or feature.column or feature.name, place, whole=True)
    if feature.ids == "modulo" and feature.num_embeddings is not None:
        wide = values if values.dtype == np.uint64 else values.astype(np.int64, copy=False)
        values = wide % wide.dtype.type(feature.num_embeddings)
    else:
        check_ids(values, feature.num_embeddings or UNCOUNTED, f"{place}: column '{feature.column or feature.name}'")
    ids = values.astype(np.int64, copy=False)
    if gaps.any():
        faults[f"rows with a null among the ids of '{name}'"] = gaps, f"has a null among the ids of '{name}'"
    if feature.weights is None:
        return JaggedIds(values=ids, lengths=lengths), faults
    given, counts, gaps = _lists(table, feature.weights, place, whole=False)
    other = counts != lengths
    if other.any():
        at = int(other.argmax())
        faults[f"rows without a weight for each id of '{name}'"] = (
            other,
            f"has {counted(int(counts[at]), 'weight')} for {counted(int(lengths[at]), 'id')} of '{name}'",
        )
    if gaps.any():
        faults[f"rows with a null among the weights of '{name}'"] = gaps, f"has a null among the weights of '{name}'"
    weights = np.zeros(len(ids), np.float32)
    weights[np.repeat(~other, lengths)] = given[np.repeat(~other, counts)]
    return JaggedIds(values=ids, lengths=lengths, weights=weights), faults


def ids_outside(table: Any, feature: ParquetFeature, place: str) -> tuple[int, int]:
    """(how many ids of a feature are negative, how many are above its table); none where they are taken modulo."""
    values, _, _ = _lists(table, feature.key or feature.column or feature.name, place, whole=True)
    if feature.ids == "modulo":
        return 0, 0
    return int(np.count_nonzero(values < 0)), int(np.count_nonzero(values >= (feature.num_embeddings or UNCOUNTED)))


def numbers(
    table: Any, names: tuple[str, ...], place: str, missing: tuple[str, ...] = ()
) -> tuple[Singles, Bools]:  # fmt: skip
    """Columns of numbers side by side (B, C), 0 for null; and which rows have no null (B,).

    missing: columns in which null is NaN, and counts for nothing.
    """
    values, whole = np.zeros((table.num_rows, len(names)), np.float32), np.ones(table.num_rows, np.bool_)
    for at, name in enumerate(names):
        column = table[name].combine_chunks()
        values[:, at] = _plain(column, name, place)
        if column.null_count:
            there = column.is_valid().to_numpy(zero_copy_only=False)
            if name in missing:
                values[~there, at] = np.nan
            else:
                whole &= there
    return values, whole


def sample_ids(table: Any, name: str, place: str) -> Ints:
    """A column of the numbers of samples."""
    column = table[name].combine_chunks()
    if not pyarrow().types.is_integer(column.type) or column.null_count:
        raise CorruptFile(f"{place}: column '{name}' holds no numbers of samples; leave sample_id out to count them")
    numbers = column.to_numpy(zero_copy_only=False)
    if len(numbers) and numbers.max() >= 2**63:
        raise CorruptFile(f"{place}: column '{name}' numbers a sample {numbers.max()}; numbers are below 2^63")
    return np.asarray(numbers, dtype=np.int64)


def _lists(table: Any, name: str, place: str, *, whole: bool) -> tuple[Any, Any, Bools]:
    """(all values of a column, how many there are in each row, which rows have a null among them, which is 0 here)."""
    arrow = pyarrow()
    column = table[name].combine_chunks()
    if isinstance(column, arrow.ChunkedArray):  # of no chunks
        column = arrow.concat_arrays(column.chunks) if column.num_chunks else arrow.array([], column.type)
    kind = column.type
    if arrow.types.is_null(kind):  # a part of nulls alone, whose writer did not know the type
        none = np.zeros(len(column), np.int32)
        return np.zeros(0, np.int64 if whole else np.float32), none, none.astype(np.bool_)
    if arrow.types.is_list(kind) or arrow.types.is_large_list(kind) or arrow.types.is_fixed_size_list(kind):
        lengths = arrow.compute.fill_null(arrow.compute.list_value_length(column), 0)
        values, item = arrow.compute.list_flatten(column), kind.value_type
    else:
        lengths, values, item = column.is_valid().cast(arrow.int32()), column.drop_null(), kind
    if arrow.types.is_null(item):
        item, values = arrow.int64(), values.cast(arrow.int64())
    right = arrow.types.is_integer(item) if whole else arrow.types.is_floating(item) or arrow.types.is_integer(item)
    if not right:
        wanted = "whole numbers, or lists of them" if whole else "numbers, or lists of them"
        text = str(kind) if "string" in str(kind) else ""
        fix = "; give each text a number, or its hash, and write that" if text else ""
        raise CorruptFile(f"{place}: column '{name}' holds {kind}; it must hold {wanted}{fix}")
    counts: Ints = lengths.to_numpy(zero_copy_only=False).astype(np.int32)
    gaps = np.zeros(len(counts), np.bool_)
    if values.null_count:
        null = values.is_null().to_numpy(zero_copy_only=False)
        gaps[np.repeat(np.arange(len(counts)), counts)[null]] = True
        values = values.fill_null(0)
    return values.to_numpy(zero_copy_only=False), counts, gaps


def _plain(column: Any, name: str, place: str) -> Any:
    arrow = pyarrow()
    kind = column.type
    if arrow.types.is_decimal(kind):
        column, kind = column.cast(arrow.float64()), arrow.float64()
    if arrow.types.is_null(kind):
        column, kind = column.cast(arrow.float32()), arrow.float32()
    if not (arrow.types.is_floating(kind) or arrow.types.is_integer(kind) or arrow.types.is_boolean(kind)):
        raise CorruptFile(f"{place}: column '{name}' holds {kind}; it must hold numbers")
    column = column.cast(arrow.float32(), safe=False)
    return (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)


def flattened(table: Any, features: Sequence[ParquetFeature], place: str) -> dict[str, Any]:
    """By name of a column of maps or structs: a table with a column for each key asked for, null where a row has none.

    Raises:
        CorruptFile: the column holds something else, a struct has no such field, or a row has a key twice.
    """
    wanted: dict[str, list[str]] = {}
    for feature in features:
        if feature.key is not None and feature.column is not None:
            wanted.setdefault(feature.column, []).append(feature.key)
    return {
        name: pyarrow().table(_keys(table[name], keys, f"{place}: column '{name}'")) for name, keys in wanted.items()
    }


def _keys(column: Any, keys: list[str], place: str) -> dict[str, Any]:
    arrow = pyarrow()
    chunks = column.combine_chunks()
    if isinstance(chunks, arrow.ChunkedArray):  # older versions keep several, or none
        chunks = arrow.concat_arrays(chunks.chunks) if chunks.num_chunks else arrow.array([], column.type)
    if arrow.types.is_null(column.type):
        return dict.fromkeys(keys, chunks)
    if arrow.types.is_struct(column.type):
        return _fields(chunks, keys, place)
    if arrow.types.is_map(column.type):
        return _entries(chunks, keys, place)
    raise CorruptFile(f"{place} holds {column.type}; a feature with a key needs maps or structs")


def _fields(structs: Any, keys: list[str], place: str) -> dict[str, Any]:
    arrow = pyarrow()
    there = [field.name for field in structs.type]
    missing = next((key for key in keys if key not in there), None)
    if missing is not None:
        raise CorruptFile(f"{place} has no field '{missing}'; its fields: {', '.join(there[:20])}")
    return {key: arrow.compute.struct_field(structs, key) for key in keys}


def _entries(maps: Any, keys: list[str], place: str) -> dict[str, Any]:
    """Of a column of maps: entries are sorted by key once, and each wanted key takes its run of them."""
    arrow = pyarrow()
    first, last = (maps.offsets[0].as_py(), maps.offsets[-1].as_py()) if len(maps) else (0, 0)
    rows = np.repeat(np.arange(len(maps)), np.diff(maps.offsets.to_numpy()))
    names = maps.keys.slice(first, last - first).cast(arrow.string()).dictionary_encode()
    items = maps.items.slice(first, last - first)
    codes: Ints = names.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(len(names.dictionary) + 1))
    known = {name: code for code, name in enumerate(names.dictionary.to_pylist())}
    made: dict[str, Any] = {}
    for key in keys:
        code = known.get(key)
        at = order[edges[code] : edges[code + 1]] if code is not None else order[:0]
        found = rows[at]
        if len(found) > 1 and bool((found[1:] == found[:-1]).any()):
            raise CorruptFile(f"{place} has the key '{key}' twice in a row; write it once")
        made[key] = items.take(arrow.array(_places(found, at, len(maps))))
    return made


def _places(rows: Ints, entries: Ints, count: int) -> Any:
    """For each of `count` rows the entry it has, None where it has none, as pyarrow takes it."""
    places, has = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    places[rows], has[rows] = entries, True
    return pyarrow().array(places, mask=~has)
