"""The spec of Parquet and Arrow files."""

from dataclasses import replace
from pathlib import Path

from recsmith._types import noun
from recsmith.data.batch import unknown_labels
from recsmith.data.columns.features import ColumnFeature, wrong_missing_columns
from recsmith.data.source import found_beside
from recsmith.errors import check_rules, too_small

SCHEMA_KEY = b"recsmith.dataset"  # metadata key of a file's DataSchema as JSON


def weights_column(feature: str) -> str:
    """The column in which RecSmith writes the weights of a feature's ids."""
    return f"{feature}_weights"


@noun
class ParquetSpec:
    """Parquet or Arrow files (.arrow, .feather), or folders of them by names and numbers (part-2 before part-10).

    features, dense, labels: columns to read; if all are empty, the schema that RecSmith wrote into the files is used.
    missing_labels: labels that a row may lack, by null or NaN; the row then has no loss for them (docs/models.md).
    missing_columns: columns that files may lack; their rows then have an empty bag, the dense value 0 or a missing
        label.
    number_labels: labels that are any finite number, fitted by squared error; other labels are 0 to 1.
    weight: the column of sample weights, used in losses and scores.
    positive: a label is 1 if its column is at least this value, else 0, except for number_labels; none: columns hold
        labels, 0 to 1.
    sample_id: the column of sample numbers; if none, samples are numbered along the files.
    A null id or list is an empty bag, a null dense value is 0. A row is corrupt if it has no label, a null in a list,
    or not exactly one weight per id.
    max_corrupt: how many corrupt rows a rank skips in an epoch.
    read_gap: largest distance in bytes between two wanted columns that are read in one request, with the bytes between
        them; for stores where a request costs more than its bytes.
    """

    paths: tuple[str, ...]
    features: tuple[ColumnFeature, ...] = ()
    dense: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    missing_labels: tuple[str, ...] = ()
    missing_columns: tuple[str, ...] = ()
    number_labels: tuple[str, ...] = ()
    weight: str | None = None
    positive: float | None = None
    sample_id: str | None = None
    max_corrupt: int = 100
    read_gap: int = 0

    def __post_init__(self) -> None:
        """Check the values, and that features and labels are named if any column is."""
        some = bool(self.features or self.dense or self.labels)
        check_rules(
            None if self.paths else "paths is empty; give the files of the dataset, or their folder",
            too_small("max_corrupt", self.max_corrupt),
            too_small("read_gap", self.read_gap),
            "the column map names no features; list them, or leave features, dense and labels out"
            if some and not self.features
            else None,
            "the column map names no labels; list at least one, or leave features, dense and labels out"
            if some and not self.labels
            else None,
            *unknown_labels(self),
            *(wrong_missing_columns(self) if some else ()),
        )

    def beside(self, folder: Path) -> "ParquetSpec":
        """The spec with its paths resolved in this folder, if they do not exist in the working directory."""
        paths = tuple(found_beside(path, folder) for path in self.paths)
        return replace(self, paths=paths, features=tuple(each.beside(folder) for each in self.features))
