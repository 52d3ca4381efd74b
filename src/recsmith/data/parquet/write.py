"""Writes samples as Parquet, and the manifest of a folder of such files or the mark that it is unfinished."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from recsmith._types import Ints, noun
from recsmith.data.arrow import pyarrow
from recsmith.data.batch import Batch, DataFeature, DataSchema, JaggedIds
from recsmith.data.parquet.arrow import UNFINISHED
from recsmith.data.parquet.spec import SCHEMA_KEY, weights_column
from recsmith.errors import UsageError, check_rules, too_small
from recsmith.files import decode, dump_json, encode, read_raw, write_text

RESERVED = ("sample_id", "session_id", "timestamp")  # columns that are written in addition to the schema's
Kind = TypeVar("Kind")
MANIFEST = "_manifest.json"
SCHEMA, JOB_SCHEMA = "recsmith/manifest/1", "recsmith/unfinished/1"


def refuse_other_than_parquet(schema: DataSchema) -> None:
    """Raise UsageError if a column's name is reserved in Parquet files, MissingExtra if pyarrow is not installed."""
    pyarrow()
    columns = (*schema.feature_names, *schema.dense, *schema.labels)
    weights = [weights_column(each.name) for each in schema.features if each.weighted]
    taken = next((name for name in columns if name in (*RESERVED, *weights)), None)
    if taken is not None:
        raise UsageError(f"the column '{taken}' has a meaning of its own in Parquet files; give it another name")


def write_parquet(groups: Iterable[Batch], schema: DataSchema, path: Path, session_size: int) -> None:
    """Write batches to a file, each as a row group; timestamps are the sample numbers.

    session_size: number of consecutive samples with the same session_id.
    """
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
    """The pyarrow writer of a file, with the encodings that pack samples best.

    Lists are not dictionary-encoded: bit-packed dictionary indices would hide from zstd that a bag repeats that of the
    sample before. Numbers of samples and sessions, which grow slowly or repeat, are delta-encoded.
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
    """Samples as a pyarrow table; features with one id per sample are numbers, others lists. features: column order."""
    arrow = pyarrow()
    columns: dict[str, Any] = {"sample_id": samples.sample_ids}
    columns |= {"timestamp": times} if sessions is None else {"session_id": sessions, "timestamp": times}
    columns |= {name: samples.labels[:, at] for at, name in enumerate(schema.labels)}
    columns |= {name: samples.dense[:, at] for at, name in enumerate(schema.dense)}
    columns |= {} if schema.weight is None or samples.weights is None else {schema.weight: samples.weights}
    known = {each.name: each for each in schema.features}
    for name in features:
        columns |= _feature_columns(arrow, known[name], samples.ids[name])
    described = {SCHEMA_KEY: json.dumps(encode(replace(schema, raw=None))).encode()}
    return arrow.table(columns).replace_schema_metadata(described)


def _feature_columns(arrow: Any, feature: DataFeature, bags: JaggedIds) -> dict[str, Any]:
    offsets = np.append(0, np.cumsum(bags.lengths, dtype=np.int64)).astype(np.int32)
    if feature.single and bags.weights is None:
        return {feature.name: bags.values}
    made = {feature.name: arrow.ListArray.from_arrays(offsets, bags.values)}
    if bags.weights is not None:
        made[weights_column(feature.name)] = arrow.ListArray.from_arrays(offsets, bags.weights)
    return made


@noun
class PartFile:
    """A file of a dataset: its name in the folder, and its numbers of rows, row groups and bytes."""

    name: str
    samples: int
    row_groups: int
    bytes: int


@noun
class Manifest:
    """The files of a finished dataset, in order.

    corrupt: samples of the source that were skipped. session: the column by which samples are clustered, if they are.
    digest: digest of the source and the options of the command that wrote the files (`Conversion`).
    """

    parts: tuple[PartFile, ...]
    corrupt: int = 0
    session: str | None = None
    digest: str = ""

    @property
    def samples(self) -> int:
        """Number of samples in all files."""
        return sum(part.samples for part in self.parts)


@noun
class Conversion:
    """What an unfinished folder is written from, so that only the same command can resume it.

    digest: digest of the source and the options. buckets: number of files over which sessions are distributed by hash;
    0: samples keep their order. run_samples: samples of the source that are put into buckets at a time.
    """

    digest: str
    buckets: int = 0
    run_samples: int = 1

    def __post_init__(self) -> None:
        check_rules(too_small("buckets", self.buckets), too_small("run_samples", self.run_samples, 1))


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder; None if it has none, as folders that other programs wrote.

    Raises:
        CorruptFile: the manifest is invalid.
    """
    return _read(folder / MANIFEST, SCHEMA, Manifest)


def read_conversion(folder: Path) -> Conversion | None:
    """What an unfinished folder is written from; None if the folder is finished or was not begun."""
    return _read(folder / UNFINISHED, JOB_SCHEMA, Conversion)


def save_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, and only then remove the mark that the folder is unfinished."""
    write_text(str(folder / MANIFEST), dump_json({"schema": SCHEMA, **encode(manifest)}))
    (folder / UNFINISHED).unlink(missing_ok=True)


def save_conversion(folder: Path, conversion: Conversion) -> None:
    """Mark a folder as unfinished."""
    write_text(str(folder / UNFINISHED), dump_json({"schema": JOB_SCHEMA, **encode(conversion)}))


def _read(path: Path, schema: str, noun: type[Kind]) -> Kind | None:
    if not path.exists():
        return None
    return decode(noun, read_raw(str(path), schema), str(path))
