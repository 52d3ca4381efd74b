"""Specs of Parquet and Arrow datasets: which column is what."""

from typing import Literal

from recsmith._types import noun
from recsmith.errors import check_rules

SCHEMA_KEY = b"recsmith.dataset"  # of a file's metadata: its DataSchema as JSON


def weights_column(feature: str) -> str:
    """The column in which RecSmith writes the weights of a feature's ids."""
    return f"{feature}_weights"


@noun
class ParquetFeature:
    """A feature and its column: whole numbers, or lists of them for bags.

    column: where it has another name than the feature. weights: a column of as many weights.
    key: of a column of maps or structs that holds many features; `column` is its name then.
    num_embeddings: rows of its table. ids: `exact` ones are 0 to num_embeddings - 1 or an error; `modulo` takes the
    rest of
        any whole number when divided by num_embeddings.
    """

    name: str
    num_embeddings: int
    column: str | None = None
    weights: str | None = None
    key: str | None = None
    ids: Literal["exact", "modulo"] = "exact"

    def __post_init__(self) -> None:
        """Check ranges."""
        check_rules(
            None
            if self.num_embeddings >= 1
            else f"num_embeddings of feature '{self.name}' is {self.num_embeddings}; it must be at least 1",
            f"feature '{self.name}' has a key and no column; give the column of maps or structs that the key is in"
            if self.key is not None and self.column is None
            else None,
        )


@noun
class ParquetSpec:
    """Parquet or Arrow files (.arrow, .feather), or folders of them in the order of their names.

    features, dense, labels: columns to read; all empty takes what `recsmith data generate` wrote into the files.
    sample_id: a column with the numbers of samples; without it they are counted along the files.
    An empty id or list is an empty bag, an empty dense value 0; a row without a label is corrupt.
    max_corrupt: such rows, which a rank passes over in an epoch.
    read_gap: bytes between two wanted columns up to which one read takes both and what lies between them; for stores
        where a read costs more than its bytes.
    """

    paths: tuple[str, ...]
    features: tuple[ParquetFeature, ...] = ()
    dense: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    sample_id: str | None = None
    max_corrupt: int = 100
    read_gap: int = 0

    def __post_init__(self) -> None:
        """Check that there is something to read."""
        some = bool(self.features or self.dense or self.labels)
        check_rules(
            None if self.paths else "paths is empty; give the files of the dataset, or their folder",
            None if self.max_corrupt >= 0 else f"max_corrupt is {self.max_corrupt}; it must be 0 or more",
            None if self.read_gap >= 0 else f"read_gap is {self.read_gap}; it must be 0 or more",
            "the column map names no features; list them, or leave features, dense and labels out"
            if some and not self.features
            else None,
            "the column map names no labels; list at least one, or leave features, dense and labels out"
            if some and not self.labels
            else None,
        )
