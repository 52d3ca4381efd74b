"""Drafts of runs: what columns seem to be, and that a draft is a run that reads the data."""

import csv
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from recsmith.advising.drafting import drafted_run
from recsmith.data import make_vocabularies, open_dataset, spec_from_raw
from recsmith.errors import CorruptFile, UsageError
from recsmith.training import load_run

pyarrow: Any = importlib.import_module("pyarrow")
parquet: Any = importlib.import_module("pyarrow.parquet")
ROWS: list[dict[str, Any]] = [
    {"row key": f"r{at}", "who: he": 10**9 + at % 7, "tags": "|".join("ABC"[: at % 3 + 1]), "price": 1.5 + at % 4,
     "views": 1.0 if at % 50 else 1e6, "created_at": f"2009-12-14 02:52:{at % 60:02}", "empty": None, "clicked": at % 2}
    for at in range(300)
]  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Path("a.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS)
    lists = [{**each, "tags": each["tags"].split("|")} for each in ROWS]
    Path("b.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lists))
    parquet.write_table(pyarrow.Table.from_pylist(lists), "c.parquet")


@pytest.mark.parametrize("data", ["a.csv", "b.jsonl", "c.parquet"])
def test_a_draft_is_a_run_that_reads_the_data(data: str):
    text = drafted_run(data, "run.yaml")
    assert '# "row key" is left out: each row has another value' in text
    assert "# empty is left out: it holds nothing that a table could have rows for" in text
    assert "7 different values, 1,000,000,000 to 1,000,000,006, such as 1000000000, 1000000001" in text
    Path("run.yaml").write_text(text)
    train: Any = load_run("run.yaml").data.train
    assert (train["labels"], train["dense"]) == (["clicked"], ["price", "views"])
    assert [each["op"] for each in train["transforms"]] == ["log", "calendar", "calendar"]
    spec = spec_from_raw(train, "the draft")
    make_vocabularies([spec], Path("vocabularies"))
    schema = open_dataset(spec).schema
    rows = {each.name: each.num_embeddings for each in schema.features}
    assert rows == {"who: he": 8, "tags": 4, "created_at": 24, "created_at_weekday": 7}


def test_ids_of_another_column_have_its_vocabulary():
    rows = [{"seen": [f"sku {(at * step) % 40}" for step in (3, 7)], "item": f"sku {at % 40}", "page": at % 50,
             "place": at % 60, "referrer": 10**9 * (at % 30), "user": 10**9 * (at % 40 + 1), "clicked": at % 2}
            for at in range(300)]  # fmt: skip
    parquet.write_table(pyarrow.Table.from_pylist(rows), "d.parquet")
    text = drafted_run("d.parquet", "run.yaml")
    assert "{name: seen, vocabulary: vocabularies/item.arrow}    # 40 different values, such as sku 0" in text
    assert "; these are values of item, which has the same rows" in text
    assert "{name: user, vocabulary: vocabularies/referrer.arrow}" in text
    assert "{name: place, vocabulary: vocabularies/place.arrow}" in text, "small numbers are equal by chance"


def test_a_label_that_is_a_rating_gets_a_threshold():
    Path("r.csv").write_text("user,rating\n" + "".join(f"{at % 9},{at % 5 + 1}\n" for at in range(90)))
    assert "positive: 3 " in drafted_run("r.csv", "run.yaml")
    assert "labels: [user]" in drafted_run("r.csv", "run.yaml", label="user")


def test_a_draft_for_ratings_in_parquet_reads_them():
    stars = pyarrow.table({"user": [at % 9 for at in range(90)], "rating": [at % 5 + 1 for at in range(90)]})
    Path("days/day=1").mkdir(parents=True)
    parquet.ParquetWriter("days/day=1/a.parquet", stars.schema).close()  # a part without rows
    parquet.write_table(stars, "days/day=1/b.parquet")
    text = drafted_run("days", "run.yaml")
    Path("run.yaml").write_text(text)
    spec = spec_from_raw(load_run("run.yaml").data.train, "the draft")
    make_vocabularies([spec], Path("vocabularies"))
    labels = [block.labels.mean() for block in open_dataset(spec).batches(rank=0, world_size=1, batch_size=90, seed=0)]
    assert ("positive: 3 " in text, labels) == (True, [pytest.approx(0.6)])


def test_columns_that_no_feature_reads_as_they_are_say_why():
    columns = {
        "user": pyarrow.array([1, 2, 1]), "clicked": pyarrow.array([0, 1, 0]), "key": pyarrow.array([b"a", b"b", b"a"]),
        "pair": pyarrow.array([[1, 2], [3, 1], [1, 1]], pyarrow.list_(pyarrow.int64(), 2)),
        "vector": pyarrow.array([[0.5], [1.5], [0.5]]), "more": pyarrow.array([{"a": 1}, {"a": 2}, {"a": 1}]),
    }  # fmt: skip
    parquet.write_table(pyarrow.table(columns), "d.parquet")
    text = drafted_run("d.parquet", "run.yaml")
    assert "- {name: pair, vocabulary: vocabularies/pair.arrow}    # 3 different values" in text
    assert "# key is left out: it holds binary; cast it to text" in text
    assert "# more is left out: it holds structs; of Parquet a feature reads one `key` of them (docs/data.md)" in text
    assert "# vector is left out: it holds list<element: double>, no ids" in text


def test_whole_floats_beside_nulls_are_ids_and_times_have_their_unit():
    at = range(300)
    columns: dict[str, list[Any]] = {
        "user": [float(each % 7) if each % 5 else None for each in at], "price": [float(each % 7) for each in at],
        "event_time": [1_714_557_600_000 + each for each in at], "unix_time": [1_714_557_600.25 + each for each in at],
        "created_at": [f"2024-05-01T10:00:{each % 60:02}.000Z" for each in at], "odd": [float("nan")] * 300,
        "clicked": [each % 2 for each in at],
    }  # fmt: skip
    parquet.write_table(pyarrow.table(columns), "f.parquet")
    text = drafted_run("f.parquet", "run.yaml")
    assert "- {name: user, vocabulary: vocabularies/user.arrow}    # 7 different values, 0 to 6, such as 1, 2," in text
    assert "# odd is left out: 300 of 300 values are NaN or infinite, and such rows are corrupt" in text
    Path("run.yaml").write_text(text)
    train: Any = load_run("run.yaml").data.train
    units = {each["name"]: each["ids"] for each in train["features"] if "ids" in each}
    assert units == {"event_time": "milliseconds", "unix_time": "seconds", "created_at": "seconds"}
    assert train["dense"] == ["price"]
    spec = spec_from_raw(train, "the draft")
    make_vocabularies([spec], Path("vocabularies"))
    with open_dataset(spec).batches(rank=0, world_size=1, batch_size=300, seed=0) as batches:
        ids = next(batches).ids
    assert [set(ids[name].values.tolist()) for name in units] == [{10}] * 3, "hours"


def test_hashed_ids_of_64_bits_are_ids():
    Path("h.csv").write_text("user,clicked\n" + "".join(f"{2**64 - 1 - at % 9},{at % 2}\n" for at in range(90)))
    assert "- {name: user, vocabulary: vocabularies/user.arrow}    # 9 different values" in drafted_run("h.csv", "r")


def test_known_formats_need_no_guess(tmp_path: Path):
    (tmp_path / "ml").mkdir()
    Path("ml/ratings.csv").write_text("userId,movieId,rating,timestamp\n1,2,3,4\n")
    Path("ml/movies.csv").write_text("movieId,title,genres\n2,a,b\n")
    Path("run.yaml").write_text(drafted_run("ml", "run.yaml"))
    data = load_run("run.yaml").data
    assert (data.train["format"], data.train["split"], data.test["split"]) == ("movielens", "train", "test")


@pytest.mark.parametrize(
    ("text", "label", "message"),
    [
        ("user,age\n1,2\n2,3\n", None, "no column of 'x.csv' seems to be the label; name one with --label; it has"),
        ("user,age\n1,2\n2,3\n", "ago", "'x.csv' has no column 'ago'; did you mean 'age'"),
        ("user,name\n1,a\n1,b\n", "name", "column 'name' holds no numbers, such as a, b; a label is a number"),
        ("clicked,price\n1,2.5\n0,1.5\n", None, "no column of 'x.csv' seems to hold ids or text"),
    ],
)  # fmt: skip
def test_what_cannot_be_drafted_is_refused(text: str, label: str | None, message: str):
    Path("x.csv").write_text(text)
    with pytest.raises(UsageError, match=message):
        drafted_run("x.csv", "run.yaml", label)
    Path("twice.csv").write_text("user,user,clicked\n1,2,1\n")
    with pytest.raises(CorruptFile, match=r"'twice.csv' has the column 'user' twice; write it with one of them"):
        drafted_run("twice.csv", "run.yaml")
    with pytest.raises(UsageError, match=r"cannot read 'none.csv': there is no such file"):
        drafted_run("none.csv", "run.yaml")
    Path("x.jsonl").write_text("{nothing\n")
    with pytest.raises(CorruptFile, match=r"'x.jsonl' cannot be read: JSON parse error"):
        drafted_run("x.jsonl", "run.yaml")


def test_test_data_like_those_of_training_needs_a_mapping():
    Path("run.yaml").write_text("schema: recsmith/run/1\noutput: o\ndata: {train: a.csv, test: {like: train}}\n")
    with pytest.raises(UsageError, match=r"data.test is like 'train', which is no mapping of data.train"):
        load_run("run.yaml")
