"""Turns columns of pyarrow into arrays: bags of ids, dense values, labels."""

from typing import Any

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.data.batch import JaggedIds, Singles
from recsmith.data.parquet.arrow import pyarrow
from recsmith.data.parquet.spec import ParquetFeature
from recsmith.errors import CorruptFile


def bags(table: Any, feature: ParquetFeature, place: str) -> JaggedIds:
    """The bags of a feature: a list a row, or one id a row; empty for null. table: of pyarrow, with a column for a key.

    Raises:
        CorruptFile: an id is outside the table, or the weights are not as many.
    """
    values, lengths = _lists(table, feature.key or feature.column or feature.name, place, whole=True)
    ids = values.astype(np.int64, copy=False)
    if feature.ids == "modulo":
        ids = ids % feature.num_embeddings
    elif len(ids) and not (ids.min() >= 0 and ids.max() < feature.num_embeddings):
        wrong = int(ids.min() if ids.min() < 0 else ids.max())
        raise CorruptFile(
            f"{place}: column '{feature.column or feature.name}' holds the id {wrong}, and its table has "
            f"{feature.num_embeddings:,} rows; give a larger num_embeddings, or `ids: modulo`"
        )
    if feature.weights is None:
        return JaggedIds(values=ids, lengths=lengths)
    weights, counts = _lists(table, feature.weights, place, whole=False)
    if not np.array_equal(counts, lengths):
        raise CorruptFile(f"{place}: column '{feature.weights}' has not a weight for each id of '{feature.name}'")
    return JaggedIds(values=ids, lengths=lengths, weights=weights.astype(np.float32))


def ids_outside(table: Any, feature: ParquetFeature, place: str) -> tuple[int, int]:
    """(how many ids of a feature are negative, how many are above its table); none where they are taken modulo."""
    values, _ = _lists(table, feature.key or feature.column or feature.name, place, whole=True)
    if feature.ids == "modulo":
        return 0, 0
    ids: Ints = values.astype(np.int64, copy=False)
    return int(np.count_nonzero(ids < 0)), int(np.count_nonzero(ids >= feature.num_embeddings))


def numbers(table: Any, names: tuple[str, ...], place: str) -> tuple[Singles, Bools]:
    """Columns of numbers side by side (B, C), 0 for null; and which rows have no null (B,)."""
    values, whole = np.zeros((table.num_rows, len(names)), np.float32), np.ones(table.num_rows, np.bool_)
    for at, name in enumerate(names):
        column = table[name].combine_chunks()
        if column.null_count:
            whole &= column.is_valid().to_numpy(zero_copy_only=False)
        values[:, at] = _plain(column, name, place)
    return values, whole


def sample_ids(table: Any, name: str, place: str) -> Ints:
    """A column of the numbers of samples."""
    column = table[name].combine_chunks()
    if not pyarrow().types.is_integer(column.type) or column.null_count:
        raise CorruptFile(f"{place}: column '{name}' holds no numbers of samples; leave sample_id out to count them")
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def _lists(table: Any, name: str, place: str, *, whole: bool) -> tuple[Any, Any]:
    """(all values of a column, how many there are in each row)."""
    arrow = pyarrow()
    column = table[name].combine_chunks()
    if isinstance(column, arrow.ChunkedArray):  # of no chunks
        column = arrow.concat_arrays(column.chunks) if column.num_chunks else arrow.array([], column.type)
    kind = column.type
    if arrow.types.is_list(kind) or arrow.types.is_large_list(kind) or arrow.types.is_fixed_size_list(kind):
        lengths = arrow.compute.fill_null(arrow.compute.list_value_length(column), 0)
        values, item = arrow.compute.list_flatten(column), kind.value_type
    else:
        lengths, values, item = column.is_valid().cast(arrow.int32()), column.drop_null(), kind
    right = arrow.types.is_integer(item) if whole else arrow.types.is_floating(item) or arrow.types.is_integer(item)
    if not right or values.null_count:
        found = f"{item}s, some of them null" if values.null_count else f"{kind}"
        wanted = "whole numbers, or lists of them" if whole else "numbers, or lists of them"
        raise CorruptFile(f"{place}: column '{name}' holds {found}; it must hold {wanted}")
    return values.to_numpy(zero_copy_only=False), lengths.to_numpy(zero_copy_only=False).astype(np.int32)


def _plain(column: Any, name: str, place: str) -> Any:
    arrow = pyarrow()
    kind = column.type
    if not (arrow.types.is_floating(kind) or arrow.types.is_integer(kind) or arrow.types.is_boolean(kind)):
        raise CorruptFile(f"{place}: column '{name}' holds {kind}; it must hold numbers")
    column = column.cast(arrow.float32(), safe=False)
    return (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
