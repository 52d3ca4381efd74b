"""CSV and JSON lines: the same samples as Python's own readers find, and a row that is wrong is one corrupt sample."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from recsmith.data import Batch, ColumnFeature, JoinedFile, TextSpec, check_spec, make_vocabularies, open_dataset
from recsmith.data.batch import concatenated
from recsmith.errors import CorruptFile, UsageError

ROWS: list[dict[str, Any]] = [
    {"user": at % 5, "title": f'a "{at % 3}",\nb', "tags": "|".join(["x", "y", "z"][: at % 4]), "price": at / 4,
     "when": f"2009-12-14 02:52:{at % 60:02}", "stars": at % 6}
    for at in range(500)
]  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in which the test runs, with blocks of 64 lines, quoted line ends and all."""
    monkeypatch.chdir(tmp_path)
    for module in ("line_files", "text.source"):
        monkeypatch.setattr(f"recsmith.data.{module}.BLOCK_LINES", 64)
    write_csv("rows.csv")
    Path("rows.jsonl").write_text("".join(json.dumps(each) + "\n" for each in ROWS))
    with gzip.open("packed.csv.gz", "wb") as file:
        file.write(Path("rows.csv").read_bytes())
    make_vocabularies([spec("rows.csv")], Path("v"))


def write_csv(name: str, rows: list[dict[str, Any]] = ROWS) -> None:
    with Path(name).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(rows)


def spec(path: str, **words: Any) -> TextSpec:
    features = (
        ColumnFeature(name="user", num_embeddings=5),
        ColumnFeature(name="title", vocabulary="v/title.arrow"),
        ColumnFeature(name="tags", vocabulary="v/tags.arrow", separator="|"),
        ColumnFeature(name="when", ids="seconds"),
    )
    given = {"features": features, "dense": ("price",), "labels": ("stars",), "positive": 4.0, **words}
    return TextSpec(paths=(path,), **given)


def everything(made: Any) -> Batch:
    """All samples in order of their numbers."""
    read = concatenated(list(open_dataset(made).batches(rank=0, world_size=1, batch_size=99, seed=0)))
    return read.take(np.argsort(read.sample_ids))


@pytest.mark.parametrize("path", ["rows.csv", "rows.jsonl", "packed.csv.gz"])
def test_rows_are_samples(path: str):
    read = everything(spec(path))
    assert read.sample_ids.tolist() == list(range(500))
    assert read.ids["user"].values.tolist() == [each["user"] for each in ROWS]
    assert read.dense[:, 0].tolist() == [each["price"] for each in ROWS]
    assert read.labels[:, 0].tolist() == [float(each["stars"] >= 4) for each in ROWS]
    assert read.ids["when"].values.tolist()[:2] == [1260759120, 1260759121]
    assert read.ids["tags"].lengths.tolist() == [at % 4 for at in range(500)]
    assert read.ids["tags"].values.tolist()[:6] == [1, 1, 2, 1, 2, 3], "x is the most frequent one"
    assert len(set(read.ids["title"].values.tolist())) == 3
    assert read.ids["title"].values.min() == 1


def test_a_wrong_row_is_one_corrupt_sample():
    rows = [*ROWS[:70], {**ROWS[70], "price": "cheap"}, {**ROWS[71], "stars": None}, *ROWS[72:]]
    write_csv("rows.csv", rows)
    with Path("rows.csv").open("a") as file:
        file.write("1,only three,columns\n")
    found = check_spec(spec("rows.csv"))
    assert (found.samples, found.corrupt, found.problem) == (498, 3, None)
    assert "has 'cheap' in column 'price', which is no number" in found.examples[0]
    assert {each.fault: each.count for each in found.faults} == {
        "holds rows without a number in 'price'": 1, "holds rows without a label": 1,
        "holds lines with another number of columns": 1,
    }  # fmt: skip
    assert 70 not in everything(spec("rows.csv")).sample_ids
    text = Path("rows.jsonl").read_text().splitlines()
    text[3], text[9] = '{"user": 1, "pri', json.dumps({**ROWS[9], "price": "cheap"})
    Path("rows.jsonl").write_text("\n".join(text))
    found = check_spec(spec("rows.jsonl"))
    assert (found.samples, found.corrupt) == (498, 2)
    assert "is no object of JSON" in found.examples[0]
    with pytest.raises(CorruptFile, match="2 samples are corrupt, more than max_corrupt: 1 allows"):
        everything(spec("rows.jsonl", max_corrupt=1))


def test_the_split_loses_nothing():
    parts = {name: everything(spec("rows.csv", split=name)).sample_ids.tolist() for name in ("train", "valid", "test")}
    assert sorted(each for part in parts.values() for each in part) == list(range(500))
    assert abs(len(parts["train"]) - 400) < 10
    assert everything(spec("rows.csv", split="test", split_seed=1)).sample_ids.tolist() != parts["test"]


def test_a_split_counts_and_shows_its_own_corrupt_rows():
    write_csv("rows.csv", [*ROWS[:70], *({**each, "price": "cheap"} for each in ROWS[70:90]), *ROWS[90:]])
    found = check_spec(spec("rows.csv", split="test"))
    held = open_dataset(spec("rows.csv", split="test")).source.read(1)
    numbers = held.samples.sample_ids[(held.samples.sample_ids >= 70) & (held.samples.sample_ids < 90)]
    assert 0 < len(numbers) < 20
    assert 70 not in numbers, "the row that the block's own example is about"
    assert (found.corrupt, [each.count for each in found.faults]) == (len(numbers), [len(numbers)])
    assert found.examples == (f"sample {numbers[0]} is corrupt, one of: rows without a number in 'price'",)


def test_columns_are_joined_by_the_value_of_one():
    Path("users.csv").write_text('user,city\n0,Rome\n1,"Oslo, S"\n2,\n4,Rome\n')
    city = ColumnFeature(name="city", vocabulary="v2/city.arrow")
    made = spec("rows.csv", features=(city,), joins=(JoinedFile(path="users.csv", on="user"),))
    make_vocabularies([made], Path("v2"))
    read = everything(made)
    assert read.ids["city"].lengths.tolist() == [int(each["user"] not in (2, 3)) for each in ROWS]
    assert read.ids["city"].values.tolist()[:3] == [1, 2, 1]
    for text, message in (
        ("user,city\n1,a\n1,b\n", r"'users.csv' has '1' twice in column 'user'"),
        ("who,city\n1,a\n", r"'users.csv' has no column 'user'; known: who, city"),
    ):
        Path("users.csv").write_text(text)
        with pytest.raises(CorruptFile, match=message):
            open_dataset(made)


def test_what_does_not_fit_is_refused():
    with pytest.raises(CorruptFile, match=r"'rows.csv' has no column 'pric'; did you mean 'price'"):
        open_dataset(spec("rows.csv", dense=("pric",)))
    with pytest.raises(UsageError, match="delimiter is ';;'; it is one character"):
        spec("rows.csv", delimiter=";;")
    Path("bad.csv").write_bytes(Path("rows.csv").read_bytes().replace(b"a ", b"\xff "))
    with pytest.raises(CorruptFile, match=r"'bad.csv' cannot be read as CSV in UTF-8: .*invalid UTF8"):
        open_dataset(spec("bad.csv")).source.read(0)
    with pytest.raises(CorruptFile, match=r"'rows.csv': column 'title' holds something that is no time"):
        open_dataset(spec("rows.csv", features=(ColumnFeature(name="title", ids="seconds"),))).source.read(0)
    Path("mixed.jsonl").write_text('{"tags": "x", "stars": 1}\n{"tags": 3, "stars": 1}\n')
    mixed = spec("mixed.jsonl", features=(ColumnFeature(name="tags", vocabulary="v/tags.arrow"),), dense=())
    with pytest.raises(CorruptFile, match="column 'tags' holds values of several kinds"):
        open_dataset(mixed).source.read(0)


def test_a_file_without_names_of_columns():
    Path("bare.tsv").write_text("1\t0\n3\t5\n")
    made = TextSpec(paths=("bare.tsv",), names=("id", "y"), features=(ColumnFeature(name="id", num_embeddings=4),),
                    labels=("y",), positive=1)  # fmt: skip
    read = everything(made)
    assert (read.ids["id"].values.tolist(), read.labels[:, 0].tolist()) == ([1, 3], [0.0, 1.0])


LABELS = {"clicked": [1, 0, None, 1, 4], "bought": [1, None, None, float("nan"), 0], "seconds": [31.5, -2, 7, None, 2]}


def labels_of(path: str, **words: Any) -> TextSpec:
    told = {"missing_labels": ("clicked", "bought", "seconds"), "number_labels": ("seconds",), **words}
    features = (ColumnFeature(name="id", num_embeddings=5),)
    return TextSpec(paths=(path,), features=features, labels=tuple(LABELS), **told)


def write_labels(path: str) -> None:
    rows = [{"id": at, **{name: values[at] for name, values in LABELS.items()}} for at in range(5)]
    if path.endswith(".jsonl"):
        lacking = [{key: value for key, value in row.items() if value == value} for row in rows]  # without NaN
        lacking[1].pop("bought")
        Path(path).write_text("".join(json.dumps(each) + "\n" for each in lacking))
        return
    with Path(path).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.parametrize("path", ["labels.csv", "labels.jsonl"])
def test_a_row_may_lack_labels_and_labels_may_be_numbers_as_in_parquet(path: str):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from recsmith.data import ParquetSpec

    write_labels(path)
    columns = {"id": range(5), **{name: [float(x) if x is not None else None for x in LABELS[name]] for name in LABELS}}
    pq.write_table(pa.table({name: list(values) for name, values in columns.items()}), "labels.parquet")
    made = labels_of(path)
    told = {"missing_labels": made.missing_labels, "number_labels": made.number_labels, "max_corrupt": 1}
    parquet = ParquetSpec(paths=("labels.parquet",), features=made.features, labels=made.labels, **told)
    read, expected = everything(made), everything(parquet)  # clicked is 4 in the last row, which is corrupt
    assert read.sample_ids.tolist() == expected.sample_ids.tolist() == [0, 1, 2, 3]
    nan = float("nan")
    assert np.array_equal(read.labels, expected.labels, equal_nan=True)
    assert np.array_equal(read.labels, [[1, 1, 31.5], [0, nan, -2], [nan, nan, 7], [1, nan, nan]], equal_nan=True)


def test_labels_from_a_value_on_leave_numbers_and_what_is_missing_alone():
    write_labels("labels.csv")
    read = everything(labels_of("labels.csv", positive=1.0))
    nan = float("nan")
    expected = [[1, 1, 31.5], [0, nan, -2], [nan, nan, 7], [1, nan, nan], [1, 0, 2]]
    assert np.array_equal(read.labels, expected, equal_nan=True)
    found = check_spec(labels_of("labels.csv", positive=1.0, missing_labels=("bought",)))
    assert (found.samples, found.corrupt) == (3, 2)
    assert "has no label" in found.examples[0]


def test_a_row_without_any_label_is_corrupt():
    Path("none.csv").write_text("id,clicked,bought,seconds\n1,,,\n2,,,3\n")
    found = check_spec(labels_of("none.csv"))
    assert (found.samples, found.corrupt) == (1, 1)
    assert "has no label; samples have one at least" in found.examples[0]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_true_false_and_whole_floats_are_read_as_pandas_writes_them(ending: str):
    path = f"frame.{ending}"
    Path("frame.csv").write_text("user,price,stars\n42.0,True,true\n,False,FALSE\n7.0,0.5,1\n4.5,1,1\n")
    rows = [(42.0, True, True), (None, False, False), (7.0, 0.5, 1), (4.5, 1, 1)]
    lines = [json.dumps(dict(zip(("user", "price", "stars"), row, strict=True))) for row in rows]
    Path("frame.jsonl").write_text("\n".join(lines[:3]) + "\n")
    made = spec(path, features=(ColumnFeature(name="user", num_embeddings=50),), positive=None)
    read = everything(made)
    assert read.ids["user"].values.tolist() == [42, 7]
    assert read.ids["user"].lengths.tolist() == [1, 0, 1]
    assert (read.dense[:, 0].tolist(), read.labels[:, 0].tolist()) == ([1, 0, 0.5], [1, 0, 1])
    if ending == "csv":
        assert "has '4.5' in column 'user', which is no whole number of 64 bits" in check_spec(made).examples[0]


def test_hashed_ids_of_64_bits_can_be_taken_modulo():
    user = ColumnFeature(name="user", num_embeddings=10, ids="modulo")
    Path("hashed.csv").write_text(f"user,stars\n{2**64 - 1},1\n{2**63 + 1},0\n7,1\n")
    read = everything(spec("hashed.csv", features=(user,), dense=()))
    assert read.ids["user"].values.tolist() == [(2**64 - 1) % 10, (2**63 + 1) % 10, 7]
    Path("hashed.csv").write_text(f"user,stars\n{2**64},1\n{2**63},0\n-7,1\n")
    found = check_spec(spec("hashed.csv", features=(user,), dense=()))
    assert (found.samples, found.corrupt) == (1, 2)
    assert "has '18446744073709551616' in column 'user', which is no whole number of 64 bits" in found.examples[0]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.csv", b"user,user,stars\n1,2,1\n", "'x.csv' has the column 'user' twice; write it with one of them"),
        ("x.csv", b"", "'x.csv' begins with no line that names its columns; write it again, or leave it out"),
        ("x.csv", b"us\xe9r,stars\n1,1\n", "'x.csv' names its columns in another encoding than UTF-8; write it in"),
        ("x.json", b' [{"user": 1, "stars": 1}]', "'x.json' holds one array of JSON; write an object a line"),
    ],
)
def test_files_of_another_form_are_told_by_it(name: str, text: bytes, said: str):
    Path(name).write_bytes(text)
    with pytest.raises(CorruptFile, match=said):
        open_dataset(spec(name, features=(ColumnFeature(name="user", num_embeddings=5),), dense=()))


def test_what_spark_leaves_beside_its_files_is_no_data():
    Path("days").mkdir()
    for name in ("_SUCCESS", ".part-0.csv.crc"):
        Path("days", name).touch()
    Path("rows.csv").rename("days/part-0.csv")
    assert len(everything(spec("days")).sample_ids) == 500
