"""Writes samples as Parquet: one column a feature, lists for bags, with the schema in the metadata."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recsmith._types import Ints
from recsmith.data.batch import Batch, JaggedIds
from recsmith.data.parquet.arrow import pyarrow
from recsmith.data.parquet.spec import SCHEMA_KEY, weights_column
from recsmith.data.schema import DataFeature, DataSchema
from recsmith.errors import UsageError
from recsmith.files import encode

RESERVED = ("sample_id", "session_id", "timestamp")  # columns that are written beside the schema's


def refuse_other_than_parquet(schema: DataSchema) -> None:
    """Raise UsageError for columns whose names have another meaning, MissingExtra without pyarrow."""
    pyarrow()
    columns = (*schema.feature_names, *schema.dense, *schema.labels)
    weights = [weights_column(each.name) for each in schema.features if each.weighted]
    taken = next((name for name in columns if name in (*RESERVED, *weights)), None)
    if taken is not None:
        raise UsageError(f"the column '{taken}' has a meaning of its own in Parquet files; give it another name")


def write_parquet(groups: Iterable[Batch], schema: DataSchema, path: Path, session_size: int) -> None:
    """Write samples into a file, each batch as a row group; timestamps are the numbers of the samples."""
    writer: Any = None
    try:
        for samples in groups:
            numbers = samples.sample_ids
            table = samples_table(schema, samples, numbers // session_size, numbers, schema.feature_names)
            writer = writer or parquet_writer(path, table.schema)
            writer.write_table(table, row_group_size=len(samples))
    finally:
        if writer is not None:
            writer.close()


def parquet_writer(path: Path, schema: Any) -> Any:
    """Pyarrow's writer of a file.

    Lists go without a dictionary: its packed words hide from zstd that a bag is that of the sample before. Numbers of
    samples and sessions, which grow slowly or repeat, are written as differences.
    """
    arrow = pyarrow()
    lists = {field.name for field in schema if arrow.types.is_list(field.type)}
    return arrow.parquet.ParquetWriter(
        path,
        schema,
        compression="zstd",
        use_dictionary=[name for name in schema.names if name not in lists and name not in RESERVED],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in RESERVED if name in schema.names},
    )


def samples_table(
    schema: DataSchema, samples: Batch, sessions: Ints | None, times: Ints, features: Sequence[str]
) -> Any:
    """Samples as pyarrow's table: features of one id a sample as numbers, others as lists. features: their order."""
    arrow = pyarrow()
    columns: dict[str, Any] = {"sample_id": samples.sample_ids}
    columns |= {"timestamp": times} if sessions is None else {"session_id": sessions, "timestamp": times}
    columns |= {name: samples.labels[:, at] for at, name in enumerate(schema.labels)}
    columns |= {name: samples.dense[:, at] for at, name in enumerate(schema.dense)}
    known = {each.name: each for each in schema.features}
    for name in features:
        columns |= _feature_columns(arrow, known[name], samples.ids[name])
    described = {SCHEMA_KEY: json.dumps(encode(schema)).encode()}
    return arrow.table(columns).replace_schema_metadata(described)


def _feature_columns(arrow: Any, feature: DataFeature, bags: JaggedIds) -> dict[str, Any]:
    offsets = np.append(0, np.cumsum(bags.lengths, dtype=np.int64)).astype(np.int32)
    if feature.single and bags.weights is None:
        return {feature.name: bags.values}
    made = {feature.name: arrow.ListArray.from_arrays(offsets, bags.values)}
    if bags.weights is not None:
        made[weights_column(feature.name)] = arrow.ListArray.from_arrays(offsets, bags.weights)
    return made
