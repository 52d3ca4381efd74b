"""A feature and the column of a table that it comes from."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from recsmith._types import noun
from recsmith.data.vocabularies.settings import VocabularySpec, vocabulary_spec
from recsmith.errors import check_rules
from recsmith.files import did_you_mean
from recsmith.workloads.workload import wrong_count

A_SECOND = {"seconds": 1, "milliseconds": 1000}  # by `ids` of times, how many of its numbers are a second


def optional_columns(spec: Any) -> set[str]:
    """Columns that files of a spec of data may lack, if it says so: a sample can do without them."""
    of_features = {name for each in spec.features for name in (each.column or each.name, each.weights) if name}
    return {*of_features, *spec.dense} - {*spec.labels, spec.weight} | {*spec.missing_labels}


def missing_hint(spec: Any, column: str) -> str:
    """What to do where a file lacks a column, for the end of an error; '' where no sample can do without it."""
    return "; where files may lack it, name it in missing_columns" if column in optional_columns(spec) else ""


def wrong_missing_columns(spec: Any) -> Iterator[str]:
    """What is wrong with the `missing_columns` of a spec of data, a sentence each."""
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

    column: where it has another name than the feature. weights: a column of as many weights.
    key: of a column of maps or structs that holds many features; `column` is its name then.
    num_embeddings: rows of its table; none: numbers that no table has, such as times. ids: `exact` ones are 0 to
        num_embeddings - 1 or an error; `modulo` takes the rest of any whole number when divided by num_embeddings;
        `seconds` are times, as text such as 2009-12-14 02:52:24, timestamps or numbers of seconds since 1970;
        `milliseconds` are the same with numbers of milliseconds. Both are read as whole seconds since 1970.
    vocabulary: a file of values (docs/vocabularies.md) or its settings: the column holds text or whole numbers of any
        size, and the table has the rows that they have there; num_embeddings may be larger, to have room.
    separator: between the values of a text, such as | in "Action|Comedy", which then is a bag.
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
        """With a vocabulary whose path is meant from a folder."""
        made = None if self.vocabulary is None else vocabulary_spec(self.vocabulary).beside(folder)
        return replace(self, vocabulary=made)
