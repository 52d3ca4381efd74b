"""What a spec says of files of text."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from recsmith._types import noun
from recsmith.data.batch import unknown_labels
from recsmith.data.columns.features import ColumnFeature, wrong_missing_columns
from recsmith.data.source import found_beside
from recsmith.errors import check_rules, too_small

SPLITS = {"train": (0.0, 0.8), "valid": (0.8, 0.9), "test": (0.9, 1.0), "all": (0.0, 1.0)}  # shares of each block


@noun
class JoinedFile:
    """A CSV or Parquet file whose columns each row gets: those of the row there that has the same value in `on`.

    on: a column of both. A row without one there gets none of them. The file is read as a whole.
    """

    path: str
    on: str


@noun
class TextSpec:
    """CSV (.csv, .tsv, .txt) and JSON lines (.jsonl, .json), also .gz, or folders of them by names and numbers.

    features, dense, labels: columns to read. missing_labels: labels that a row may lack, by a text of `nulls`, null,
    NaN or no key; it has no loss for them (docs/models.md). missing_columns: columns that files may lack,
    whose rows then have none: an empty bag, 0 or no such label; lines of JSON may lack any. number_labels: labels of
    any finite number, which a squared error fits. weight: a column with the weights of samples, by which losses and
    scores count them. positive: a label is 1 where its column is at least this, and 0 below, but for number_labels;
    none: columns hold labels, 0 to 1.
    joins: files with more columns, such as what each item is. names: of the columns of CSV files without a line that
    names them. delimiter: between the columns of CSV; none: a tab in .tsv files and a comma in others. nulls: texts of
    CSV that stand for nothing. split: train is 80 % of the rows, valid and test 10 % each, drawn from split_seed; all:
    every row. max_corrupt: rows that a rank passes over in an epoch: those with other numbers of columns, without a
    label, or with something else than a number where one belongs.
    """

    paths: tuple[str, ...]
    features: tuple[ColumnFeature, ...]
    labels: tuple[str, ...]
    dense: tuple[str, ...] = ()
    missing_labels: tuple[str, ...] = ()
    missing_columns: tuple[str, ...] = ()
    number_labels: tuple[str, ...] = ()
    weight: str | None = None
    positive: float | None = None
    joins: tuple[JoinedFile, ...] = ()
    names: tuple[str, ...] = ()
    delimiter: str | None = None
    nulls: tuple[str, ...] = ("",)
    split: Literal["train", "valid", "test", "all"] = "all"
    split_seed: int = 0
    max_corrupt: int = 100

    def __post_init__(self) -> None:
        keyed = next((each.name for each in self.features if each.key is not None), None)
        check_rules(
            None if self.paths else "paths is empty; give the files of the dataset, or their folder",
            None if self.features else "features is empty; list the columns of ids and texts",
            None if self.labels else "labels is empty; name the columns of labels",
            None if keyed is None else f"feature '{keyed}' has a key, which CSV and JSON lines have not; leave it out",
            None
            if self.delimiter is None or len(self.delimiter.encode()) == 1
            else f"delimiter is {self.delimiter!r}; it is one character",
            None if 0 <= self.split_seed < 2**63 else f"split_seed is {self.split_seed}; it must be 0 to 2^63 - 1",
            too_small("max_corrupt", self.max_corrupt),
            *unknown_labels(self),
            *wrong_missing_columns(self),
        )

    def beside(self, folder: Path) -> "TextSpec":
        """With paths that are meant from a folder."""
        return replace(
            self,
            paths=tuple(found_beside(path, folder) for path in self.paths),
            features=tuple(each.beside(folder) for each in self.features),
            joins=tuple(replace(each, path=found_beside(each.path, folder)) for each in self.joins),
        )
