"""Features under the keys of maps and structs."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsmith.data import ColumnFeature, ParquetSpec, open_dataset
from recsmith.errors import CorruptFile, UsageError

pyarrow: Any = importlib.import_module("pyarrow")
parquet: Any = importlib.import_module("pyarrow.parquet")
ROWS = [{"user": [3], "words": [1, 2]}, {}, {"words": []}, {"words": [7], "user": [1], "else": [9]}, None]


def spec_of(path: Path, column: Any, **keys: str) -> ParquetSpec:
    table = pyarrow.table({"clicked": pyarrow.array([1, 0, 0, 1, 1][: len(column)]), "ids": column})
    parquet.write_table(table, path, row_group_size=3)
    names = keys or {"user": "user", "words": "words"}
    features = tuple(ColumnFeature(name=name, column="ids", key=key, num_embeddings=10) for name, key in names.items())
    return ParquetSpec(paths=(str(path),), features=features, labels=("clicked",))


def as_maps(rows: Any, key: Any) -> Any:
    entries = [None if row is None else [(name, row[name]) for name in row] for row in rows]
    return pyarrow.array(entries, pyarrow.map_(key, pyarrow.list_(pyarrow.int64())))


def read(spec: ParquetSpec) -> dict[str, list[list[int]]]:
    dataset, found = open_dataset(spec), {each.name: [] for each in spec.features}
    for block in range(2):
        for name, bags in dataset.source.read(block).samples.ids.items():
            found[name] += [part.tolist() for part in np.split(bags.values, np.cumsum(bags.lengths)[:-1])]
    return found


@pytest.mark.parametrize("kind", ["map", "numbered map", "struct"])
def test_features_are_taken_from_maps_and_structs(tmp_path: Path, kind: str):
    numbers = {"user": 7, "words": 8, "else": 9}
    keys = {"user": "user", "words": "words"}
    if kind == "map":
        column = as_maps(ROWS, pyarrow.string())
    elif kind == "numbered map":
        column = as_maps([row and {numbers[n]: ids for n, ids in row.items()} for row in ROWS], pyarrow.int32())
        keys = {"user": "7", "words": "8"}
    else:
        column = pyarrow.array(ROWS)
    found = read(spec_of(tmp_path / "maps.parquet", column, **keys))
    assert found == {"user": [[3], [], [], [1], []], "words": [[1, 2], [], [], [7], []]}


def test_a_key_that_no_row_has_is_an_empty_bag_and_a_field_that_is_missing_an_error(tmp_path: Path):
    maps = as_maps(ROWS, pyarrow.string())
    assert read(spec_of(tmp_path / "a.parquet", maps, price="price")) == {"price": [[], [], [], [], []]}
    with pytest.raises(CorruptFile, match="column 'ids' has no field 'price'; its fields: "):
        read(spec_of(tmp_path / "b.parquet", pyarrow.array(ROWS), price="price"))


def test_a_key_twice_in_a_row_and_other_columns_are_refused(tmp_path: Path):
    twice = pyarrow.array(
        [[("user", [1]), ("user", [2])]], pyarrow.map_(pyarrow.string(), pyarrow.list_(pyarrow.int64()))
    )
    with pytest.raises(CorruptFile, match="has the key 'user' twice in a row"):
        read(spec_of(tmp_path / "a.parquet", twice))
    with pytest.raises(CorruptFile, match="holds int64; a feature with a key needs maps or structs"):
        read(spec_of(tmp_path / "b.parquet", pyarrow.array([1, 2])))
    with pytest.raises(UsageError, match="has a key and no column"):
        ColumnFeature(name="user", key="user", num_embeddings=1)
