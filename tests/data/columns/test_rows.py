"""Raw rows are the samples that files of them hold, however they are given; what data could not hold is refused."""

import csv
import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsmith.data import Batch, make_vocabularies, open_dataset, spec_from_raw
from recsmith.data.columns.rows import RawRowReader, keep_vocabularies, vocabularies_in
from recsmith.errors import RecSmithError, UsageError

pyarrow: Any = importlib.import_module("pyarrow")
ROWS: list[dict[str, Any]] = [
    {"user": 10**12 + at % 7, "title": f"film {at % 5}", "genres": ["A|B", "", "none", "B"][at % 4], "price": at / 8,
     "when": 1_260_759_144 + 5_000 * at, "clicked": at % 2}
    for at in range(40)
]  # fmt: skip
SPEC: dict[str, Any] = {
    "format": "text",
    "paths": ["rows.csv"],
    "features": [
        {"name": "who", "column": "user", "vocabulary": "v/user.arrow"},
        {"name": "title", "vocabulary": {"path": "v/title.arrow", "rows": 3, "unknown": 4}},
        {"name": "genres", "vocabulary": "v/genres.arrow", "separator": "|"},
        {"name": "when", "ids": "seconds"},
    ],
    "dense": ["price"],
    "labels": ["clicked"],
    "nulls": ["", "none"],
    "transforms": [
        {"op": "calendar", "feature": "when", "part": "hour"},
        {"op": "bucketize", "dense": "price", "borders": [1, 3], "into": "level"},
    ],
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Path("rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS)
    make_vocabularies([spec_from_raw(SPEC, "here")], Path("v"))


def everything() -> Batch:
    [batch] = open_dataset(spec_from_raw(SPEC, "here")).batches(
        rank=0, world_size=1, batch_size=40, seed=0, shuffle=False
    )
    return batch


def same(one: Batch, other: Batch) -> bool:
    ids = all(
        (one.ids[name].values.tolist(), one.ids[name].lengths.tolist()) == (bags.values.tolist(), bags.lengths.tolist())
        for name, bags in other.ids.items()
    )
    return ids and one.ids.keys() == other.ids.keys() and one.dense.tolist() == other.dense.tolist()


def test_rows_are_samples_in_any_form():
    reader, read = RawRowReader(open_dataset(spec_from_raw(SPEC, "here")).schema), everything()
    assert reader.names == ("user", "title", "genres", "when", "price")
    unlabelled = [{name: each[name] for name in reader.names} for each in ROWS]
    columns = {name: [each[name] for each in ROWS] for name in reader.names}
    arrays = {name: np.array(values) for name, values in columns.items()}
    for rows in (ROWS, unlabelled, columns, arrays, pyarrow.table(columns), pyarrow.table(columns).to_batches()[0]):
        assert same(reader.batch(rows), read)
    assert reader.batch([{**ROWS[0], "when": "2009-12-14 02:52:24"}]).ids["when"].values.tolist() == [2]
    few = reader.batch([{"user": 5, "title": None, "price": None}, ROWS[0]])
    assert [few.ids[name].lengths[0] for name in ("who", "title", "genres")] == [1, 0, 0]
    assert few.ids["who"].values[0] == 0


def test_a_model_keeps_its_vocabularies_under_any_path(tmp_path: Path):
    schema = open_dataset(spec_from_raw(SPEC, "here")).schema
    kept = keep_vocabularies(schema, tmp_path / "model")
    assert kept.raw is not None
    assert kept.raw["features"][0]["vocabulary"] == {"path": "vocabularies/0-user.arrow"}
    read = everything()
    (tmp_path / "model").rename(tmp_path / "elsewhere")
    (tmp_path / "v").rename(tmp_path / "gone")
    assert same(RawRowReader(vocabularies_in(kept, tmp_path / "elsewhere")).batch(ROWS), read)
    with pytest.raises(RecSmithError, match=r"'v/user.arrow' is no longer the vocabulary that feature 'who'"):
        keep_vocabularies(schema, tmp_path / "model")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"user": 1}], "the rows have no column 'title'"),
        ({"user": [1], "titel": ["a"], "genres": ["a"], "when": [1], "price": [1.0]}, "did you mean 'titel'"),
        ([{**ROWS[0], "price": float("nan")}], "row 0 of those given has dense value 'price' nan"),
        ([{**ROWS[0], "price": "cheap"}], "column 'price' holds string; it must hold numbers"),
        ([{**ROWS[0], "user": 0.5}], "column 'user' holds double, and its vocabulary text"),
        (
            [{**ROWS[0], "user": 7.0}],
            "column 'user' holds double, and its vocabulary text; give text, or whole numbers",
        ),
        ([{**ROWS[0], "when": "late"}], "column 'when' holds something that is no time: 'late'"),
        ([7], "rows cannot be made a table: .*; give dicts, columns by name"),
        (7, "rows cannot be made a table"),
    ],
)
def test_what_data_could_not_hold_is_refused(rows: Any, message: str):
    with pytest.raises(UsageError, match=message):
        RawRowReader(open_dataset(spec_from_raw(SPEC, "here")).schema).batch(rows)


def test_a_model_of_ids_says_so():
    schema = replace(open_dataset(spec_from_raw(SPEC, "here")).schema, raw=None)
    with pytest.raises(UsageError, match="was trained on ids, and not on columns of raw rows; give ids"):
        RawRowReader(schema)
