"""What a spec says of Parquet and Arrow files."""

from dataclasses import replace
from pathlib import Path

from recsmith._types import noun
from recsmith.data.batch import unknown_labels
from recsmith.data.columns.features import ColumnFeature, wrong_missing_columns
from recsmith.data.source import found_beside
from recsmith.errors import check_rules, too_small

SCHEMA_KEY = b"recsmith.dataset"  # of a file's metadata: its DataSchema as JSON


def weights_column(feature: str) -> str:
    """The column in which RecSmith writes the weights of a feature's ids."""
    return f"{feature}_weights"


@noun
class ParquetSpec:
    """Parquet or Arrow files (.arrow, .feather), or folders of them by names and numbers (part-2 before part-10).

    features, dense, labels: columns to read; all empty takes what `recsmith data generate` wrote into the files.
    missing_labels: labels that a row may lack, by null or NaN; it has no loss for them (docs/models.md).
    missing_columns: columns that files may lack, whose rows then have none: an empty bag, 0 or no such label.
    number_labels: labels of any finite number, which a squared error fits; others are 0 to 1.
    weight: a column with the weights of samples, by which losses and scores count them.
    positive: a label is 1 where its column is at least this, and 0 below, but for number_labels; none: columns hold
        labels, 0 to 1.
    sample_id: a column with the numbers of samples; without it they are counted along the files.
    An empty id or list is an empty bag, an empty dense value 0; a row is corrupt without a label, with a null in a
    list, or with other than one weight an id.
    max_corrupt: such rows, which a rank passes over in an epoch.
    read_gap: bytes between two wanted columns up to which one read takes both and what lies between them; for stores
        where a read costs more than its bytes.
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
        """Check that there is something to read."""
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
        """With paths that are meant from a folder."""
        paths = tuple(found_beside(path, folder) for path in self.paths)
        return replace(self, paths=paths, features=tuple(each.beside(folder) for each in self.features))
