"""Parquet and Arrow datasets: written by RecSmith, or by others with a map of columns."""

import importlib
import struct
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsmith.data import (
    Batch,
    ColumnFeature,
    Dataset,
    GeneratedFeature,
    GeneratorSpec,
    ParquetSpec,
    SessionSpec,
    open_dataset,
    write_dataset,
)
from recsmith.data.batch import concatenated
from recsmith.data.converting import convert_dataset
from recsmith.data.parquet.arrow import ColumnFile
from recsmith.errors import CorruptFile, MissingExtra, UsageError

pyarrow: Any = importlib.import_module("pyarrow")
parquet: Any = importlib.import_module("pyarrow.parquet")
SPEC = GeneratorSpec(
    num_samples=9_000,
    dense=2,
    features=(
        GeneratedFeature(name="user", num_embeddings=500),
        GeneratedFeature(name="tags", num_embeddings=40, pooling_factor=1.5, lengths="poisson"),
    ),
    sessions=SessionSpec(size=4, duplication=0.5),
)
COLUMNS: dict[str, list[Any]] = {
    "clicked": [1, 0, None, 1],
    "price": [0.5, None, 2, 3],
    "who": [3, 1, 2, None],
    "words": [[1, 2], [], None, [7]],
    "weights": [[0.5, 1], [], None, [2]],
    "title": ["a", "b", "c", "d"],
}


def column_map(path: Path, **words: Any) -> ParquetSpec:
    """How the columns of `foreign` are read."""
    return ParquetSpec(
        paths=(str(path),),
        features=(
            ColumnFeature(name="user", column="who", num_embeddings=4),
            ColumnFeature(name="words", num_embeddings=8, weights="weights"),
        ),
        dense=("price",),
        labels=("clicked",),
        **words,
    )


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A file that another program wrote."""
    path = tmp_path / "foreign.parquet"
    parquet.write_table(pyarrow.table(COLUMNS), path, row_group_size=3)
    return path


def everything(dataset: Dataset) -> Batch:
    """All samples in order of their numbers."""
    read = concatenated(list(dataset.batches(rank=0, world_size=1, batch_size=999, seed=0)))
    return read.take(np.argsort(read.sample_ids))


def test_what_is_written_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("recsmith.data.write.FILE_SAMPLES", 5000)
    monkeypatch.setattr("recsmith.data.write.GROUP_SAMPLES", 1000)
    source = open_dataset(replace(SPEC, first_sample=100))
    write_dataset(source, tmp_path / "data", session_size=4)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["data", "part-00000.parquet", "part-00001.parquet"]
    read = open_dataset(tmp_path / "data")
    assert (read.num_samples, read.schema.dense, read.schema.labels) == (9000, ("dense_0", "dense_1"), ("label",))
    wanted, found = everything(source), everything(read)
    assert np.array_equal(found.sample_ids, wanted.sample_ids)
    assert np.array_equal(found.dense, wanted.dense)
    assert np.array_equal(found.labels, wanted.labels)
    for name, bags in wanted.ids.items():
        assert np.array_equal(found.ids[name].values, bags.values)
        assert np.array_equal(found.ids[name].lengths, bags.lengths)
    table = parquet.read_table(tmp_path / "data")
    assert str(table.schema.field("user").type) == "int64"
    assert str(table.schema.field("tags").type).startswith("list<")
    assert table["session_id"].to_pylist()[:8] == [25, 25, 25, 25, 26, 26, 26, 26]


def test_columns_are_mapped_and_nulls_have_a_meaning(foreign: Path, tmp_path: Path):
    arrow = tmp_path / "foreign.arrow"
    with pyarrow.OSFile(str(arrow), "wb") as file, pyarrow.ipc.new_file(file, pyarrow.table(COLUMNS).schema) as writer:
        writer.write_table(pyarrow.table(COLUMNS), max_chunksize=3)
    for path in (foreign, arrow):
        dataset = open_dataset(column_map(path))
        assert (dataset.num_samples, dataset.source.sizes().tolist()) == (4, [3, 1])
        read = everything(dataset)
        assert read.sample_ids.tolist() == [0, 1, 3], "a row without a label is corrupt"
        assert read.dense.tolist() == [[0.5], [0.0], [3.0]]
        assert read.ids["user"].values.tolist() == [3, 1]
        assert read.ids["user"].lengths.tolist() == [1, 1, 0]
        assert read.ids["words"].values.tolist() == [1, 2, 7]
        assert read.ids["words"].weights is not None
        assert read.ids["words"].weights.tolist() == [0.5, 1, 2]


@pytest.mark.parametrize(
    ("change", "row", "said"),
    [
        ({"weights": [[1], [], None, [2]]}, 0, "has 1 weight for 2 ids of 'words'"),
        ({"weights": [[0.5, 1], [], None, [2, 3]]}, 3, "has 2 weights for 1 id of 'words'"),
        ({"weights": [[0.5, 1], [5.0], None, [2]]}, 1, "has 1 weight for 0 ids of 'words'"),
        ({"weights": [[0.5, 1], [], None, None]}, 3, "has 0 weights for 1 id of 'words'"),
        ({"weights": [[0.5, None], [], None, [2]]}, 0, "has a null among the weights of 'words'"),
        ({"words": [[None, 2], [], None, [7]]}, 0, "has a null among the ids of 'words'"),
        ({"words": [[1, 2], [], None, [None]]}, 3, "has a null among the ids of 'words'"),
        ({"weights": [[0.5, float("nan")], [], None, [2]]}, 0, "has weight of 'words' nan, and dense values and"),
    ],
)
@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_one_bad_row_is_one_corrupt_sample(tmp_path: Path, ending: str, change: dict[str, Any], row: int, said: str):
    """And it is named; the rows beside it are read with their own ids and weights."""
    path, table = tmp_path / f"foreign{ending}", pyarrow.table({**COLUMNS, "clicked": [1, 0, 0, 1], **change})
    if ending == ".arrow":
        with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    else:
        parquet.write_table(table, path)
    dataset = open_dataset(column_map(path))
    block = dataset.source.read(0)
    assert block.corrupt == 1
    assert block.first_corrupt.startswith(f"row {row} of part 0 of '{path}' {said}")
    assert list(block.causes.values()) == [1]
    read = everything(dataset)
    assert read.sample_ids.tolist() == [each for each in range(4) if each != row]
    bags = {0: [1, 2], 1: [], 2: [], 3: [7]}
    weights = {0: [0.5, 1], 1: [], 2: [], 3: [2]}
    kept = [each for each in range(4) if each != row]
    assert read.ids["words"].values.tolist() == [id_ for each in kept for id_ in bags[each]]
    assert read.ids["words"].weights is not None
    assert read.ids["words"].weights.tolist() == [weight for each in kept for weight in weights[each]]
    with pytest.raises(CorruptFile, match=rf"1 samples are corrupt, more than max_corrupt: 0 allows; row {row} "):
        everything(open_dataset(column_map(path, max_corrupt=0)))


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_parts_are_read_in_order_of_their_numbers(tmp_path: Path, ending: str):
    """Also in folders of folders; and twelve parts are ten with two more behind them."""

    def write(part: int, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        table = pyarrow.table({**COLUMNS, "clicked": [1, 0, 0, 1], "price": [float(part)] * 4})
        if ending == ".arrow":
            path = str(folder / f"part-{part}.arrow")
            with pyarrow.OSFile(path, "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
        else:
            parquet.write_table(table, folder / f"part-{part}.parquet")

    for part in range(10):
        write(part, tmp_path / f"day{part // 5}")
    before = open_dataset(column_map(tmp_path))
    for part in (10, 11):
        write(part, tmp_path / f"day{part}")
    read = open_dataset(column_map(tmp_path))
    assert [float(each) for each in everything(read).dense[::4, 0]] == list(range(12))
    source: Any = read.source
    assert source.earlier()[before.source.digest] == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"who": [3, 4, 2, 1]}, "column 'who' holds the id 4, and its table has 4 rows"),
        ({"who": [3, -1, 2, 1]}, "column 'who' holds the id -1, and its table has 4 rows; leave it out, or"),
        ({"who": [3.5, 1, 2, 1]}, "column 'who' holds double; it must hold whole numbers, or lists of them"),
        ({"weights": [["a"], [], [], []]}, "column 'weights' holds list<.*: string>; it must hold numbers, or lists"),
        ({"price": ["1", "2", "3", "4"]}, "column 'price' holds string; it must hold numbers"),
        ({"price": None}, "has no column 'price'; known: clicked, "),
        ({"clicked": None, "clicks": [1, 0, 1, 0]}, "has no column 'clicked'; did you mean 'clicks'"),
    ],
)
def test_wrong_columns_are_refused(foreign: Path, change: dict[str, Any], message: str):
    columns = {name: values for name, values in (COLUMNS | change).items() if values is not None}
    parquet.write_table(pyarrow.table(columns), foreign)
    with pytest.raises(CorruptFile, match=message):
        everything(open_dataset(column_map(foreign)))


def test_reads_that_pass_over_a_gap_read_the_same(tmp_path: Path):
    write_dataset(open_dataset(SPEC), tmp_path / "data")
    one, other = (open_dataset(ParquetSpec(paths=(str(tmp_path / "data"),), read_gap=gap)) for gap in (0, 2**20))
    assert one.source.digest == other.source.digest
    wanted, found = everything(one), everything(other)
    assert np.array_equal(found.dense, wanted.dense)
    assert all(np.array_equal(found.ids[name].values, bags.values) for name, bags in wanted.ids.items())


def test_ids_above_the_table_can_be_taken_modulo(foreign: Path):
    parquet.write_table(pyarrow.table(COLUMNS | {"who": [3, 9, -1, 2**40 + 1]}), foreign)
    spec = column_map(foreign)
    user = replace(spec.features[0], ids="modulo")
    read = everything(open_dataset(replace(spec, features=(user, spec.features[1]))))
    assert read.ids["user"].values.tolist() == [3, 1, 1]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([5.0, 4.1, None, float("nan")], [1, 1]),
        ([5, 4, None, -1], [1, 0, 0]),
        ([Decimal("5"), Decimal("4.1"), Decimal("4.0"), None], [1, 1, 0]),
        ([True, False, None, True], [1, 0, 1]),
    ],
)
def test_labels_from_a_value_on_are_1(foreign: Path, values: list[Any], labels: list[int]):
    parquet.write_table(pyarrow.table(COLUMNS | {"clicked": values}), foreign)
    assert everything(open_dataset(column_map(foreign, positive=4.1))).labels[:, 0].tolist() == labels


def test_ids_that_are_whole_floats_are_ids_as_pandas_has_them_beside_nulls(foreign: Path):
    parquet.write_table(pyarrow.table(COLUMNS | {"who": [3.0, 1.0, 2.0, None]}), foreign)
    assert everything(open_dataset(column_map(foreign))).ids["user"].values.tolist() == [3, 1]
    for wrong in (2.5, float("nan"), 2.0**53):
        parquet.write_table(pyarrow.table(COLUMNS | {"who": [3.0, 1.0, wrong, None]}), foreign)
        with pytest.raises(CorruptFile, match="column 'who' holds double; it must hold whole numbers"):
            everything(open_dataset(column_map(foreign)))


def test_damaged_and_foreign_files_are_refused(foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UsageError, match=r"does not say which columns are features.*its columns: clicked, price, who"):
        open_dataset(foreign)
    foreign.write_bytes(foreign.read_bytes()[:-40])
    with pytest.raises(CorruptFile, match=r"cannot be read as a Parquet file .*; it is cut off or damaged"):
        open_dataset(column_map(foreign))
    with pytest.raises(UsageError, match="there is no such file"):
        open_dataset(tmp_path / "missing.parquet")
    with pytest.raises(UsageError, match="the column map names no labels"):
        replace(column_map(foreign), labels=())
    monkeypatch.setattr("recsmith.data.arrow.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="need pyarrow: pip install 'pyarrow>=20'"):
        open_dataset(column_map(foreign))


def test_a_failed_write_leaves_nothing_and_a_full_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    dataset = open_dataset(SPEC)
    with monkeypatch.context() as patch:
        patch.setattr("recsmith.data.write.write_parquet", full)
        with pytest.raises(Exception, match="No space left on device; make room, or give another output"):
            write_dataset(dataset, tmp_path / "data")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "data").mkdir()
    write_dataset(dataset, tmp_path / "data")
    with pytest.raises(UsageError, match="something is there; give a new folder"):
        write_dataset(dataset, tmp_path / "data")


def test_a_column_that_an_arrow_file_has_twice_is_damage(tmp_path: Path):
    ids = pyarrow.array([1, 2, 3])
    importlib.import_module("pyarrow.feather").write_feather(
        pyarrow.table([ids, ids], names=["who", "who"]), str(tmp_path / "twice.feather")
    )
    with pytest.raises(CorruptFile, match="has the column 'who' twice; write it with one of them"):
        ColumnFile(tmp_path / "twice.feather").read(0, ["who"])


def arrow_file_of(schema: Any, batch: Any) -> bytes:
    """An Arrow file whose footer and schema are of one column, and whose record batch is of another."""
    sink = pyarrow.BufferOutputStream()
    own = pyarrow.record_batch({"m": schema})
    with pyarrow.ipc.new_file(sink, own.schema) as writer:
        writer.write_batch(own)
    whole, mine = sink.getvalue().to_pybytes(), own.serialize().to_pybytes()
    other = pyarrow.record_batch({"m": batch}).serialize().to_pybytes()
    at = whole.index(mine)

    def block(message: bytes) -> bytes:  # of the footer: where a batch begins, its metadata and its body
        head = 8 + int.from_bytes(message[4:8], "little")
        return struct.pack("<qiiq", at, head, 0, len(message) - head)

    tail = whole[at + len(mine) :]
    assert tail.count(block(mine)) == 1
    return whole[:at] + other + tail.replace(block(mine), block(other))


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([[{"key": "a", "value": 1}], [{"key": "b", "value": 2}]], None),
        ([[{"key": "a", "value": 1}, None], []], "child array should have no nulls"),
        ([[{"key": "a", "value": 1}], [{"key": None, "value": 2}]], "keys array should have no nulls"),
    ],
)
def test_maps_with_null_entries_are_damage(tmp_path: Path, entries: Any, said: str | None):
    """pyarrow itself would end the process, were it to look at such a column."""
    maps = pyarrow.array([[("a", 1)], [("b", 2)]], pyarrow.map_(pyarrow.string(), pyarrow.int64()))
    fields = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.int64())])
    path = tmp_path / "m.arrow"
    path.write_bytes(arrow_file_of(maps, pyarrow.array(entries, pyarrow.list_(fields))))
    if said is None:
        assert ColumnFile(path).read(0, ["m"])["m"].to_pylist() == [[("a", 1)], [("b", 2)]]
    else:
        with pytest.raises(CorruptFile, match=said):
            ColumnFile(path).read(0, ["m"])


def test_column_names_that_are_no_text_are_damage(tmp_path: Path):
    path = tmp_path / "n.arrow"
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, pyarrow.schema({"clicked": "int8"})) as it:
        it.write_table(pyarrow.table({"clicked": pyarrow.array([1], "int8")}))
    path.write_bytes(path.read_bytes().replace(b"clicked", b"cli\xdfked"))
    with pytest.raises(CorruptFile, match="cannot be read as an Arrow file"):
        ColumnFile(path)


def test_a_part_without_the_ids_that_its_schema_promises_is_damage(tmp_path: Path):
    out = tmp_path / "out"
    write_dataset(
        open_dataset(GeneratorSpec(num_samples=20, features=(GeneratedFeature(name="who", num_embeddings=9),))), out
    )
    (part,) = out.glob("*.parquet")
    table = parquet.read_table(part)
    at = table.column_names.index("who")
    parquet.write_table(table.set_column(at, table.field(at), pyarrow.nulls(20, table.field(at).type)), part)
    for read in (lambda: open_dataset(out).source.read(0), lambda: convert_dataset(open_dataset(out), tmp_path / "b")):
        with pytest.raises(CorruptFile, match="has rows without an id of 'who', and says that each has one"):
            read()
