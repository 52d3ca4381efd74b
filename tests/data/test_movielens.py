"""MovieLens folders: ratings, genres, and a split that loses nothing."""

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recsmith.data import Batch, MovieLensSpec, open_dataset
from recsmith.data.batch import concatenated
from recsmith.errors import CorruptFile, UsageError

MOVIES = """movieId,title,genres
10,"Comma, The (1995)",Drama|Action
30,Plain (1996),(no genres listed)
20,Other (1997),Comedy
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Fifty ratings of five users, and one of a user whom max_user_id leaves out."""
    lines = [f"{1 + at % 5},{(10, 20, 30, 40)[at % 4]},{at % 10 / 2 + 0.5},{1_000_000 + at}" for at in range(50)]
    (tmp_path / "ratings.csv").write_text("\n".join(["userId,movieId,rating,timestamp", "999,10,5,1", *lines]) + "\n")
    (tmp_path / "movies.csv").write_text(MOVIES)
    return tmp_path


def everything(spec: MovieLensSpec) -> Batch:
    """All samples in order of their numbers."""
    read = concatenated(list(open_dataset(spec).batches(rank=0, world_size=1, batch_size=7, seed=0)))
    return read.take(np.argsort(read.sample_ids))


def test_a_rating_is_a_sample(folder: Path):
    spec = MovieLensSpec(path=str(folder), split="all", max_user_id=5)
    schema = open_dataset(spec).schema
    assert {each.name: each.num_embeddings for each in schema.features} == {"user": 5, "movie": 4, "genres": 3}
    read = everything(spec)
    assert read.sample_ids.tolist() == list(range(1, 51)), "numbers are rows of ratings.csv"
    assert read.ids["user"].values.tolist() == [at % 5 for at in range(50)]
    assert read.labels[:, 0].tolist() == [float(at % 10 / 2 + 0.5 >= 4) for at in range(50)]
    of_sample = np.split(read.ids["genres"].values, np.cumsum(read.ids["genres"].lengths)[:-1])
    assert [sorted(each.tolist()) for each in of_sample[:4]] == [[0, 2], [1], [], []]
    assert everything(replace(spec, max_user_id=None)).sample_ids[0] == 0


def test_the_split_loses_nothing_and_follows_from_its_seed(folder: Path):
    spec = MovieLensSpec(path=str(folder), max_user_id=5)
    assert spec.split == "train"
    parts = {name: everything(replace(spec, split=name)).sample_ids.tolist() for name in ("train", "valid", "test")}  # pyright: ignore[reportArgumentType]
    assert {name: len(part) for name, part in parts.items()} == {"train": 40, "valid": 5, "test": 5}
    assert sorted(each for part in parts.values() for each in part) == list(range(1, 51))
    assert everything(replace(spec, split="test", split_seed=1)).sample_ids.tolist() != parts["test"]


def test_folders_that_are_not_movielens_are_refused(folder: Path):
    spec = MovieLensSpec(path=str(folder))
    with pytest.raises(UsageError, match="is of a user up to -3; give a larger max_user_id"):
        open_dataset(replace(spec, max_user_id=-3))
    for text, message in (
        ("userId,movieId,rating\n1,2,3\n", "has the columns userId, movieId, rating; MovieLens has userId"),
        ("userId,movieId,rating,timestamp\n1,2,x,4\n", "holds a rating that is no number: .*'x'"),
        ("userId,movieId,rating,timestamp\n1,2,3,4\n1,2\n", "line 3 has 2 columns, not 4"),
    ):
        (folder / "ratings.csv").write_text(text)
        with pytest.raises(CorruptFile, match=message):
            open_dataset(spec)
    (folder / "ratings.csv").unlink()
    with pytest.raises(UsageError, match=r"give a folder with ratings.csv and movies.csv"):
        open_dataset(spec)


@pytest.mark.parametrize("name", ["ratings.csv", "movies.csv"])
def test_a_line_without_an_end_is_one_error_and_fills_no_memory(folder: Path, name: str):
    """Of 1 GiB, which is a hole in the file."""
    with (folder / name).open("r+b") as file:
        file.seek(0, 2)
        file.truncate(file.tell() + 2**30)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptFile, match=rf"{name}' line \d+ has more than 16,777,216 characters, .* fetch"):
            open_dataset(MovieLensSpec(path=str(folder)))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2**27


@pytest.mark.parametrize("command", ["check", "convert"])
def test_commands_on_data_say_which_split_they_read(folder: Path, tmp_path: Path, command: str) -> None:
    from click.testing import CliRunner

    from recsmith.cli.data import data_command

    words = [command, str(folder), *(["-o", str(tmp_path / "out")] if command == "convert" else [])]
    done = CliRunner().invoke(data_command, words, catch_exceptions=False)
    every = len((folder / "ratings.csv").read_text().splitlines()) - 1
    assert f"split train: {round(0.8 * every)} of {every} ratings; `split: all` in a spec reads all" in done.stderr
    assert open_dataset(MovieLensSpec(path=str(folder), split="all")).part == ""
