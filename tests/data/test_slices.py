"""Slices lose nothing and take nothing twice; periods begin where they say, and samples out of order are refused."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from recsmith.data import Batch, Dataset, GeneratedFeature, GeneratorSpec, MovieLensSpec, open_dataset, spec_from_raw
from recsmith.data.arrow import pyarrow
from recsmith.data.batch import concatenated
from recsmith.data.slices import SlicedSource, edges_by_count, edges_by_samples, edges_by_time, times_of
from recsmith.data.source import MemorySource
from recsmith.errors import CorruptFile, UsageError

SPEC = GeneratorSpec(num_samples=9000, features=(GeneratedFeature(name="user", num_embeddings=50),), dense=1)
SOURCE: Any = open_dataset(SPEC).source


def everything(source: Any) -> Batch:
    """All samples of a source, block after block."""
    blocks = [source.read(block).samples for block in range(len(source.sizes()))]
    assert [len(each) for each in blocks] == source.sizes().tolist()
    return concatenated(blocks)


@given(some.lists(some.integers(min_value=1, max_value=8999), min_size=1, max_size=6, unique=True))
def test_slices_side_by_side_are_the_whole(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), 9000]
    parts = [SlicedSource(SOURCE, first, last) for first, last in itertools.pairwise(edges)]
    whole, joined = everything(SOURCE), concatenated([everything(part) for part in parts])
    assert [part.num_samples for part in parts] == np.diff(edges).tolist()
    assert joined.sample_ids.tolist() == whole.sample_ids.tolist()
    np.testing.assert_array_equal(joined.labels, whole.labels)
    np.testing.assert_array_equal(joined.ids["user"].values, whole.ids["user"].values)


def test_files_that_are_read_from_their_beginning_stay_so() -> None:
    class Zipped:
        def __getattr__(self, name: str) -> Any:
            return ((0, 2), (2, 3)) if name == "files" else getattr(SOURCE, name)

    sliced: Any = SlicedSource(Zipped(), 5000, 9000)  # type: ignore[arg-type]
    assert sliced.files == ((0, 1), (1, 2))
    batches = Dataset(sliced).batches(rank=0, world_size=1, batch_size=500, seed=1)
    assert sorted(number for batch in batches for number in batch.sample_ids.tolist()) == list(range(5000, 9000))


def test_a_slice_counts_and_describes_its_own_corrupt_rows() -> None:
    class Faulty:
        def __getattr__(self, name: str) -> Any:
            return getattr(SOURCE, name)

        def read(self, block: int) -> Any:
            found, wrong = SOURCE.read(block), np.zeros(int(SOURCE.sizes()[block]), np.bool_)
            wrong[[3, 7]] = True
            return found.marked({"rows without a label": wrong}, "row 3 has no label")

    def read(first: int, last: int) -> Any:
        return SlicedSource(Faulty(), first, last).read(0)  # type: ignore[arg-type]

    assert (read(2, 6).causes, read(2, 6).first_corrupt) == ({"rows without a label": 1}, "row 3 has no label")
    assert read(5, 9).causes == {"rows without a label": 1}
    assert read(5, 9).first_corrupt == "sample 7 is corrupt, one of: rows without a label"
    assert (read(4, 7).causes, read(4, 7).corrupt, read(4, 7).first_corrupt) == ({}, 0, "")


def timed(times: list[float] | np.ndarray) -> Any:
    """A source in memory whose samples have these times."""
    samples = everything(SOURCE).take(np.arange(len(times)))
    return MemorySource(SOURCE.schema, samples, {"timestamp": np.asarray(times)})


def test_periods_begin_where_they_say() -> None:
    assert edges_by_samples(SOURCE, 2000).tolist() == [0, 2000, 4000, 6000, 8000]
    assert edges_by_count(SOURCE, 7).tolist() == [0, 1286, 2571, 3857, 5143, 6429, 7714, 9000]
    days = timed([3, 7, 9, 10, 19, 41, 42, 55])
    assert edges_by_time(days, "timestamp", 10).tolist() == [0, 3, 5, 7], "20 to 39 has no samples; 50 is not over"
    dates = timed(np.array([0, 86_399, 86_400, 86_401], "datetime64[s]"))
    assert edges_by_time(dates, "timestamp", 86_400).tolist() == [0, 2]
    texts = pyarrow().array(["1970-01-01T00:00:00Z", "1970-01-01T23:59:59.5Z", "1970-01-02T00:00:00Z"])
    written = MemorySource(SOURCE.schema, everything(SOURCE).take(np.arange(3)), {"timestamp": texts})
    assert times_of(written, "timestamp").tolist() == [0, 86_399.5, 86_400]


def test_samples_without_an_order_of_time_are_refused() -> None:
    with pytest.raises(UsageError, match=r"column 'timestamp' falls from 30 to 4 at sample 2; sort the data, and name"):
        edges_by_time(timed([1, 30, 4]), "timestamp", 10)
    with pytest.raises(UsageError, match=r"has no column 'time' of times .*; did you mean 'timestamp'"):
        times_of(timed([1, 2]), "time")
    with pytest.raises(UsageError, match=r"this data has no columns beside its features; or cut them by samples"):
        times_of(SOURCE, "timestamp")
    with pytest.raises(CorruptFile, match=r"has no time in 1 rows of a block, the first in sample 1; "):
        times_of(timed(np.array([0, "NaT"], "datetime64[s]")), "timestamp")


def test_samples_of_files_out_of_order_are_told_with_their_file(tmp_path: Path) -> None:
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    for name, times in (("a", [1, 30]), ("b", [4, None])):
        table = pyarrow().table({"user": [1, 2], "clicked": [0.0, 1.0], "when": times})
        parquet.write_table(table.slice(0, 2 if name == "a" else 1), tmp_path / f"{name}.parquet")
        parquet.write_table(table, tmp_path / f"{name}-whole.parquet")
    spec = {"format": "parquet", "features": [{"name": "user", "num_embeddings": 5}], "labels": ["clicked"]}

    def opened(*names: str) -> Any:
        paths = [str(tmp_path / f"{name}.parquet") for name in names]
        return open_dataset(spec_from_raw({**spec, "paths": paths}, "the spec")).source

    with pytest.raises(UsageError, match=r"falls from 30 to 4 at row 0 of part 0 of '.*/b.parquet'; sort the data"):
        edges_by_time(opened("a", "b"), "when", 10)
    with pytest.raises(CorruptFile, match=r"the first in row 1 of part 0 of '.*/b-whole.parquet'; every sample"):
        edges_by_time(opened("a", "b-whole"), "when", 10)


def test_movielens_in_the_order_of_time(tmp_path: Path) -> None:
    times = np.random.default_rng(0).permutation(50)
    lines = [f"{1 + at % 5},10,4.0,{1000 + int(time)}" for at, time in enumerate(times)]
    (tmp_path / "ratings.csv").write_text("\n".join(["userId,movieId,rating,timestamp", *lines]) + "\n")
    (tmp_path / "movies.csv").write_text('movieId,title,genres\n10,"Comma, The (1995)",Drama|Action\n')
    parts: list[Any] = [
        open_dataset(MovieLensSpec(path=str(tmp_path), split=split, split_by="time")).source
        for split in ("train", "valid", "test")
    ]
    read = [times_of(part, "timestamp").tolist() for part in parts]
    assert [len(each) for each in read] == [40, 5, 5]
    assert [time for each in read for time in each] == list(range(1000, 1050))
    assert everything(parts[0]).sample_ids.tolist() == np.argsort(times)[:40].tolist(), "numbers are rows of the file"
