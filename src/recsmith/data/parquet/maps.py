"""Columns of maps or structs that hold many features of a row under their keys, taken apart into one column each."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from recsmith._types import Ints
from recsmith.data.parquet.arrow import pyarrow
from recsmith.data.parquet.spec import ParquetFeature
from recsmith.errors import CorruptFile


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
