"""Columns that some files lack, as of before a feature was added: all formats of files with columns read them alike."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsmith.data import ColumnFeature, ParquetSpec, TextSpec, open_dataset
from recsmith.data.batch import concatenated
from recsmith.data.checking import check_spec
from recsmith.errors import CorruptFile, UsageError

pyarrow: Any = importlib.import_module("pyarrow")
OLD: dict[str, list[Any]] = {"user": [3, 1], "clicked": [1, 0]}
LATE: dict[str, list[Any]] = {"late": [5, 2], "price": [0.5, 2.0], "bought": [0, 1]}
MAY_LACK = ("late", "price", "bought")


def written(path: Path, columns: dict[str, list[Any]]) -> None:
    table = pyarrow.table(columns)
    if path.suffix == ".csv":
        importlib.import_module("pyarrow.csv").write_csv(table, path)
    elif path.suffix == ".parquet":
        importlib.import_module("pyarrow.parquet").write_table(table, path)
    else:
        importlib.import_module("pyarrow.feather").write_feather(table, path)


def spec(folder: Path, ending: str, **words: Any) -> Any:
    features = (ColumnFeature(name="user", num_embeddings=4), ColumnFeature(name="late", num_embeddings=9))
    return (TextSpec if ending == "csv" else ParquetSpec)(
        paths=(str(folder),), features=features, dense=("price",), labels=("clicked", "bought"),
        missing_labels=("bought",), **words,
    )  # fmt: skip


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv"])
def test_a_file_that_lacks_columns_has_none_of_them(tmp_path: Path, ending: str):
    written(tmp_path / f"part-1.{ending}", OLD)
    written(tmp_path / f"part-2.{ending}", OLD | LATE)
    with pytest.raises(
        CorruptFile,
        match=rf"part-1\.{ending}' has no column 'late'; known: .*, name it in missing_columns",
    ):
        open_dataset(spec(tmp_path, ending))
    with pytest.raises(CorruptFile, match="has no column 'bought'"):
        open_dataset(spec(tmp_path, ending, missing_columns=MAY_LACK[:2]))
    written(tmp_path / f"part-3.{ending}", {"user": [1], "late": [1]} | {"price": [0.5], "bought": [1]})
    with pytest.raises(CorruptFile, match="has no column 'clicked'") as needed:
        open_dataset(spec(tmp_path, ending, missing_columns=MAY_LACK))
    assert "missing_columns" not in str(needed.value)  # which would be refused
    (tmp_path / f"part-3.{ending}").unlink()
    wanted = spec(tmp_path, ending, missing_columns=MAY_LACK)
    dataset = open_dataset(wanted)
    found = concatenated(list(dataset.batches(rank=0, world_size=1, batch_size=9, seed=0, shuffle=False)))
    assert found.ids["late"].lengths.tolist() == [0, 0, 1, 1]
    assert found.ids["late"].values.tolist() == [5, 2]
    assert found.ids["user"].values.tolist() == [3, 1, 3, 1]
    assert found.dense[:, 0].tolist() == [0, 0, 0.5, 2]
    np.testing.assert_array_equal(found.labels, [[1, np.nan], [0, np.nan], [1, 0], [0, 1]])
    assert dataset.note.startswith(
        "column 'late' is not in 1 of 2 files, whose samples have none of it; column 'price'"
    )
    checked = check_spec(wanted)
    assert (checked.samples, checked.corrupt, [each for each in checked.faults if each.breaks]) == (4, 0, [])
    assert dataset.source.digest != open_dataset(spec(tmp_path / f"part-2.{ending}", ending)).source.digest


def test_no_sample_can_do_without_other_columns(tmp_path: Path):
    for ending in ("parquet", "csv"):
        for name in ("clicked", "latte", "file"):
            with pytest.raises(UsageError, match=rf"missing_columns names '{name}'.*; files may lack columns of feat"):
                spec(tmp_path, ending, missing_columns=(name,))
