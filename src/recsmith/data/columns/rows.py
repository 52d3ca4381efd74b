"""Makes samples of raw rows that a program passes, equal to the samples of files with the same columns.

The schema in a trained model's folder records which columns the model reads, their vocabularies, and the transforms.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from recsmith._types import Ints, noun
from recsmith.data.arrow import pyarrow
from recsmith.data.batch import Batch, DataSchema
from recsmith.data.columns.features import ColumnFeature
from recsmith.data.columns.samples import TableReader, columns_of
from recsmith.data.source import BlockSource
from recsmith.data.transforms.declared import transform_from_raw
from recsmith.data.transforms.graph import TransformGraph, first_problem
from recsmith.data.vocabularies.settings import VocabularySpec, vocabulary_spec
from recsmith.data.vocabularies.vocabulary import Vocabulary
from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.files import decode, did_you_mean, encode

TELLING = 200  # values; a vocabulary that knows none of this many was made from other data
FOLDER = "vocabularies"  # subfolder of a trained model's folder
Rows = Any  # dicts, columns by name, or a table of pyarrow, pandas or polars


@noun
class RawColumns:
    """The columns of raw rows that a model reads, as in a data spec. nulls: texts that stand for a missing value."""

    features: tuple[ColumnFeature, ...]
    dense: tuple[str, ...] = ()
    nulls: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """Empty: rows to be scored have no labels."""
        return ()

    @property
    def missing_labels(self) -> tuple[str, ...]:
        """Empty: rows to be scored have no labels."""
        return ()

    @property
    def number_labels(self) -> tuple[str, ...]:
        """Empty: rows to be scored have no labels."""
        return ()

    @property
    def weight(self) -> None:
        """None: rows to be scored have no weights."""
        return


class RawRowReader:
    """Makes batches from raw rows, with the columns, vocabularies and transforms of a model's training data.

    Raises:
        UsageError: the schema does not record the columns of the training data.
        CorruptFile: a vocabulary is missing, or is not the one that the model was trained with.
    """

    def __init__(self, schema: DataSchema) -> None:
        if schema.raw is None:
            raise UsageError(
                "the model was trained on ids, and not on columns of raw rows; give ids, or train it on data of format "
                "text or parquet whose columns a spec names"
            )
        self.columns = decode(RawColumns, schema.raw, "the card of a model")
        transforms = () if schema.values is None else schema.values.transforms
        for each, said in _vocabularies(self.columns):
            if not _is_as_trained(said, each.name, schema):
                raise CorruptFile(
                    f"'{said.path}' is gone, or is not the vocabulary that feature '{each.name}' was trained with; put "
                    "it back, or export the model again"
                )
        self._reader = TableReader(self.columns)
        self._graph = TransformGraph(
            self._reader.schema(), [transform_from_raw(each, "the card of a model") for each in transforms]
        )
        self._labels = schema.labels
        self.names = tuple(columns_of(self.columns))

    def batch(self, rows: Rows) -> Batch:
        """The samples of raw rows; all labels are 0.

        rows: a list of dicts, columns by name, or a table of pyarrow, pandas or polars. A null, or a key that a dict
        lacks, is an empty bag or the dense value 0.

        Raises:
            UsageError: a column is missing, or a value would be invalid in the model's data.
        """
        table: Any = self._table(rows)
        try:
            found = self._reader.samples(table, np.arange(int(table.num_rows)), "the rows", "of those given")
        except CorruptFile as error:
            raise UsageError(str(error)) from None
        if found.corrupt:
            raise UsageError(found.first_corrupt)
        samples, wrong = self._graph.apply(found.samples)
        if wrong:
            raise UsageError(first_problem(wrong, samples.sample_ids))
        labels = np.zeros((len(samples), len(self._labels)), np.float32)
        return replace(samples, labels=labels, label_names=self._labels)

    def _table(self, rows: Rows) -> Any:
        arrow = pyarrow()
        try:
            if isinstance(rows, Sequence):
                made = arrow.table(self._columns_of(cast(Sequence[Any], rows)))
            else:
                made = arrow.table(dict(cast(Mapping[str, Any], rows)) if isinstance(rows, Mapping) else rows)
        except (arrow.ArrowException, AttributeError, TypeError, ValueError) as error:
            raise UsageError(
                f"rows cannot be made a table: {str(error).splitlines()[0]}; give dicts, columns by name, or a table "
                "of pyarrow, pandas or polars"
            ) from None
        missing = next((name for name in self.names if name not in made.column_names), None)
        if missing is not None:
            raise UsageError(f"the rows have no column '{missing}'{did_you_mean(missing, made.column_names)}")
        return arrow.table({name: self._without_nulls(made[name]) for name in self.names})

    def _columns_of(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
        """The columns of a list of dicts; a column that no dict has is left out."""
        return {name: [each.get(name) for each in rows] for name in self.names if any(name in each for each in rows)}

    def _without_nulls(self, column: Any) -> Any:
        """The column with the texts in `nulls` replaced by null, as in CSV files."""
        arrow = pyarrow()
        if not self.columns.nulls or not (
            arrow.types.is_string(column.type) or arrow.types.is_large_string(column.type)
        ):
            return column
        nothing = arrow.compute.is_in(column, value_set=arrow.array(self.columns.nulls, column.type))
        return arrow.compute.if_else(nothing, None, column)


def check_vocabularies(source: BlockSource) -> None:
    """Refuse training data if none of a feature's first values is in its vocabulary, which is then of other data.

    Raises:
        UsageError: names the feature and the vocabulary.
    """
    plain: Any = getattr(source, "source", source)  # before transforms
    schema: DataSchema = plain.schema
    meant = {} if schema.values is None or schema.raw is None else schema.values.vocabularies  # only of raw columns
    sizes: Ints = plain.sizes() if meant else np.zeros(0, np.int64)
    if not len(sizes):
        return
    block = plain.read(int((sizes > 0).argmax())).samples
    files = {each.name: each.vocabulary for each in decode(RawColumns, schema.raw, "the data").features}
    for name, vocabulary in meant.items():
        values = block.ids[name].values
        if len(values) >= TELLING and int(values.max()) < vocabulary.unknown:
            path = vocabulary_spec(files[name] or "").path
            raise UsageError(
                f"none of the first {len(values):,} values of feature '{name}' has a row in its vocabulary '{path}'; "
                "it was made of other data, so make one of this"
            )


def keep_vocabularies(schema: DataSchema, folder: Path) -> DataSchema:
    """Store the vocabularies of a model's data in the model's folder, and return the schema with their new paths.

    Raises:
        RecSmithError: a vocabulary is no longer the one that the model was trained with, or the disk is full.
    """
    if schema.raw is None:
        return schema
    columns, kept = decode(RawColumns, schema.raw, "the data"), dict[str, str]()
    for each, said in _vocabularies(columns):
        if not _is_as_trained(said, each.name, schema):
            raise RecSmithError(
                f"'{said.path}' is no longer the vocabulary that feature '{each.name}' was trained with; put it back, "
                "and start the same command again"
            )
        if said.path not in kept:
            kept[said.path] = f"{FOLDER}/{len(kept)}-{Path(said.path).name}"
            _put(Path(said.path), folder / kept[said.path])
    return _with_paths(schema, kept.__getitem__)


def _vocabularies(columns: RawColumns) -> Iterator[tuple[ColumnFeature, VocabularySpec]]:
    """(feature, settings of its vocabulary) for each feature that has a vocabulary."""
    return ((each, vocabulary_spec(each.vocabulary)) for each in columns.features if each.vocabulary is not None)


def _is_as_trained(said: VocabularySpec, feature: str, schema: DataSchema) -> bool:
    """Whether a vocabulary's file exists and is the one that the model's feature was trained with."""
    trained = None if schema.values is None else schema.values.vocabularies.get(feature)
    return Path(said.path).exists() and (trained is None or Vocabulary(said).meaning == trained)


def vocabularies_in(schema: DataSchema, folder: Path) -> DataSchema:
    """The schema of a model in `folder`, with the paths of its vocabularies relative to the working directory."""
    return schema if schema.raw is None else _with_paths(schema, lambda path: str(folder / path))


def _with_paths(schema: DataSchema, place: Callable[[str], str]) -> DataSchema:
    columns = decode(RawColumns, schema.raw, "the data")

    def moved(feature: ColumnFeature) -> ColumnFeature:
        if feature.vocabulary is None:
            return feature
        said = vocabulary_spec(feature.vocabulary)
        return replace(feature, vocabulary=replace(said, path=place(said.path)))

    made = replace(columns, features=tuple(moved(each) for each in columns.features))
    return replace(schema, raw=encode(made))


def _put(file: Path, target: Path) -> None:
    """Hard-link a file, which takes no space, or copy it if linking fails, as between disks."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(file, target)
    except OSError:
        try:
            shutil.copyfile(file, target)
        except OSError as error:
            raise RecSmithError(
                f"vocabulary '{file}' cannot be written to '{target}': {error.strerror or error}; make room, and start "
                "the same command again"
            ) from None
