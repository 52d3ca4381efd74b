"""Vocabularies: counted in any memory and any parts, looked up exactly, refused where they do not fit."""

import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsmith.data import ColumnFeature, ParquetSpec, load_spec, open_dataset
from recsmith.data.counted_vocabularies import make_vocabularies
from recsmith.data.vocabularies.keys import LONG, keys_of
from recsmith.data.vocabularies.settings import VocabularySpec
from recsmith.data.vocabularies.vocabulary import Vocabulary
from recsmith.errors import CorruptFile, UsageError

pyarrow: Any = importlib.import_module("pyarrow")
parquet: Any = importlib.import_module("pyarrow.parquet")
GENRES = ["Drama|Comedy", "Drama", "", None, "Drama|Akció|Comedy"]
SPEC = """\
format: parquet
paths: [{name}.parquet]
features:
  - {{name: genres, vocabulary: vocabularies/genres.arrow, separator: "|"}}
  - {{name: user, vocabulary: vocabularies/user.arrow}}
labels: [clicked]
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with five samples, in which the test runs."""
    monkeypatch.chdir(tmp_path)
    write("a", genres=GENRES, user=[10**12, -5, 7, 7, 7], clicked=[1, 0, 1, 0, 1])
    return tmp_path


def write(name: str, **columns: list[Any]) -> Path:
    """Columns as a file in some row groups, and a spec that gives its features vocabularies."""
    rows = len(columns["clicked"])
    parquet.write_table(pyarrow.table(columns), f"{name}.parquet", row_group_size=max(2, rows // 5))
    Path(f"{name}.yaml").write_text(SPEC.format(name=name))
    return Path(f"{name}.yaml")


def rows_of(file: str, **settings: Any) -> dict[Any, int]:
    """The row of each value of a file."""
    table = pyarrow.ipc.open_file(file).read_all()
    vocabulary = Vocabulary(VocabularySpec(path=file, **settings))
    return dict(zip(table["value"].to_pylist(), vocabulary.rows(table["value"].combine_chunks()).tolist(), strict=True))


def test_texts_and_raw_ids_are_rows_of_their_tables():
    genres, user = make_vocabularies(["a.yaml"], Path("vocabularies"))
    assert (genres.values, genres.distinct, genres.counted, genres.share) == (3, 3, 6, 1.0)
    assert user.values == 3
    rows = rows_of("vocabularies/genres.arrow")
    assert rows["Drama"] == 1, "row 0 is for what is not known, and the most frequent value comes first"
    assert (rows["Comedy"], rows["Akció"]) == (2, 3)
    dataset = open_dataset("a.yaml")
    assert [each.num_embeddings for each in dataset.schema.features] == [4, 4]
    [batch] = dataset.batches(rank=0, world_size=1, batch_size=5, seed=0, shuffle=False)
    assert batch.ids["genres"].lengths.tolist() == [2, 1, 0, 0, 3]
    assert batch.ids["genres"].values.tolist() == [1, 2, 1, 1, 3, 2]
    assert batch.ids["user"].values.tolist()[2:] == [1, 1, 1]
    write("b", genres=["Western", "Drama"], user=[8, 7], clicked=[0, 1])
    [other] = open_dataset("b.yaml").batches(rank=0, world_size=1, batch_size=2, seed=0, shuffle=False)
    assert (other.ids["genres"].values.tolist(), other.ids["user"].values.tolist()) == ([0, 1], [0, 1])


def test_counts_are_the_same_in_any_memory_and_in_any_parts(monkeypatch: pytest.MonkeyPatch):
    """Against Python's Counter, with runs on disk and without."""
    drawn = np.random.default_rng(0).zipf(1.3, 30_000) % 5_000
    texts = [f"{'x' * int(each % 40)}{each}" for each in drawn]
    for part in range(3):
        own = slice(part * 10_000, (part + 1) * 10_000)
        write(f"p{part}", genres=texts[own], user=drawn[own].tolist(), clicked=[0] * 10_000)
        make_vocabularies([f"p{part}.yaml"], Path(f"v{part}"))
    monkeypatch.setattr("recsmith.data.vocabularies.writing.PART", 500)
    make_vocabularies([f"p{part}.yaml" for part in range(3)], Path("made/small"), memory=2**20)
    make_vocabularies(["v2", "v0", "v1"], Path("summed"))
    for name, values in (("genres", texts), ("user", drawn.tolist())):
        small = pyarrow.ipc.open_file(f"made/small/{name}.arrow").read_all()
        assert small.num_rows > 500, "there are several parts"
        assert dict(zip(small["value"].to_pylist(), small["count"].to_pylist(), strict=True)) == Counter(values)
        assert small.equals(pyarrow.ipc.open_file(f"summed/{name}.arrow").read_all())
        rows = rows_of(f"made/small/{name}.arrow")
        assert sorted(rows.values()) == list(range(1, len(rows) + 1))
        counts = Counter(values)
        by_row = sorted(rows, key=lambda value: rows[value])
        assert [counts[value] for value in by_row] == sorted(counts.values(), reverse=True)


def test_rare_values_share_rows_by_their_hash():
    make_vocabularies(["a.yaml"], Path("vocabularies"))
    [often, _] = make_vocabularies(["a.yaml"], Path("often"), least=2)
    assert (often.values, often.distinct, often.share) == (2, 3, 5 / 6)
    for rows in (rows_of("vocabularies/genres.arrow", least=2, unknown=10), rows_of("often/genres.arrow", unknown=10)):
        assert (rows["Drama"], rows["Comedy"]) == (10, 11)
    assert rows_of("vocabularies/genres.arrow", rows=1, unknown=10)["Comedy"] < 10
    vocabulary = Vocabulary(VocabularySpec(path="often/genres.arrow", unknown=1000))
    others = vocabulary.rows(pyarrow.array([f"new {at}" for at in range(50)]))
    assert len(set(others.tolist())) > 40
    assert vocabulary.num_embeddings == 1002


def test_rows_stay_when_a_vocabulary_is_extended():
    make_vocabularies(["a.yaml"], Path("monday"), least=2)
    before = rows_of("monday/genres.arrow")
    write("b", genres=["Western"] * 9 + ["Noir"] * 5, user=[7] * 14, clicked=[0] * 14)
    make_vocabularies(["b.yaml"], Path("tuesday"), extend=Path("monday"))
    assert rows_of("tuesday/genres.arrow") == {**before, "Western": 3, "Noir": 4}
    counts = pyarrow.ipc.open_file("tuesday/user.arrow").read_all()
    assert dict(zip(counts["value"].to_pylist(), counts["count"].to_pylist(), strict=True))[7] == 3 + 14


def test_keys_follow_from_the_text_alone():
    texts = ["", "a", "b", "ab", "a\0", "x" * LONG, "x" * (LONG + 1), "x" * 1000, "árvíztűrő"]
    alone = [int(keys_of(pyarrow.array([each], pyarrow.large_string()))[0]) for each in texts]
    assert keys_of(pyarrow.array(texts, pyarrow.large_string())).tolist() == alone
    assert keys_of(pyarrow.array(["no", *texts, "no"], pyarrow.large_string()).slice(1, len(texts))).tolist() == alone
    assert len(set(alone)) == len(texts)
    assert alone[1] == 16330222226554371071, "files that were written before are read"


def test_what_does_not_fit_is_refused():
    with pytest.raises(UsageError, match=r"there is no vocabulary 'vocabularies/genres.arrow'; `recsmith data vocab"):
        open_dataset("a.yaml")
    make_vocabularies(["a.yaml"], Path("vocabularies"))
    spec: Any = load_spec("a.yaml")
    assert isinstance(spec, ParquetSpec)
    for feature, error, message in (
        (
            ColumnFeature(name="user", vocabulary="vocabularies/user.arrow", num_embeddings=3),
            UsageError,
            r"num_embeddings of feature 'user' is 3, and its vocabulary '.*user.arrow' needs 4 rows \(3 values, 1 for",
        ),
        (
            ColumnFeature(name="genres", vocabulary="vocabularies/user.arrow"),
            CorruptFile,
            "column 'genres' holds string, and its vocabulary whole numbers; make the vocabulary of this data",
        ),
        (ColumnFeature(name="genres", vocabulary="a.parquet"), CorruptFile, r"'a.parquet' is no vocabulary"),
        (ColumnFeature(name="genres"), CorruptFile, "holds string; .* give its feature a vocabulary"),
        (ColumnFeature(name="user", separator="|"), CorruptFile, "holds int64; a separator is for text"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            open_dataset(ParquetSpec(paths=spec.paths, features=(feature,), labels=("clicked",))).source.read(0)
    with pytest.raises(UsageError, match="unknown of a vocabulary is 0; it must be 1 to"):
        VocabularySpec(path="a", unknown=0)
    with pytest.raises(UsageError, match=r"no value of '.*' was counted 9 times"):
        Vocabulary(VocabularySpec(path="vocabularies/genres.arrow", least=9))
    make_vocabularies(["a.yaml"], Path("cut"), least=2)
    with pytest.raises(UsageError, match="was written without its rare values, so their counts are lost"):
        make_vocabularies(["cut", "vocabularies"], Path("sum"))
    write("c", genres=["a", "b"], user=[0.5, 1.5], clicked=[0, 0])
    with pytest.raises(CorruptFile, match=r"c.parquet': column 'user', of vocabulary 'user', holds double"):
        make_vocabularies(["c.yaml"], Path("new"))
    assert not list(Path().glob("*new*")), "nothing is half-written"


def test_values_of_which_there_is_no_vocabulary_are_told_by_their_kind():
    parquet.write_table(pyarrow.table({"key": [b"a", b"b"], "flag": [True, False], "clicked": [0, 1]}), "kinds.parquet")
    for name, kind in (("key", "binary"), ("flag", "bool")):
        made = ColumnFeature(name=name, vocabulary=f"kinds/{name}.arrow")
        with pytest.raises(CorruptFile, match=rf"holds {kind}; a vocabulary is of texts or whole numbers, so cast the"):
            make_vocabularies(
                [ParquetSpec(paths=("kinds.parquet",), features=(made,), labels=("clicked",))], Path("kinds")
            )
