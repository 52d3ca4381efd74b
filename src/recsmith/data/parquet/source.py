"""Reads Parquet and Arrow files as blocks of samples: each row group or record batch is a block."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from recsmith._types import Ints
from recsmith.data.batch import DataSchema
from recsmith.data.columns.arrays import sample_ids, with_threshold
from recsmith.data.columns.features import ColumnFeature, missing_hint
from recsmith.data.columns.samples import (
    TableReader,
    columns_of,
    counted_numbers,
    lacking_note,
    single_bags,
)
from recsmith.data.parquet.arrow import ColumnFile, StoredFigures, column_files, opened_files, stored_figures
from recsmith.data.parquet.spec import SCHEMA_KEY, ParquetSpec, weights_column
from recsmith.data.source import SampleBlock
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import decode, did_you_mean, parse_json

SAMPLE_ID = "sample_id"  # the column of sample numbers in files that RecSmith wrote


def says_columns(paths: Sequence[str]) -> bool:
    """Whether the first file's metadata holds a schema (features, dense values, labels), as RecSmith writes it."""
    return SCHEMA_KEY in (ColumnFile(column_files(paths)[0]).schema.metadata or {})


class ParquetSource:
    """The samples in the Parquet and Arrow files of a spec."""

    settings = ParquetSpec
    files: tuple[tuple[int, int], ...] = ()

    def __init__(self, spec: ParquetSpec) -> None:
        self._files = opened_files(column_files(spec.paths))
        self.spec = spec if spec.features else written_spec(spec, self._files[0])
        self._schema = None if spec.features else _written_schema(self._files[0])
        self._columns, self.max_corrupt = columns_of(self.spec, self.spec.sample_id), spec.max_corrupt
        self._reader = TableReader(self.spec)
        self.column_names = tuple(self._files[0].names)
        for file in self._files:
            _check_columns(file, self._columns, self.spec)
        self.note = lacking_note(spec.missing_columns, [file.names for file in self._files])
        self.parts = [(file, part) for file in self._files for part in range(len(file.sizes))]

    @cached_property
    def schema(self) -> DataSchema:
        """Features, dense columns and labels of every sample."""
        if self._schema is not None:
            return self._schema
        whole = (each for each in self.spec.features if each.key is None and each.vocabulary is None)
        single = [each.name for each in whole if all(file.is_whole(each.column or each.name) for file in self._files)]
        return self._reader.schema(single)

    @cached_property
    def _single(self) -> tuple[str, ...]:
        """Features of which every sample has one id, according to the files' metadata."""
        return tuple(each.name for each in self.schema.features if each.single)

    @property
    def num_samples(self) -> int:
        """Number of rows in all files."""
        return int(self.sizes().sum())

    @property
    def digest(self) -> str:
        """Digest of the spec's settings, vocabularies and files."""
        return list(self._digests())[-1]

    def earlier(self) -> dict[str, int]:
        """The number of blocks by the digest of the first file alone, of the first two files, and so on."""
        edges = np.cumsum([len(file.sizes) for file in self._files]).tolist()
        return dict(zip(self._digests(), edges[:-1], strict=False))

    def _digests(self) -> Iterator[str]:
        """The digest of the first file, of the first two, and so on."""
        held = hashlib.sha256(self._reader.described(replace(self.spec, paths=("",), read_gap=0)).encode())
        for file in self._files:
            held.update(f"\n{file.path.name} {file.path.stat().st_size} {file.sizes}".encode())
            yield held.hexdigest()[:16]

    def sizes(self) -> Ints:
        """Number of rows in each block."""
        return np.array([size for file in self._files for size in file.sizes], dtype=np.int64)

    def read(self, block: int) -> SampleBlock:
        """The samples of a block."""
        file, part = self.parts[block]
        table, place = file.read(part, self._columns, self.spec.read_gap), f"'{file.path}'"
        labelled = with_threshold(table, self.spec)
        found = self._reader.samples(labelled, self._sample_ids(block, table, place), place, self.place(block))
        short = single_bags(found.samples, self._single)
        if short is not None:
            raise CorruptFile(
                f"{place} has rows without an id of '{short}', and says that each has one; write it again"
            )
        return found

    def place(self, block: int) -> str:
        """Where the rows of a block are, for errors."""
        file, part = self.parts[block]
        return f"of part {part} of '{file.path}'"

    @staticmethod
    def tables(spec: ParquetSpec, columns: list[str]) -> Iterator[tuple[Any, str]]:
        """(pyarrow table of these columns, where it is from) for each block of a spec's files."""
        for file in map(ColumnFile, column_files(spec.paths)):
            _check_columns(file, columns, spec)
            for part in range(len(file.sizes)):
                yield file.read(part, columns), f"'{file.path}'"

    @property
    def columns_of_features(self) -> dict[str, str]:
        """The column of each feature; features with a key share a column and are left out."""
        return {each.name: each.column or each.name for each in self.spec.features if each.key is None}

    def stored(self) -> StoredFigures:
        """Sizes of the files, their row groups and columns."""
        return stored_figures(self._files)

    def column(self, block: int, name: str) -> Any:
        """A column of a block as a pyarrow array."""
        file, part = self.parts[block]
        _check_columns(file, [name], self.spec)
        return file.read(part, [name])[name].combine_chunks()

    def _sample_ids(self, block: int, table: Any, place: str) -> Ints:
        """Numbers of a block's samples: from the column `sample_id` names, or counted along the files."""
        if self.spec.sample_id:
            return sample_ids(table, self.spec.sample_id, place)
        return counted_numbers(self.sizes(), block)


def _check_columns(file: ColumnFile, columns: list[str], spec: ParquetSpec) -> None:
    there = list(file.names)
    missing = next((name for name in columns if name not in (*there, *spec.missing_columns)), None)
    if missing is not None:
        raise CorruptFile(
            f"'{file.path}' has no column '{missing}'{did_you_mean(missing, there)}{missing_hint(spec, missing)}"
        )


def _written_schema(file: ColumnFile) -> DataSchema:
    """The schema in a file's metadata; UsageError if there is none."""
    metadata: dict[bytes, bytes] = file.schema.metadata or {}
    if SCHEMA_KEY not in metadata:
        raise UsageError(
            f"'{file.path}' does not say which columns are features, dense values and labels; give a spec with "
            f"`format: parquet`, paths, features, dense and labels (its columns: {', '.join(file.names[:20])})"
        )
    raw = parse_json(metadata[SCHEMA_KEY].decode("utf-8", "replace"), str(file.path))
    return decode(DataSchema, raw, str(file.path))


def written_spec(spec: ParquetSpec, file: ColumnFile) -> ParquetSpec:
    """The spec with columns taken from the schema in a file's metadata; UsageError if there is none."""
    schema = _written_schema(file)
    features = [
        ColumnFeature(
            name=each.name,
            num_embeddings=each.num_embeddings,
            weights=weights_column(each.name) if each.weighted else None,
        )
        for each in schema.features
    ]
    return replace(
        spec, features=tuple(features), dense=schema.dense, labels=schema.labels, sample_id=spec.sample_id or SAMPLE_ID,
        missing_labels=schema.missing_labels, number_labels=schema.number_labels, weight=schema.weight,
    )  # fmt: skip
