"""Features and the columns of a table that they are read from."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from recsmith._types import noun
from recsmith.data.vocabularies.settings import VocabularySpec, vocabulary_spec
from recsmith.errors import check_rules
from recsmith.files import did_you_mean
from recsmith.workloads.workload import wrong_count

A_SECOND = {"seconds": 1, "milliseconds": 1000}  # units per second of times, by the setting `ids`


def optional_columns(spec: Any) -> set[str]:
    """Columns that a data spec may list in missing_columns, because samples are valid without them."""
    of_features = {name for each in spec.features for name in (each.column or each.name, each.weights) if name}
    return {*of_features, *spec.dense} - {*spec.labels, spec.weight} | {*spec.missing_labels}


def missing_hint(spec: Any, column: str) -> str:
    """Advice for the error that a file lacks a column; '' if samples are not valid without the column."""
    return "; where files may lack it, name it in missing_columns" if column in optional_columns(spec) else ""


def wrong_missing_columns(spec: Any) -> Iterator[str]:
    """An error text for each wrong entry in the `missing_columns` of a data spec."""
    able = optional_columns(spec)
    for name in spec.missing_columns:
        if name not in able:
            yield (
                f"missing_columns names '{name}'{did_you_mean(name, sorted(able))}; files may lack columns of features "
                "and dense values, and labels that missing_labels names, and no others"
            )


@noun
class ColumnFeature:
    """A feature and its column: whole numbers, or lists of them for bags.

    column: the column's name, if it differs from the feature's. weights: the column with one weight per id.
    key: the feature's key in a column of maps or structs that holds many features; `column` then names that column.
    num_embeddings: rows of the feature's table; none: numbers without a table, such as times. ids: `exact`: ids are 0
        to num_embeddings - 1, anything else is an error; `modulo`: any whole number modulo num_embeddings; `seconds`:
        times as text such as 2009-12-14 02:52:24, timestamps or numbers of seconds since 1970; `milliseconds`: the
        same with numbers of milliseconds. Times of both kinds are read as whole seconds since 1970.
    vocabulary: a file of values (docs/vocabularies.md) or its settings, which gives each value its row; the column
        holds text or whole numbers of any size. num_embeddings may be larger than the vocabulary, for later values.
    separator: the text between the values of a bag, such as | in "Action|Comedy".
    """

    name: str
    num_embeddings: int | None = None
    column: str | None = None
    weights: str | None = None
    key: str | None = None
    ids: Literal["exact", "modulo", "seconds", "milliseconds"] = "exact"
    vocabulary: str | VocabularySpec | None = None
    separator: str | None = None

    def __post_init__(self) -> None:
        check_rules(
            wrong_count(self.num_embeddings, f"num_embeddings of feature '{self.name}'"),
            f"feature '{self.name}' has ids: {self.ids} and a vocabulary, which says which row each value has; leave "
            "ids out"
            if self.ids != "exact" and self.vocabulary is not None
            else None,
            f"feature '{self.name}' has an empty separator; give what stands between two values"
            if self.separator == ""
            else None,
            f"feature '{self.name}' has ids: modulo and no num_embeddings; give the rows of its table"
            if self.ids == "modulo" and self.num_embeddings is None
            else None,
            f"feature '{self.name}' has a key and no column; give the column of maps or structs that the key is in"
            if self.key is not None and self.column is None
            else None,
        )

    def beside(self, folder: Path) -> "ColumnFeature":
        """The feature with its vocabulary's path resolved in this folder, if it is not in the working directory."""
        made = None if self.vocabulary is None else vocabulary_spec(self.vocabulary).beside(folder)
        return replace(self, vocabulary=made)
