"""Values that no model can learn from are refused or counted, the same by every reader; what is no data is not read."""

import gzip
import importlib
import inspect
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data.sources import NumberedSource

from recsmith.data import Batch, ColumnFeature, Dataset, ParquetSpec, check_spec, count_figures, load_spec, open_dataset
from recsmith.data.batch import DataFeature, DataSchema, JaggedIds
from recsmith.data.converting import convert_dataset
from recsmith.data.domain import CheckedSource, check_ids, in_domain, wrong_values
from recsmith.data.source import GrowingSource, RowSource, SampleBlock
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import locked_folder

pyarrow: Any = importlib.import_module("pyarrow")
parquet: Any = importlib.import_module("pyarrow.parquet")
GOOD = "\t".join(["0", *["5"] * 13, *["abcdef01"] * 26]) + "\n"


def a_spec(path: Path, **feature: Any) -> ParquetSpec:
    """The spec of files with columns item, price and clicked."""
    features = (ColumnFeature(name="item", **{"num_embeddings": 100, **feature}),)
    return ParquetSpec(paths=(str(path),), features=features, dense=("price",), labels=("clicked",))


def write(path: Path, **columns: Any) -> None:
    """A Parquet file of 6 rows, some of its columns replaced."""
    whole = {"item": list(range(6)), "price": [1.0] * 6, "clicked": [0.0, 1.0] * 3}
    parquet.write_table(pyarrow.table({**whole, **columns}), path)


@pytest.mark.parametrize("labels", [[-1.0, 1.0] * 3, [1, 5, 0, 1, 0, 1], [0.0, 1.0, float("nan"), 0.5, 1.0, 0.0]])
def test_labels_outside_0_to_1_are_corrupt_for_every_reader(tmp_path: Path, labels: list[float]):
    write(tmp_path / "a.parquet", clicked=labels)
    spec = a_spec(tmp_path)
    wrong = sum(not 0 <= label <= 1 for label in labels)
    found = check_spec(spec)
    assert (found.samples, found.corrupt) == (6 - wrong, wrong)
    assert [(each.count, each.breaks) for each in found.faults] == [(wrong, False)]
    assert "label 'clicked' outside its range (labels are 0 to 1" in found.faults[0].fault
    first = next(at for at, label in enumerate(labels) if not 0 <= label <= 1)
    assert found.examples[0].startswith(f"row {first} of part 0 of '{tmp_path / 'a.parquet'}' has label 'clicked' ")
    figures = count_figures(open_dataset(spec), 100)
    assert (figures.counted, figures.corrupt) == (6 - wrong, wrong)
    assert convert_dataset(open_dataset(spec), tmp_path / "out").corrupt == wrong
    batches = open_dataset(spec).batches(rank=0, world_size=1, batch_size=6, seed=0)
    assert all(0 <= label <= 1 for batch in batches for label in batch.labels.ravel().tolist())
    assert batches.counts.corrupt == wrong


def test_soft_labels_truth_values_and_decimals_are_labels(tmp_path: Path):
    decimal = pyarrow.array([0, 1, 0, 1, 0, 1]).cast(pyarrow.decimal128(21, 2))
    for labels in ([0.25, 0.5, 1.0, 0.0, 0.75, 0.1], [True, False] * 3, decimal):
        write(tmp_path / "a.parquet", clicked=labels)
        assert check_spec(a_spec(tmp_path)).corrupt == 0


def test_values_that_are_not_finite_are_counted_by_column(tmp_path: Path):
    inf, nan = float("inf"), float("nan")
    write(tmp_path / "a.parquet", price=[1.0, nan, inf, 2.0, 1e300, 3.0], clicked=[0.0, 1.0, 0.0, nan, 1.0, 0.0])
    found = check_spec(a_spec(tmp_path))
    counts = {each.fault.split(" outside")[0]: each.count for each in found.faults}
    assert (found.samples, found.corrupt) == (2, 4)
    assert counts == {"holds label 'clicked'": 1, "holds dense value 'price'": 3}


def test_weights_are_finite(tmp_path: Path):
    items = [[1, 2], [3], [], [4, 5], [6], [7]]
    write(
        tmp_path / "a.parquet", item=items, weight=[[1.0, 2.0], [float("nan")], [], [0.5, float("inf")], [1.0], [1.0]]
    )
    found = check_spec(a_spec(tmp_path, weights="weight"))
    assert (found.samples, found.corrupt) == (4, 2)
    assert found.examples[0].startswith("row 1 of part 0 of")
    assert "has weight of 'item' nan" in found.examples[0]


def test_the_first_wrong_sample_is_told_whatever_is_wrong_with_it():
    ones = np.ones(4, np.int32)
    ids = {"a": JaggedIds(values=np.arange(4), lengths=ones)}
    samples = Batch(
        dense=np.array([[0], [np.inf], [0], [0]], np.float32), ids=ids, label_names=("y",),
        labels=np.array([[0], [1], [2], [0]], np.float32), sample_ids=np.arange(4),
    )  # fmt: skip
    schema = DataSchema(features=(DataFeature(name="a", num_embeddings=4),), dense=("x",), labels=("y",))
    assert sorted(mask.tolist() for mask, _ in wrong_values(samples, schema).values()) == [
        [False, False, True, False],
        [False, True, False, False],
    ]
    found = in_domain(SampleBlock(samples=samples), schema, "of it")
    assert found.valid is not None
    assert found.valid.tolist() == [True, False, False, True]
    assert found.first_corrupt.startswith("row 1 of it has dense value 'x' inf")
    before = np.array([False, True, True, True])
    assert (
        in_domain(SampleBlock(samples=samples, valid=before, first_corrupt="row 0"), schema, "").first_corrupt
        == "row 0"
    )


class Rows(NumberedSource):
    """A format that reads single samples, too; sample 3 has another label than labels may be."""

    schema = DataSchema(features=(DataFeature(name="number", num_embeddings=10),), dense=(), labels=("label",))

    def lengths(self, block: int, feature: str) -> np.ndarray:
        del feature
        return np.ones(self.sizes()[block], np.int64)

    def rows(self, block: int, rows: np.ndarray) -> SampleBlock:
        found = SampleBlock(samples=super().read(block).samples.take(rows))
        found.samples.labels[found.samples.sample_ids == 3] = 7
        return found

    def earlier(self) -> dict[str, int]:
        return {"before": 1}


def test_single_samples_of_a_users_format_are_checked_as_blocks_are():
    source: Any = CheckedSource(Rows([10], max_corrupt=1), "mine:Rows")
    assert all(isinstance(source, each) for each in (RowSource, GrowingSource))
    for name in ("lengths", "rows", "earlier"):
        inspect.getattr_static(source, name)  # what isinstance looks at from Python 3.12 on
    assert not isinstance(CheckedSource(NumberedSource([10]), "mine:Numbers"), RowSource)
    with Dataset(source).batches(rank=0, world_size=1, batch_size=5, seed=0) as batches:
        read = [number for batch in batches for number in batch.sample_ids.tolist()]
        assert (sorted(read), batches.counts.corrupt) == ([0, 1, 2, 4, 5, 6, 7, 8, 9], 1)
    with pytest.raises(CorruptFile, match=r"'mine:Rows': feature 'number' holds the id 11, and its table has 10 rows"):
        CheckedSource(Rows([12]), "mine:Rows").rows(0, np.array([2, 11]))


def test_ids_of_64_bits_are_read_as_they_are_written(tmp_path: Path):
    ids = [2**64 - 1, 2**63 + 5, 3, 2**63, 7, 2**40]
    write(tmp_path / "a.parquet", item=pyarrow.array(ids, pyarrow.uint64()))
    read = open_dataset(a_spec(tmp_path, ids="modulo")).source.read(0).samples.ids["item"].values
    assert read.tolist() == [each % 100 for each in ids]
    with pytest.raises(CorruptFile, match=rf"column 'item' holds the id {2**64 - 1}, and its table has 100 rows"):
        open_dataset(a_spec(tmp_path)).source.read(0)
    (fault,) = check_spec(a_spec(tmp_path)).faults
    assert (fault.count, fault.fault.split(",")[0]) == (4, "feature 'item' has ids of 100 and more")
    small = pyarrow.array([1, 2, 3, 4, 5, 127], pyarrow.int8())
    write(tmp_path / "a.parquet", item=small)
    read = open_dataset(a_spec(tmp_path, ids="modulo", num_embeddings=1000)).source.read(0).samples.ids["item"].values
    assert read.tolist() == small.to_pylist()
    with pytest.raises(CorruptFile, match="it holds the id -1"):
        check_ids(np.array([3, -1]), 9, "it")


def test_text_is_refused_by_name_with_what_to_do(tmp_path: Path):
    write(tmp_path / "a.parquet", item=list("abcdef"))
    with pytest.raises(CorruptFile, match=r"column 'item' holds string; .* give its feature a vocabulary"):
        open_dataset(a_spec(tmp_path)).source.read(0)


@pytest.mark.parametrize("column", ["item", "price", "clicked"])
def test_parts_that_are_typed_null_hold_nulls(tmp_path: Path, column: str):
    write(tmp_path / "a.parquet")
    write(tmp_path / "b.parquet", **{column: pyarrow.nulls(6)})
    found = check_spec(a_spec(tmp_path))
    assert found.problem is None
    assert found.corrupt == (6 if column == "clicked" else 0)
    block = open_dataset(a_spec(tmp_path)).source.read(1).samples
    if column == "item":
        assert block.ids["item"].lengths.tolist() == [0] * 6
    if column == "price":
        assert block.dense.tolist() == [[0.0]] * 6
    write(tmp_path / "b.parquet", item=pyarrow.array([[]] * 6, pyarrow.list_(pyarrow.null())))
    assert open_dataset(a_spec(tmp_path)).source.read(1).samples.ids["item"].lengths.tolist() == [0] * 6


def npy(path: Path) -> None:
    np.save(path.with_suffix(".npy"), np.zeros((3, 3)))


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a.txt", GOOD)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("day_0", gzip.compress(GOOD.encode(), mtime=0), "gzip; name it so that it ends in .gz"),
        ("day_0", npy, "an array of NumPy"),
        ("day_0", zipped, "a zip archive; unpack it"),
        ("day_0", b"1 3:1 17:0.5 29:1\n0 4:1\n", "lines of libsvm"),
        ("day_0.csv", b"user,item,clicked\n1,2,0\n", "comma-separated values"),
        ("ratings.dat", b"1::1193::5::978300760\n", "lines of MovieLens 1M"),
        ("test.txt", GOOD.partition("\t")[2].encode(), "lines of 39 fields without a label"),
        ("notes.txt", b"hello\nworld\n", "lines of 1 field, and Criteo's have 40: 'hello'"),
        ("page.tsv", b"<html><body>404</body></html>", "a web page"),
        ("raw.tsv", bytes(range(7, 256)) + bytes(9), "binary data"),
    ],
)
def test_what_is_no_criteo_is_not_taken_for_it(tmp_path: Path, name: str, text: Any, message: str):
    path = tmp_path / "data" / name
    path.parent.mkdir()
    if callable(text):
        text(path)
    else:
        path.write_bytes(text)
    with pytest.raises(CorruptFile, match=f"is no click log of Criteo but {message}"):
        check_spec(load_spec(path.parent))


def test_a_file_without_a_single_sample_fails_everywhere(tmp_path: Path):
    path = tmp_path / "log.tsv"
    path.write_text(GOOD.replace("\n", "\r\n") * 3)
    found = check_spec(load_spec(path))
    assert found.problem is not None
    assert found.problem.startswith(r"no sample could be read: ")
    assert "lines end in CRLF" in found.problem
    with pytest.raises(CorruptFile, match="no sample could be read, and 3 are corrupt"):
        count_figures(open_dataset(path), 9)
    with pytest.raises(CorruptFile, match="none of 3 samples can be read, nothing is written"):
        convert_dataset(open_dataset(path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_without_an_end_is_corrupt_and_not_kept(tmp_path: Path, packed: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("recsmith.data.line_files.LARGEST_BLOCK", 10_000)
    monkeypatch.setattr("recsmith.data.line_files.CHUNK", 1000)
    text = (GOOD + "x" * 50_000 + "\n" + GOOD * 40 + "y\t" * 30_000).encode()
    path = tmp_path / ("log.gz" if packed else "log.tsv")
    path.write_bytes(gzip.compress(text) if packed else text)
    source = open_dataset(path).source
    block = source.read(0)
    assert block.valid is not None
    assert np.flatnonzero(~block.valid).tolist() == [1, 42]
    assert len(block.whole()) == 41
    assert "line 2 has 1 field, not 40: 'xxxx" in block.first_corrupt


def test_pipes_and_devices_among_the_data_are_refused(tmp_path: Path):
    (tmp_path / "day_0").write_text(GOOD)
    os.mkfifo(tmp_path / "day_1")
    with pytest.raises(UsageError, match="day_1': it is a pipe; data lies in files"):
        open_dataset(tmp_path)
    os.mkfifo(tmp_path / "a.parquet")
    with pytest.raises(UsageError, match="it is a pipe"):
        open_dataset(a_spec(tmp_path / "a.parquet"))
    with pytest.raises(UsageError, match="it is a device"):
        open_dataset(a_spec(Path("/dev/zero")))


def test_damaged_arrow_files_end_in_an_error_and_not_in_a_crash(tmp_path: Path):
    path = tmp_path / "a.arrow"
    table = pyarrow.table({"item": [[1, 2], [3], [], [4]] * 20, "price": [1.0] * 80, "clicked": [1.0] * 80})
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    good, spec = path.read_bytes(), a_spec(path)
    offsets = np.array([0, 2, 3, 3, 4], np.int32).tobytes()
    at = good.index(offsets) + 4
    path.write_bytes(good[:at] + np.array([2**31 - 1], np.int32).tobytes() + good[at + 4 :])
    with pytest.raises(CorruptFile, match="cannot be read as an Arrow file"):
        open_dataset(spec).source.read(0)


@pytest.mark.parametrize("row", ["1,2,nan,3", "1,2,-4,3", f"{2**70},2,3.0,4", "-1,2,3.0,4", "1,2,99,4"])
def test_ratings_that_are_none_end_in_one_error(tmp_path: Path, row: str):
    (tmp_path / "ratings.csv").write_text(f"userId,movieId,rating,timestamp\n1,2,3.0,4\n{row}\n")
    (tmp_path / "movies.csv").write_text("movieId,title,genres\n2,A,Drama\n\u00b2,B,Drama\n")
    with pytest.raises(CorruptFile, match=r"ratings.csv"):
        open_dataset(tmp_path)


def test_a_damaged_index_is_no_index(tmp_path: Path):
    (tmp_path / "log.tsv").write_text(GOOD * 3)
    spec = tmp_path / "spec.yaml"
    spec.write_text("format: criteo\npaths: [log.tsv]\nindex: lines.npz\n")  # beside the spec, wherever one is
    mask = os.umask(0o027)
    try:
        assert check_spec(load_spec(spec)).samples == 3
    finally:
        os.umask(mask)
    index = tmp_path / "lines.npz"
    assert index.stat().st_mode & 0o777 == 0o640
    good = dict(np.load(index))
    for begins in ([0, 0], [5, 9], [[0], [1]], [0.0, 1.0], []):
        np.savez(index, **{**good, "begins_0": np.array(begins)})
        with pytest.raises(CorruptFile, match="is not an index of lines"):
            check_spec(load_spec(spec))
    np.savez(index, **{**good, "lines": np.zeros(0, np.int64)})
    with pytest.raises(CorruptFile, match="is not an index of lines"):
        check_spec(load_spec(spec))


def test_two_conversions_do_not_write_one_folder(tmp_path: Path):
    write(tmp_path / "a.parquet")
    dataset, out = open_dataset(a_spec(tmp_path / "a.parquet")), tmp_path / "out"
    with locked_folder(out), pytest.raises(UsageError, match="another run writes to"):
        convert_dataset(dataset, out)
    assert convert_dataset(dataset, out).samples == 6


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ([5, -3, 7, 8, 9, 10], "holds the id -3, and raw ids are whole numbers from 0 on, below 2\\^63"),
        (list("abcdef"), "must hold whole numbers, or lists of them; give its feature a vocabulary"),
    ],
)
def test_raw_ids_are_whole_numbers_from_0_on(item: list[Any], words: str, tmp_path: Path):
    write(tmp_path / "part.parquet", item=item)
    source = open_dataset(a_spec(tmp_path / "part.parquet", num_embeddings=None)).source
    with pytest.raises(CorruptFile, match=words):
        source.read(0)
