"""Checks name every fault of every file, and count it."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from recsmith.data import ColumnFeature, GeneratedFeature, GeneratorSpec, ParquetSpec, check_spec, open_dataset
from recsmith.data.converting import FileLayout, convert_dataset
from recsmith.errors import CorruptFile

pyarrow: Any = importlib.import_module("pyarrow")
parquet: Any = importlib.import_module("pyarrow.parquet")
GOOD: dict[str, Any] = {"clicked": [1, 0], "who": [3, 1], "price": [1.0, 2.0], "title": ["a", "b"]}


def spec_of(folder: Path, files: dict[str, dict[str, Any]]) -> ParquetSpec:
    for name, columns in files.items():
        found = {column: values for column, values in (GOOD | columns).items() if values is not None}
        parquet.write_table(pyarrow.table(found), folder / f"{name}.parquet", row_group_size=1)
    return ParquetSpec(
        paths=(str(folder),),
        features=(ColumnFeature(name="user", column="who", num_embeddings=4),),
        dense=("price",),
        labels=("clicked",),
    )


@pytest.mark.parametrize(
    ("change", "fault", "count", "breaks"),
    [
        ({"who": None}, "has no column 'who'", 1, True),
        ({"who": None, "price": None, "whom": [1, 2]}, "has no columns 'who', 'price'", 2, True),
        ({"title": None}, "lacks column 'title', which the first file has", 1, False),
        ({"city": [1, 2]}, "has column 'city' more than the first file", 1, False),
        ({"who": ["3", "1"]}, "column 'who' holds string, and int64 in the first file", 1, True),
        ({"price": [1, 2]}, "column 'price' holds int64, and double in the first file", 1, False),
        ({"clicked": [True, False]}, "column 'clicked' holds bool, and int64 in the first file", 1, False),
        ({"who": [-7, -1]}, "feature 'user' has negative ids; leave them out, or give `ids: modulo`", 2, True),
        ({"who": [4, 3]}, "feature 'user' has ids of 4 and more, and its table has 4 rows; give a larger", 1, True),
        ({"who": [[None], [1]]}, "holds rows with a null among the ids of 'user'", 1, False),
    ],
)
def test_a_fault_is_named_and_counted(tmp_path: Path, change: dict[str, Any], fault: str, count: int, breaks: bool):
    found = check_spec(spec_of(tmp_path, {"a": {}, "b": change, "c": {}}))
    of_kind = [each for each in found.faults if each.fault.startswith(fault)]
    assert [(each.count, each.breaks) for each in of_kind] == [(count, breaks)]
    assert of_kind[0].file == str(tmp_path / "b.parquet")
    assert (found.problem is None) == (not breaks)
    assert found.samples >= 4, "the other files are read all the same"


def test_damaged_files_hide_no_others(tmp_path: Path):
    spec = spec_of(tmp_path, {name: {} for name in "abcd"})
    for name in "ab":
        path = tmp_path / f"{name}.parquet"
        path.write_bytes(path.read_bytes()[:-40])
    (tmp_path / "c.parquet").write_bytes(b"")
    found = check_spec(spec)
    assert (found.samples, len(found.faults), found.problem is None) == (2, 3, False)
    assert all("cut off or damaged" in each.fault for each in found.faults)
    (tmp_path / "d.parquet").unlink()
    assert (check_spec(spec).samples, len(check_spec(spec).faults)) == (0, 3)


def test_pages_that_are_damaged_are_told_of_part_by_part(tmp_path: Path):
    spec = spec_of(tmp_path, {"a": {name: values * 1000 for name, values in GOOD.items()}})
    path = tmp_path / "a.parquet"
    table = pyarrow.parquet.read_table(path)
    parquet.write_table(table, path, row_group_size=1000, compression="zstd")
    chunk = parquet.read_metadata(path).row_group(1).column(1)
    data = bytearray(path.read_bytes())
    at = chunk.dictionary_page_offset or chunk.data_page_offset
    data[at : at + chunk.total_compressed_size] = b"\0" * chunk.total_compressed_size
    path.write_bytes(data)
    found = check_spec(spec)
    assert (found.samples, found.blocks, found.problem is None) == (1000, 2, False)
    (fault,) = found.faults
    assert (fault.file, fault.count) == (str(path), 1000)
    assert fault.fault.startswith("cannot be read as a Parquet file")


def test_a_column_that_stands_twice_is_a_fault(tmp_path: Path):
    spec = spec_of(tmp_path, {"a": {}})
    twice = pyarrow.table([[1, 0], [3, 1], [3, 2], [1.0, 2.0]], names=["clicked", "who", "who", "price"])
    parquet.write_table(twice, tmp_path / "b.parquet")
    found = check_spec(spec)
    assert (found.samples, found.problem is None) == (2, False)
    assert "has the column 'who' twice; write it with one of them" in [each.fault for each in found.faults]


def test_files_are_compared_with_the_manifest(tmp_path: Path):
    source = open_dataset(GeneratorSpec(num_samples=9000, features=(GeneratedFeature(name="user", num_embeddings=9),)))
    convert_dataset(source, tmp_path / "data", FileLayout(file_samples=3000))
    spec = ParquetSpec(paths=(str(tmp_path / "data"),))
    assert check_spec(spec).faults == ()
    (tmp_path / "data" / "part-00001.parquet").rename(tmp_path / "data" / "other.parquet")
    found = check_spec(spec)
    assert [(Path(each.file).name, each.count, each.breaks) for each in found.faults] == [
        ("part-00001.parquet", 4096, True),
        ("other.parquet", 1, False),
    ]
    (tmp_path / "data" / "_manifest.json").write_text("{}")
    with pytest.raises(CorruptFile, match="names no schema"):
        check_spec(spec)
