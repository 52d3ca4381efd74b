"""Parquet and Arrow files as blocks of samples: a block is a row group, or a record batch."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from recsmith._types import Ints
from recsmith.data.batch import Batch, DataFeature, DataSchema, JaggedIds, ValueMeaning
from recsmith.data.domain import Faults, in_domain, without_faults
from recsmith.data.parquet.arrow import ColumnFile, StoredFigures, column_files, stored_figures
from recsmith.data.parquet.columns import (
    SCHEMA_KEY,
    ParquetFeature,
    ParquetSpec,
    bags,
    flattened,
    numbers,
    sample_ids,
    weights_column,
)
from recsmith.data.source import SampleBlock
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import decode, did_you_mean, encode, parse_json

SAMPLE_ID = "sample_id"  # the column that generated files have


class ParquetSource:
    """The rows of the files of a spec."""

    settings = ParquetSpec
    files: tuple[tuple[int, int], ...] = ()

    def __init__(self, spec: ParquetSpec) -> None:
        self._files = [ColumnFile(path) for path in column_files(spec.paths)]
        self.spec = spec if spec.features else written_spec(spec, self._files[0])
        self._schema = None if spec.features else _written_schema(self._files[0])
        self._columns, self.max_corrupt = columns_of(self.spec), spec.max_corrupt
        self.column_names = tuple(self._files[0].names)
        for file in self._files:
            _check_columns(file, self._columns)
        self.parts = [(file, part) for file in self._files for part in range(len(file.sizes))]

    @cached_property
    def schema(self) -> DataSchema:
        """What a sample holds."""
        if self._schema is not None:
            return self._schema
        features = [
            DataFeature(
                name=each.name,
                num_embeddings=each.num_embeddings,
                weighted=each.weights is not None,
                single=each.key is None and all(file.is_whole(each.column or each.name) for file in self._files),
            )
            for each in self.spec.features
        ]
        values = ValueMeaning(
            modulo={each.name: each.num_embeddings or 1 for each in self.spec.features if each.ids == "modulo"}
        )
        return DataSchema(
            features=tuple(features), dense=self.spec.dense, labels=self.spec.labels, values=values,
            missing_labels=self.spec.missing_labels, number_labels=self.spec.number_labels,
        )  # fmt: skip

    @cached_property
    def _single(self) -> tuple[str, ...]:
        """Features of which every sample has one id, as the files say of themselves."""
        return tuple(each.name for each in self.schema.features if each.single)

    @property
    def num_samples(self) -> int:
        """How many rows there are."""
        return int(self.sizes().sum())

    @property
    def digest(self) -> str:
        """A digest, which changes with the column map and the files."""
        return list(self._digests())[-1]

    def earlier(self) -> dict[str, int]:
        """Digests of the first files alone, and their blocks."""
        edges = np.cumsum([len(file.sizes) for file in self._files]).tolist()
        return dict(zip(self._digests(), edges[:-1], strict=False))

    def _digests(self) -> Iterator[str]:
        """The digest of the first file, of the first two, and so on."""
        described = json.dumps(encode(replace(self.spec, paths=("",), read_gap=0)), sort_keys=True)
        held = hashlib.sha256(described.encode())
        for file in self._files:
            held.update(f"\n{file.path.name} {file.path.stat().st_size} {file.sizes}".encode())
            yield held.hexdigest()[:16]

    def sizes(self) -> Ints:
        """Rows of each block."""
        return np.array([size for file in self._files for size in file.sizes], dtype=np.int64)

    def read(self, block: int) -> SampleBlock:
        """The samples of a block."""
        file, part = self.parts[block]
        table, place = file.read(part, self._columns, self.spec.read_gap), f"'{file.path}'"
        taken_apart = flattened(table, self.spec.features, place)
        labels, whole = numbers(table, self.spec.labels, place, self.spec.missing_labels)
        ids, faults = dict[str, JaggedIds](), Faults()
        if not whole.all():
            faults["rows without a label"] = ~whole, "has no label"
        for each in self.spec.features:
            ids[each.name], wrong = bags(taken_apart[each.column or ""] if each.key else table, each, place)
            faults |= wrong
        short = next((name for name in self._single if not (ids[name].lengths == 1).all()), None)
        if short is not None:
            raise CorruptFile(
                f"{place} has rows without an id of '{short}', and says that each has one; write it again"
            )
        samples = Batch(
            dense=numbers(table, self.spec.dense, place)[0],
            ids=ids,
            labels=labels,
            label_names=self.spec.labels,
            sample_ids=self._sample_ids(block, table, place),
        )
        of_part = f"of part {part} of {place}"
        return in_domain(without_faults(SampleBlock(samples=samples), faults, of_part), self.schema, of_part)

    @property
    def columns_of_features(self) -> dict[str, str]:
        """The column that each feature alone has; features under keys share one, and are left out."""
        return {each.name: each.column or each.name for each in self.spec.features if each.key is None}

    def stored(self) -> StoredFigures:
        """How the data lies in its files."""
        return stored_figures(self._files)

    def column(self, block: int, name: str) -> Any:
        """A column of a block, as pyarrow's array."""
        file, part = self.parts[block]
        _check_columns(file, [name])
        return file.read(part, [name])[name].combine_chunks()

    def _sample_ids(self, block: int, table: Any, place: str) -> Ints:
        """Numbers of a block's samples: those of their column, or counted along the files."""
        if self.spec.sample_id:
            return sample_ids(table, self.spec.sample_id, place)
        sizes = self.sizes()[: block + 1]
        return int(sizes[:-1].sum()) + np.arange(int(sizes[-1]))


def columns_of(spec: ParquetSpec) -> list[str]:
    """Every column that is read, once."""
    of_features = [name for each in spec.features for name in (each.column or each.name, each.weights) if name]
    return list(dict.fromkeys([*of_features, *spec.dense, *spec.labels, *([spec.sample_id] if spec.sample_id else [])]))


def _check_columns(file: ColumnFile, columns: list[str]) -> None:
    there = list(file.names)
    missing = next((name for name in columns if name not in there), None)
    if missing is not None:
        raise CorruptFile(f"'{file.path}' has no column '{missing}'{did_you_mean(missing, there)}")


def _written_schema(file: ColumnFile) -> DataSchema:
    """The schema that a file holds itself."""
    metadata: dict[bytes, bytes] = file.schema.metadata or {}
    if SCHEMA_KEY not in metadata:
        raise UsageError(
            f"'{file.path}' does not say which columns are features, dense values and labels; give a spec with "
            f"`format: parquet`, paths, features, dense and labels (its columns: {', '.join(file.names[:20])})"
        )
    raw = parse_json(metadata[SCHEMA_KEY].decode("utf-8", "replace"), str(file.path))
    return decode(DataSchema, raw, str(file.path))


def written_spec(spec: ParquetSpec, file: ColumnFile) -> ParquetSpec:
    """The column map of files that hold their schema themselves; UsageError where they do not."""
    schema = _written_schema(file)
    features = [
        ParquetFeature(
            name=each.name,
            num_embeddings=each.num_embeddings,
            weights=weights_column(each.name) if each.weighted else None,
        )
        for each in schema.features
    ]
    return replace(
        spec, features=tuple(features), dense=schema.dense, labels=schema.labels, sample_id=spec.sample_id or SAMPLE_ID,
        missing_labels=schema.missing_labels, number_labels=schema.number_labels,
    )  # fmt: skip
