"""Writes samples as Parquet: one column a feature, lists for bags, with the schema in the metadata."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from recsmith.data.batch import Batch
from recsmith.data.parquet.arrow import pyarrow
from recsmith.data.parquet.spec import SCHEMA_KEY
from recsmith.data.schema import DataSchema
from recsmith.errors import UsageError
from recsmith.files import encode

RESERVED = ("sample_id", "session_id", "timestamp")  # columns that are written beside the schema's


def refuse_other_than_parquet(schema: DataSchema) -> None:
    """Raise UsageError for columns whose names have another meaning, MissingExtra without pyarrow."""
    pyarrow()
    weighted = next((each.name for each in schema.features if each.weighted), None)
    if weighted is not None:
        raise UsageError(
            f"feature '{weighted}' has weights, which are not written yet; leave them out of the column map"
        )
    columns = (*schema.feature_names, *schema.dense, *schema.labels)
    taken = next((name for name in columns if name in RESERVED), None)
    if taken is not None:
        raise UsageError(f"the column '{taken}' has a meaning of its own in Parquet files; give it another name")


def write_parquet(groups: Iterable[Batch], schema: DataSchema, path: Path, session_size: int) -> None:
    """Write samples into a file, each batch as a row group; timestamps are the numbers of the samples."""
    arrow = pyarrow()
    described = {SCHEMA_KEY: json.dumps(encode(schema)).encode()}
    writer: Any = None
    try:
        for samples in groups:
            table = _table(arrow, schema, samples, session_size).replace_schema_metadata(described)
            # Lists go without a dictionary: its packed words hide from zstd that a bag is that of the sample before.
            lists = {feature.name for feature in schema.features if not feature.single}
            words = [name for name in table.schema.names if name not in lists]
            writer = writer or arrow.parquet.ParquetWriter(path, table.schema, compression="zstd", use_dictionary=words)
            writer.write_table(table, row_group_size=len(samples))
    finally:
        if writer is not None:
            writer.close()


def _table(arrow: Any, schema: DataSchema, samples: Batch, session_size: int) -> Any:
    """Samples as pyarrow's table: features of one id a sample as numbers, others as lists."""
    numbers = samples.sample_ids
    columns: dict[str, Any] = {"sample_id": numbers, "session_id": numbers // session_size, "timestamp": numbers}
    columns |= {name: samples.labels[:, at] for at, name in enumerate(schema.labels)}
    columns |= {name: samples.dense[:, at] for at, name in enumerate(schema.dense)}
    for feature in schema.features:
        bags = samples.ids[feature.name]
        offsets = np.append(0, np.cumsum(bags.lengths, dtype=np.int64)).astype(np.int32)
        columns[feature.name] = bags.values if feature.single else arrow.ListArray.from_arrays(offsets, bags.values)
    return arrow.table(columns)
