"""The spec of CSV and JSON-lines files."""

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
    """A CSV or Parquet file whose columns are joined to each row of the data by the value of a common column.

    on: the column that both have. A row whose value is not in the file gets nulls. The file is read into memory.
    """

    path: str
    on: str


@noun
class TextSpec:
    """CSV (.csv, .tsv, .txt) or JSON lines (.jsonl, .json), also .gz, or folders of them, by names and numbers.

    features, dense, labels: columns to read. missing_labels: labels that a row may lack, by a text of `nulls`, null,
    NaN or a missing key; the row then has no loss for them (docs/models.md). missing_columns: columns that files may
    lack; their rows then have an empty bag, the dense value 0 or a missing label. JSON lines may lack any key.
    number_labels: labels that are any finite number, fitted by squared error. weight: the column of sample weights,
    used in losses and scores. positive: a label is 1 if its column is at least this value, else 0, except for
    number_labels; none: columns hold labels, 0 to 1.
    joins: files with further columns, such as attributes of items. names: column names of CSV files without a header
    line. delimiter: separator of CSV columns; none: a tab in .tsv files and a comma in others. nulls: texts in CSV that
    stand for a missing value. split: train is 80 % of the rows, valid and test 10 % each, drawn from split_seed; all:
    every row. max_corrupt: how many corrupt rows a rank skips in an epoch: rows with a wrong number of columns, without
    a label, or with another value where a number belongs.
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
        """The spec with its paths resolved in this folder, if they do not exist in the working directory."""
        return replace(
            self,
            paths=tuple(found_beside(path, folder) for path in self.paths),
            features=tuple(each.beside(folder) for each in self.features),
            joins=tuple(replace(each, path=found_beside(each.path, folder)) for each in self.joins),
        )
