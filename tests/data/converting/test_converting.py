"""Datasets as folders of Parquet: in order and clustered, stopped anywhere and gone on with."""

import gzip
import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data.sources import NumberedSource
from hypothesis import given, settings
from hypothesis import strategies as st

from recsmith.data import (
    Batch,
    ColumnFeature,
    GeneratedFeature,
    GeneratorSpec,
    MovieLensSpec,
    ParquetSpec,
    SessionSpec,
    open_dataset,
)
from recsmith.data.converting import (
    FileLayout,
    KeyColumns,
    cluster_dataset,
    convert,
    convert_dataset,
    folder,
    read_popularity,
)
from recsmith.data.converting.tables import session_hashes
from recsmith.data.dataset import Dataset, TransformedSpec
from recsmith.data.parquet.write import MANIFEST, UNFINISHED, read_manifest
from recsmith.data.source import MemorySource
from recsmith.data.transforms.declared import First
from recsmith.errors import CorruptFile, RecSmithError, UsageError

pyarrow: Any = importlib.import_module("pyarrow")
parquet: Any = importlib.import_module("pyarrow.parquet")
SPEC = GeneratorSpec(
    num_samples=9_000,
    dense=2,
    features=(
        GeneratedFeature(name="user", num_embeddings=300),
        GeneratedFeature(name="tags", num_embeddings=40, pooling_factor=1.5, lengths="poisson"),
    ),
    sessions=SessionSpec(size=4, duplication=0.5),
)
LAYOUT = FileLayout(file_samples=3000, group_samples=700)


def everything(path: Path) -> dict[str, list[Any]]:
    return parquet.read_table(path).to_pydict()


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


def test_what_is_converted_is_read_as_it_was(tmp_path: Path):
    source, out = open_dataset(SPEC), tmp_path / "out"
    manifest = convert_dataset(source, out, replace(LAYOUT, popular=("tags",)))
    assert names(out) == [MANIFEST, "part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    assert (manifest.samples, manifest.corrupt, read_manifest(out)) == (9000, 0, manifest)
    groups = parquet.read_metadata(out / "part-00000.parquet")
    assert [groups.row_group(at).num_rows for at in range(groups.num_row_groups)] == [700] * 5 + [596]
    assert parquet.read_schema(out / "part-00000.parquet").names[-2:] == ["tags", "user"]
    read = open_dataset(out)
    assert read.schema.feature_names == ("user", "tags"), "the order of features is that of the source"
    same(in_order(source), in_order(read))


def in_order(dataset: Dataset) -> Batch:
    return next(dataset.batches(rank=0, world_size=1, batch_size=9000, seed=0, shuffle=False))


def same(one: Batch, other: Batch) -> None:
    assert np.array_equal(one.sample_ids, other.sample_ids)
    assert np.array_equal(one.dense, other.dense)
    assert np.array_equal(one.labels, other.labels)
    for name, bags in one.ids.items():
        assert np.array_equal(bags.values, other.ids[name].values)
        assert np.array_equal(bags.lengths, other.ids[name].lengths)


def test_row_groups_have_the_bytes_that_were_asked_for(tmp_path: Path):
    convert_dataset(open_dataset(SPEC), tmp_path / "out", FileLayout(group_bytes=2**16))
    table = parquet.read_table(tmp_path / "out")
    rows = parquet.read_metadata(tmp_path / "out" / "part-00000.parquet").row_group(0).num_rows
    assert rows == pytest.approx(2**16 / (table.nbytes / 9000), rel=0.02)


@given(memory=st.sampled_from([2**17, 2**18, 2**24]), by_time=st.booleans(), seed=st.integers(0, 3))
@settings(max_examples=8, deadline=None)
def test_clustered_samples_have_one_order_whatever_the_memory(
    tmp_path_factory: pytest.TempPathFactory, memory: int, by_time: bool, seed: int
):
    out = tmp_path_factory.mktemp("data") / "out"
    samples = next(open_dataset(SPEC).batches(rank=0, world_size=1, batch_size=9000, seed=seed))
    times = -samples.sample_ids if by_time else samples.sample_ids
    source = Dataset(MemorySource(SPEC.schema, samples, {"timestamp": times}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convert, "LEAST_MEMORY", 1)
        manifest = cluster_dataset(source, out, columns=KeyColumns(session="user"), memory=memory)
    assert (len(manifest.parts) > 1) == (memory < 2**20)
    found = everything(out)
    users, sessions, numbers = (np.array(found[name]) for name in ("user", "session_id", "sample_id"))
    assert np.array_equal(users, sessions)
    assert np.array_equal(np.sort(numbers), np.arange(9000)), "each sample once"
    order = np.lexsort((-numbers if by_time else numbers, users, session_hashes(users)))
    assert np.array_equal(order, np.arange(9000))
    tags = [bag.tolist() for bag in np.split(samples.ids["tags"].values, np.cumsum(samples.ids["tags"].lengths)[:-1])]
    place = np.argsort(samples.sample_ids)
    assert [tags[place[number]] for number in numbers] == found["tags"], "rows stay whole"


def test_generated_sessions_stay_together(tmp_path: Path):
    assert cluster_dataset(open_dataset(SPEC), tmp_path / "out").session == "session_id"
    sessions = np.array(everything(tmp_path / "out")["session_id"])
    assert np.count_nonzero(np.diff(sessions)) == 9000 / 4 - 1


@pytest.mark.parametrize("kind", ["convert", "cluster"])
def test_a_command_stopped_anywhere_goes_on_and_ends_the_same(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(convert, "LEAST_MEMORY", 1)
    source = open_dataset(SPEC)

    def work(out: Path) -> None:
        if kind == "convert":
            convert_dataset(source, out, LAYOUT)
        else:
            cluster_dataset(source, out, LAYOUT, memory=2**20)

    work(tmp_path / "whole")
    make_last, stops = folder.make_last, 0
    while True:
        calls = iter(range(2))

        def once(temporary: Path, path: Path, calls: Any = calls) -> None:
            if next(calls):
                raise KeyboardInterrupt
            make_last(temporary, path)

        monkeypatch.setattr(folder, "make_last", once)
        monkeypatch.setattr(convert, "make_last", once)
        try:
            work(tmp_path / "out")
        except KeyboardInterrupt:
            stops += 1
            assert (tmp_path / "out" / UNFINISHED).exists()
            continue
        break
    assert stops >= 2
    assert names(tmp_path / "out") == names(tmp_path / "whole")
    assert everything(tmp_path / "out") == everything(tmp_path / "whole")


def test_a_killed_command_goes_on_and_its_folder_is_no_dataset_before(tmp_path: Path):
    out = tmp_path / "out"
    (tmp_path / "spec.yaml").write_text(
        "format: generator\nnum_samples: 400000\nfeatures:\n  - {name: user, num_embeddings: 90}\n"
    )
    words = [sys.executable, "-m", "recsmith", "data", "convert", str(tmp_path / "spec.yaml"), "-o", str(out)]
    words += ["--file-samples", "20000"]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (out / "part-00001.parquet").exists() and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    written = {name: (out / name).stat().st_mtime_ns for name in names(out) if name.startswith("part-")}
    assert 2 <= len(written) < 20
    with pytest.raises(UsageError, match=r"is not finished; give the command that writes it once more"):
        open_dataset(out)
    assert subprocess.run(words, check=True, capture_output=True, text=True).stderr.startswith(
        "recsmith: note: 400,000 samples in 20 files"
    )
    assert {name: (out / name).stat().st_mtime_ns for name in written} == written, "finished files were not touched"
    assert everything(out)["sample_id"] == list(range(400_000))


def test_a_full_disk_leaves_finished_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls = iter(range(9))
    make_last = folder.make_last

    def full(temporary: Path, path: Path) -> None:
        if next(calls):
            raise OSError(28, "No space left on device")
        make_last(temporary, path)

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(folder, "make_last", full)
        with pytest.raises(RecSmithError, match="No space left on device; finished files stay, so free some space"):
            convert_dataset(open_dataset(SPEC), out, LAYOUT)
    assert names(out) == [UNFINISHED, "part-00000.parquet"]
    assert convert_dataset(open_dataset(SPEC), out, LAYOUT).samples == 9000


def test_corrupt_samples_are_counted_up_to_what_is_allowed(tmp_path: Path):
    assert convert_dataset(Dataset(NumberedSource([6, 6], corrupt=5, max_corrupt=3)), tmp_path / "a").corrupt == 3
    assert everything(tmp_path / "a")["sample_id"] == [1, 2, 3, 4, 6, 7, 8, 9, 11]
    with pytest.raises(CorruptFile, match=r"3 samples are corrupt, more than max_corrupt: 2 allows; line 1 is garbage"):
        convert_dataset(Dataset(NumberedSource([6, 6], corrupt=5, max_corrupt=2)), tmp_path / "b")
    assert convert_dataset(Dataset(NumberedSource([0])), tmp_path / "c").samples == 0
    assert open_dataset(tmp_path / "c").num_samples == 0


def test_transformed_data_keeps_its_sessions(tmp_path: Path):
    shorter = TransformedSpec(data=SPEC, transforms=(First(feature="tags", count=1),))
    cluster_dataset(open_dataset(shorter), tmp_path / "out")
    found = everything(tmp_path / "out")
    assert np.count_nonzero(np.diff(found["session_id"])) == 9000 / 4 - 1
    assert max(len(bag) for bag in found["tags"]) == 1


def test_texts_of_times_order_samples_by_time(tmp_path: Path):
    """They were ordered by hashes of the texts."""
    days = ["2024-05-02T10:00:00Z", "2024-05-02T10:00:00Z", "2024-05-01T10:00:00.5Z", "2024-05-01T09:00:00Z"]
    columns = {"clicked": [1, 0, 1, 0], "who": ["b", "a", "b", "a"], "at": days, "item": [0, 1, 2, 3]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "in.parquet")
    spec = ParquetSpec(
        paths=(str(tmp_path / "in.parquet"),), features=(ColumnFeature(name="item", num_embeddings=9),),
        labels=("clicked",),
    )  # fmt: skip
    by = KeyColumns(session="who", time="at")
    cluster_dataset(open_dataset(spec), tmp_path / "out", columns=by)
    assert everything(tmp_path / "out")["item"] in ([2, 0, 3, 1], [3, 1, 2, 0])
    parquet.write_table(pyarrow.table(columns | {"at": ["soon"] * 4}), tmp_path / "in.parquet")
    with pytest.raises(CorruptFile, match="column 'at' holds something that is no time: 'soon'"):
        cluster_dataset(open_dataset(spec), tmp_path / "soon", columns=by)


def test_words_as_sessions_and_their_troubles(tmp_path: Path):
    path = tmp_path / "in.parquet"
    columns = {"clicked": [1, 0, 1, 0], "who": ["b", "a", "b", "a"], "at": [2, 2, 1, 1], "item": [0, 1, 2, 3]}
    spec = f"format: parquet\npaths: ['{path}']\nfeatures: [{{name: item, num_embeddings: 9}}]\nlabels: [clicked]\n"
    (tmp_path / "spec.yaml").write_text(spec)
    parquet.write_table(pyarrow.table(columns), path)
    source = open_dataset(tmp_path / "spec.yaml")
    cluster_dataset(source, tmp_path / "out", columns=KeyColumns(session="who", time="at"))
    assert everything(tmp_path / "out")["item"] in ([2, 0, 3, 1], [3, 1, 2, 0])
    cases = {
        "the data does not say which samples are of one session; give --session, one of clicked, who": KeyColumns(),
        "there is no column 'whom'; did you mean 'who'": KeyColumns(session="whom"),
    }
    for message, wrong in cases.items():
        with pytest.raises(UsageError, match=message):
            cluster_dataset(source, tmp_path / "wrong", columns=wrong)
    parquet.write_table(pyarrow.table(columns | {"who": ["b", None, "b", "a"]}), path)
    with pytest.raises(CorruptFile, match="column 'who' is null in 1 rows of a block; each sample needs one"):
        cluster_dataset(open_dataset(tmp_path / "spec.yaml"), tmp_path / "wrong", columns=KeyColumns(session="who"))
    assert not (tmp_path / "wrong").exists()


def test_what_the_same_command_has_finished_is_left_as_it_is(tmp_path: Path):
    """A command that was killed after its last write is given once more."""
    source, out = open_dataset(SPEC), tmp_path / "out"
    by_user: dict[str, Any] = {"columns": KeyColumns(session="user")}
    commands: list[tuple[Callable[..., Any], dict[str, Any]]] = [(convert_dataset, {}), (cluster_dataset, by_user)]
    for write, words in commands:
        shutil.rmtree(out, ignore_errors=True)
        made = write(source, out, LAYOUT, **words)
        times = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
        assert write(source, out, LAYOUT, **words) == made
        assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == times
        (out / made.parts[0].name).unlink()
        with pytest.raises(UsageError, match="something is there; give a new folder"):
            write(source, out, LAYOUT, **words)


def test_other_commands_and_folders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source, out = open_dataset(SPEC), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(folder, "make_last", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            convert_dataset(source, out, LAYOUT)
    with pytest.raises(UsageError, match="is unfinished, and was begun from other data or with other options"):
        convert_dataset(source, out, replace(LAYOUT, group_samples=600))
    convert_dataset(source, out, LAYOUT)
    with pytest.raises(UsageError, match="something is there; give a new folder"):
        convert_dataset(source, out, replace(LAYOUT, group_samples=600))
    with pytest.raises(UsageError, match="no feature is called 'tag'; did you mean 'tags'"):
        convert_dataset(source, tmp_path / "b", replace(LAYOUT, popular=("tag",)))
    monkeypatch.setattr(convert, "LEAST_MEMORY", 1)
    monkeypatch.setattr(convert, "SHARE", 0.5)
    one = open_dataset(replace(SPEC, features=(replace(SPEC.features[0], num_embeddings=1), SPEC.features[1])))
    with pytest.raises(RecSmithError, match=r"are in one bucket, 9,000 of them of session 0; give a memory of"):
        cluster_dataset(one, tmp_path / "c", columns=KeyColumns(session="user"), memory=2**19)


def test_popularity_is_read_most_popular_first(tmp_path: Path):
    (tmp_path / "jobs.yaml").write_text("a: 1\nb: 5\nc: 1\n")
    assert read_popularity(str(tmp_path / "jobs.yaml")) == ("b", "a", "c")
    for text in ("a: many\n", "a: -1\n"):
        (tmp_path / "jobs.yaml").write_text(text)
        with pytest.raises(CorruptFile, match="jobs"):
            read_popularity(str(tmp_path / "jobs.yaml"))


def test_weights_lines_and_ratings_are_converted(tmp_path: Path):
    path = tmp_path / "in.parquet"
    parquet.write_table(pyarrow.table({"clicked": [1, 0], "words": [[1, 2], []], "how": [[0.5, 1.0], []]}), path)
    words = ColumnFeature(name="words", num_embeddings=3, weights="how")
    source = open_dataset(ParquetSpec(paths=(str(path),), features=(words,), labels=("clicked",)))
    convert_dataset(source, tmp_path / "weighted")
    read = in_order(open_dataset(tmp_path / "weighted")).ids["words"]
    assert read.weights is not None
    assert (read.values.tolist(), read.weights.tolist()) == ([1, 2], [0.5, 1.0])

    line = "1\t" + "\t".join(["3"] * 13) + "\t" + "\t".join(["0000000a"] * 26) + "\n"
    (tmp_path / "day_0.gz").write_bytes(gzip.compress(line.encode() * 3))
    convert_dataset(open_dataset(tmp_path / "day_0.gz"), tmp_path / "lines")
    same(in_order(open_dataset(tmp_path / "day_0.gz")), in_order(open_dataset(tmp_path / "lines")))

    (tmp_path / "ml").mkdir()
    rows = [(user, movie, 5, 100 - movie) for user in (1, 2) for movie in range(1, 6)]
    ratings = "".join(",".join(map(str, row)) + "\n" for row in rows)
    (tmp_path / "ml" / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + ratings)
    (tmp_path / "ml" / "movies.csv").write_text("movieId,title,genres\n1,a,Drama\n")
    movies = open_dataset(MovieLensSpec(path=str(tmp_path / "ml"), split="all"))
    cluster_dataset(movies, tmp_path / "users", columns=KeyColumns(session="user"))
    found = everything(tmp_path / "users")
    assert found["movie"] == [4, 3, 2, 1, 0] * 2, "the last movie was rated first"
    assert sorted(found["user"][::5]) == [0, 1]
