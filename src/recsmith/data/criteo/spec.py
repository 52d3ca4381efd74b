"""Specs of Criteo's click logs."""

from typing import Literal

from recsmith._types import noun
from recsmith.data.schema import DataFeature, DataSchema
from recsmith.errors import check_rules
from recsmith.workloads import load_workload

COUNTS, CATEGORIES = 13, 26  # columns of a line, after the label


@noun
class CriteoSpec:
    """Click logs as Criteo published them: tab-separated files, plain or .gz, or a folder of them in order of names.

    A count x becomes log(1 + max(x, 0)), a missing one 0. A category is a word of 32 bits in hexadecimal; it becomes
    the row that it leaves when divided by the rows of its table, a missing one row 0, as in Facebook's DLRM.

    cardinalities: whose published rows the tables have; num_embeddings gives other ones, max_rows cuts them off.
    max_corrupt: lines that are no samples, which a rank passes over in an epoch.
    index: a file that keeps where lines begin, so that they are counted once; it is written if it is missing.
    """

    paths: tuple[str, ...]
    cardinalities: Literal["kaggle", "terabyte"] = "kaggle"
    num_embeddings: tuple[int, ...] | None = None
    max_rows: int | None = None
    max_corrupt: int = 100
    index: str | None = None

    def __post_init__(self) -> None:
        """Check counts."""
        rows = self.num_embeddings
        check_rules(
            None if self.paths else "paths is empty; give the files of the click logs, or their folder",
            None
            if rows is None or (len(rows) == CATEGORIES and min(rows) >= 1)
            else f"num_embeddings has {len(rows)} numbers; it needs {CATEGORIES}, each 1 or more",
            None
            if self.max_rows is None or self.max_rows >= 1
            else f"max_rows is {self.max_rows}; it must be at least 1",
            None if self.max_corrupt >= 0 else f"max_corrupt is {self.max_corrupt}; it must be 0 or more",
        )

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of the table of each category."""
        name = "criteo-kaggle" if self.cardinalities == "kaggle" else "criteo-1tb"
        rows = self.num_embeddings or tuple(table.num_embeddings for table in load_workload(name).tables)
        return rows if self.max_rows is None else tuple(min(each, self.max_rows) for each in rows)

    @property
    def schema(self) -> DataSchema:
        """What its samples hold; the features have the names of the built-in workloads' tables."""
        features = [
            DataFeature(name=f"cat_{column}", num_embeddings=rows, pooling_factor=1.0, single=True)
            for column, rows in enumerate(self.rows)
        ]
        dense = tuple(f"int_{column}" for column in range(COUNTS))
        return DataSchema(features=tuple(features), dense=dense, labels=("label",))
