"""Turns pyarrow tables into samples; training and serving share this code."""

import json
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from recsmith._types import Ints
from recsmith.data.batch import Batch, DataFeature, DataSchema, JaggedIds, ValueMeaning
from recsmith.data.columns.arrays import bags, flattened, numbers
from recsmith.data.columns.features import ColumnFeature
from recsmith.data.domain import Faults, in_domain, without_faults
from recsmith.data.source import SampleBlock
from recsmith.data.vocabularies.settings import vocabulary_spec
from recsmith.data.vocabularies.vocabulary import Vocabulary
from recsmith.errors import UsageError
from recsmith.files import encode
from recsmith.units import counted


class Columns(Protocol):
    """Which columns are features, dense values, labels and weights: what all specs of tables have in common."""

    @property
    def features(self) -> tuple[ColumnFeature, ...]:
        """Features and their columns."""
        ...

    @property
    def dense(self) -> tuple[str, ...]:
        """Columns of dense values."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """Columns of labels."""
        ...

    @property
    def missing_labels(self) -> tuple[str, ...]:
        """Labels that a row may lack."""
        ...

    @property
    def number_labels(self) -> tuple[str, ...]:
        """Labels of any finite number."""
        ...

    @property
    def weight(self) -> str | None:
        """The column of weights of samples."""
        ...


class TableReader:
    """Makes samples from tables whose columns a spec names.

    Raises:
        UsageError: a vocabulary does not exist, or has more rows than num_embeddings allows.
        CorruptFile: the file of a vocabulary is something else.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        opened: dict[Any, Vocabulary] = {}  # features may share a vocabulary
        self.vocabularies: dict[str, Vocabulary] = {}
        for each in columns.features:
            if each.vocabulary is not None:
                spec = vocabulary_spec(each.vocabulary)
                opened[spec] = opened.get(spec) or Vocabulary(spec)
                self.vocabularies[each.name] = opened[spec]
                _check_rows(each, opened[spec])

        self._plain = self.schema()

    def schema(self, single: Sequence[str] = ()) -> DataSchema:
        """The schema of the samples. single: features of which every sample is known to have one id."""
        columns = self.columns
        features = [
            DataFeature(
                name=each.name,
                num_embeddings=self._rows_of(each),
                weighted=each.weights is not None,
                single=each.name in single,
            )
            for each in columns.features
        ]
        values = ValueMeaning(
            modulo={each.name: each.num_embeddings or 1 for each in columns.features if each.ids == "modulo"},
            vocabularies={name: each.meaning for name, each in self.vocabularies.items()},
        )
        return DataSchema(
            features=tuple(features), dense=columns.dense, labels=columns.labels, values=values,
            missing_labels=columns.missing_labels, number_labels=columns.number_labels, raw=_raw(columns),
            weight=columns.weight,
        )  # fmt: skip

    def samples(
        self, table: Any, sample_ids: Ints, place: str, of_part: str, before: Faults | None = None
    ) -> SampleBlock:
        """The samples of a pyarrow table; rows with faults are marked as corrupt.

        Args:
            table: the columns that the spec names.
            sample_ids: numbers of the samples (B,).
            place: where the table is from, for errors.
            of_part: the same, for the text about corrupt rows.
            before: faults found while parsing, whose rows are null in the table.

        Raises:
            CorruptFile: an id is outside its table, or a column holds something else than the spec says.
        """
        columns, ids, faults = self.columns, dict[str, JaggedIds](), Faults()
        taken_apart = flattened(table, columns.features, place)
        labels, whole = numbers(table, columns.labels, place, columns.missing_labels)
        if not whole.all():
            faults["rows without a label"] = ~whole, "has no label"
        for each in columns.features:
            held = taken_apart[each.column or ""] if each.key else table
            ids[each.name], wrong = bags(held, each, place, self.vocabularies.get(each.name))
            faults |= wrong
        weights = None
        if columns.weight is not None:
            found, weighed = numbers(table, (columns.weight,), place)
            weights = found[:, 0]
            if not weighed.all():
                faults["rows without a weight"] = ~weighed, f"has no weight in column '{columns.weight}'"
        faults = _without(faults, before or {})
        samples = Batch(
            dense=numbers(table, columns.dense, place)[0],
            ids=ids,
            labels=labels,
            label_names=columns.labels,
            sample_ids=sample_ids,
            weights=weights,
        )
        return in_domain(without_faults(SampleBlock(samples=samples), faults, of_part), self._plain, of_part)

    def described(self, spec: Any) -> str:
        """The spec as text for a digest of the data: digests of vocabularies replace their paths.

        spec: a spec with the features of this reader.
        """
        raw = encode(spec)
        for said, each in zip(raw["features"], spec.features, strict=True):
            if each.name in self.vocabularies:
                said["vocabulary"] = encode(self.vocabularies[each.name].meaning)
        return json.dumps(raw, sort_keys=True)

    def _rows_of(self, feature: ColumnFeature) -> int | None:
        vocabulary = self.vocabularies.get(feature.name)
        return feature.num_embeddings or (None if vocabulary is None else vocabulary.num_embeddings)


def _raw(columns: Columns) -> dict[str, Any]:
    """The columns in the form in which a schema records them, so that raw rows can be served (rows.py)."""
    kept = {"features": [encode(each) for each in columns.features], "dense": list(columns.dense)}
    return {**kept, "nulls": list(getattr(columns, "nulls", ()))}


def columns_of(columns: Columns, *more: str | None) -> list[str]:
    """Names of all columns to read, each once. more: further columns, such as the sample numbers."""
    of_features = [name for each in columns.features for name in (each.column or each.name, each.weights) if name]
    return list(
        dict.fromkeys(
            [*of_features, *columns.dense, *columns.labels, *(name for name in (columns.weight, *more) if name)]
        )
    )


def lacking_note(may_lack: Sequence[str], names: Sequence[Sequence[str]]) -> str:
    """A note of how many files lack each column in `may_lack`; empty if none do. names: column names of each file."""
    lacking = {column: sum(column not in each for each in names) for column in may_lack}
    return "; ".join(
        f"column '{column}' is not in {count:,} of {counted(len(names), 'file')}, whose samples have none of it"
        for column, count in lacking.items() if count
    )  # fmt: skip


def single_bags(samples: Batch, names: Sequence[str]) -> str | None:
    """A feature among `names` of which not every sample has exactly one id; None if there is none."""
    return next((name for name in names if not (samples.ids[name].lengths == 1).all()), None)


def counted_numbers(sizes: Ints, block: int) -> Ints:
    """Numbers of a block's samples, if samples are numbered along the blocks."""
    return int(sizes[:block].sum()) + np.arange(int(sizes[block]))


def _without(faults: Faults, before: Faults) -> Faults:
    """All of `before`, and `faults` of rows that have no fault in `before`."""
    masks = [mask for mask, _ in before.values()]
    left = {what: (mask & ~np.logical_or.reduce([mask & False, *masks]), said) for what, (mask, said) in faults.items()}
    return {**before, **{what: (mask, said) for what, (mask, said) in left.items() if mask.any()}}


def _check_rows(feature: ColumnFeature, vocabulary: Vocabulary) -> None:
    """Raise UsageError if num_embeddings is smaller than the number of rows of the feature's vocabulary."""
    given, needed = feature.num_embeddings, vocabulary.num_embeddings
    if given is not None and given < needed:
        meant = vocabulary.meaning
        raise UsageError(
            f"num_embeddings of feature '{feature.name}' is {given:,}, and its vocabulary '{vocabulary.path}' needs "
            f"{needed:,} rows ({meant.values:,} values, {meant.unknown:,} for all others); leave it out, give more, or "
            "use less of the vocabulary (rows, least)"
        )
