"""Turns columns of pyarrow tables into NumPy arrays: bags, dense values, labels; takes maps and structs apart."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.data.arrow import pyarrow
from recsmith.data.batch import JaggedIds, Singles
from recsmith.data.columns.features import A_SECOND, ColumnFeature
from recsmith.data.columns.times import seconds_of
from recsmith.data.domain import Faults, check_ids
from recsmith.data.vocabularies.vocabulary import Vocabulary
from recsmith.errors import CorruptFile
from recsmith.units import counted

UNCOUNTED = 2**63 - 1  # bound of the ids of a feature without a table
EXACT = 2**53  # a float holds every whole number below this exactly


def bags(
    table: Any, feature: ColumnFeature, place: str, vocabulary: Vocabulary | None = None
) -> tuple[JaggedIds, Faults]:
    """(bags of a feature, faults): a list or one id per row; a null row is an empty bag.

    A row with a null in a list, or without exactly one weight per id, is reported as a fault; its bag is meaningless.

    Args:
        table: a pyarrow table; for a feature with a key, that of `flattened`.
        feature: the feature and its column.
        place: where the table is from, for errors.
        vocabulary: of the feature's values, if it has one.

    Raises:
        CorruptFile: an id is outside the feature's table, or a column holds other values than numbers.
    """
    name, faults = feature.name, Faults()
    values, lengths, gaps = _ids(table, feature, place, vocabulary)
    if vocabulary is not None:
        pass  # the vocabulary has returned rows of the table
    elif feature.ids == "modulo" and feature.num_embeddings is not None:
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


def ids_outside(table: Any, feature: ColumnFeature, place: str) -> tuple[int, int]:
    """(number of negative ids of a feature, number of ids beyond its table); (0, 0) if every value gets a row."""
    if feature.vocabulary is not None:
        return 0, 0
    values, _, _ = _ids(table, feature, place)
    if feature.ids == "modulo":
        return 0, 0
    return int(np.count_nonzero(values < 0)), int(np.count_nonzero(values >= (feature.num_embeddings or UNCOUNTED)))


def numbers(
    table: Any, names: tuple[str, ...], place: str, missing: tuple[str, ...] = ()
) -> tuple[Singles, Bools]:  # fmt: skip
    """Columns of numbers side by side (B, C), with 0 for null, and which rows have no null (B,).

    missing: columns in which a null becomes NaN and does not count as a null of the row.
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


def with_threshold(table: Any, spec: Any) -> Any:
    """The table with labels replaced by 0 and 1: a label is 1 if it is at least the spec's `positive`.

    Nothing is changed if `positive` is None; labels in number_labels and columns without numbers stay as they are.
    """
    if spec.positive is None:
        return table
    arrow = pyarrow()
    types = arrow.types
    for name in (set(spec.labels) - set(spec.number_labels)) & set(table.column_names):
        kind = table[name].type
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
            continue
        values = table[name].cast(arrow.float64(), safe=False)
        given = arrow.compute.if_else(arrow.compute.is_nan(values), None, values)
        label = arrow.compute.greater_equal(given, spec.positive).cast(arrow.float32())
        table = table.set_column(table.column_names.index(name), name, label)
    return table


def sample_ids(table: Any, name: str, place: str) -> Ints:
    """The sample numbers in a column; CorruptFile if it holds anything else."""
    column = table[name].combine_chunks()
    if not pyarrow().types.is_integer(column.type) or column.null_count:
        raise CorruptFile(f"{place}: column '{name}' holds no numbers of samples; leave sample_id out to count them")
    numbers = column.to_numpy(zero_copy_only=False)
    if len(numbers) and numbers.max() >= 2**63:
        raise CorruptFile(f"{place}: column '{name}' numbers a sample {numbers.max()}; numbers are below 2^63")
    return np.asarray(numbers, dtype=np.int64)


def _ids(
    table: Any, feature: ColumnFeature, place: str, vocabulary: Vocabulary | None = None
) -> tuple[Any, Any, Bools]:
    """(all ids of a feature with 0 for null, number of ids in each row, which rows have a null among their ids)."""
    name = feature.key or feature.column or feature.name
    values, lengths, gaps = raw_values(table, feature, place)
    kind = str(table[name].type)
    if vocabulary is not None and vocabulary.is_text and ("double" in kind or "float" in kind):  # in CSV 7 may be 7.0
        raise CorruptFile(
            f"{place}: column '{name}' holds {kind}, and its vocabulary text; give text, or whole numbers"
        )
    if feature.ids in A_SECOND:
        values = seconds_of(values, f"{place}: column '{name}'", A_SECOND[feature.ids])
    if vocabulary is None:
        return _numbers(values, table[name].type, f"{place}: column '{name}'", whole=True), lengths, gaps
    try:
        rows = vocabulary.rows(values)
    except CorruptFile as error:
        raise CorruptFile(f"{place}: column '{name}' {error}") from None
    return rows, lengths, gaps


def raw_values(table: Any, feature: ColumnFeature, place: str) -> tuple[Any, Any, Bools]:
    """(values of a feature as a pyarrow array without nulls, number in each row, which rows had a null in a list)."""
    name = feature.key or feature.column or feature.name
    column = _chunk(table, name)
    if feature.separator is not None:
        column = split(column, feature.separator, f"{place}: column '{name}'", whole=feature.vocabulary is None)
    values, lengths, gaps = _flat(column)
    return _whole_where_exact(values), lengths, gaps


def _whole_where_exact(values: Any) -> Any:
    """Floats that are all whole as integers, since pandas stores ids of a column with nulls so; others unchanged."""
    arrow = pyarrow()
    if not arrow.types.is_floating(values.type) or not len(values):
        return values
    wide = values.cast(arrow.float64()).to_numpy(zero_copy_only=False)
    if not (np.abs(wide) < EXACT).all() or (wide != np.floor(wide)).any():
        return values
    return arrow.array(wide.astype(np.int64))


def split(column: Any, separator: str, what: str, *, whole: bool) -> Any:
    """A text column split into lists; an empty text is an empty list. whole: whether to convert to whole numbers."""
    arrow = pyarrow()
    if arrow.types.is_list(column.type) or arrow.types.is_null(column.type):  # already split, as raw rows may be
        return column
    if not (arrow.types.is_string(column.type) or arrow.types.is_large_string(column.type)):
        raise CorruptFile(f"{what} holds {column.type}; a separator is for text, so leave it out")
    filled = arrow.compute.if_else(arrow.compute.equal(column, ""), None, column)
    lists = arrow.compute.split_pattern(filled, separator)
    if not whole:
        return lists
    try:
        return lists.cast(arrow.list_(arrow.int64()))
    except arrow.ArrowInvalid as error:
        raise CorruptFile(f"{what}: {error}; give its feature a vocabulary") from None


def _lists(table: Any, name: str, place: str, *, whole: bool) -> tuple[Any, Any, Bools]:
    """(all numbers of a column with 0 for null, how many are in each row, which rows have a null in a list)."""
    values, counts, gaps = _flat(_chunk(table, name))
    return _numbers(values, table[name].type, f"{place}: column '{name}'", whole=whole), counts, gaps


def _chunk(table: Any, name: str) -> Any:
    """A column as one array."""
    arrow = pyarrow()
    column = table[name].combine_chunks()
    if isinstance(column, arrow.ChunkedArray):  # if there are no chunks
        column = arrow.concat_arrays(column.chunks) if column.num_chunks else arrow.array([], column.type)
    return column


def _flat(column: Any) -> tuple[Any, Any, Bools]:
    """(all values of a column with 0 or '' for null, how many are in each row, which rows have a null in a list)."""
    arrow = pyarrow()
    kind = column.type
    if arrow.types.is_null(kind):  # a column of nulls alone, whose writer did not know the type
        none = np.zeros(len(column), np.int32)
        return arrow.array([], arrow.null()), none, none.astype(np.bool_)
    if arrow.types.is_list(kind) or arrow.types.is_large_list(kind) or arrow.types.is_fixed_size_list(kind):
        lengths = arrow.compute.fill_null(arrow.compute.list_value_length(column), 0)
        values = arrow.compute.list_flatten(column)
    else:
        lengths, values = column.is_valid().cast(arrow.int32()), column.drop_null()
    if arrow.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    counts: Ints = lengths.to_numpy(zero_copy_only=False).astype(np.int32)
    gaps = np.zeros(len(counts), np.bool_)
    if values.null_count:
        null = values.is_null().to_numpy(zero_copy_only=False)
        gaps[np.repeat(np.arange(len(counts)), counts)[null]] = True
        if not arrow.types.is_null(values.type):
            values = values.fill_null("" if "string" in str(values.type) else 0)
    return values, counts, gaps


def _numbers(values: Any, kind: Any, what: str, *, whole: bool) -> Any:
    """Values of a column as numbers; CorruptFile if they are something else. kind: type of the column, for errors."""
    types = pyarrow().types
    if types.is_null(values.type):
        return np.zeros(len(values), np.int64 if whole else np.float32)
    if types.is_integer(values.type) or (types.is_floating(values.type) and not whole):
        return values.to_numpy(zero_copy_only=False)
    wanted = "whole numbers, or lists of them" if whole else "numbers, or lists of them"
    fix = "; give its feature a vocabulary (docs/vocabularies.md)" if whole and "string" in str(kind) else ""
    if types.is_floating(values.type):
        fix = "; floats are taken for ids where all of them are whole and below 2^53, above which they have lost digits"
    raise CorruptFile(f"{what} holds {kind}; it must hold {wanted}{fix}")


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


def flattened(table: Any, features: Sequence[ColumnFeature], place: str) -> dict[str, Any]:
    """By name of a column of maps or structs, a table with a column per requested key; null in rows without the key.

    Raises:
        CorruptFile: the column holds something else, a struct lacks the field, or a row has a key twice.
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
    if isinstance(chunks, arrow.ChunkedArray):  # older versions of pyarrow may return several chunks, or none
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
    """The values of each key in a column of maps; entries are sorted by key once, so each key is a run of them."""
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
    """A pyarrow array of `count` rows with the index of each row's entry, null for rows without one."""
    places, has = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    places[rows], has[rows] = entries, True
    return pyarrow().array(places, mask=~has)
