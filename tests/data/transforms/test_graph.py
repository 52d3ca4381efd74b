"""Each transform gives what it gives sample by sample, in plain Python."""

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.data import Batch, DataFeature, DataSchema, JaggedIds, count_figures, open_dataset, write_dataset
from recsmith.data.dataset import spec_from_raw, spec_to_raw
from recsmith.data.deduplication import deduplicated, expanded, with_runs_once
from recsmith.data.source import MemorySource, SampleBlock
from recsmith.data.transforms.declared import transform_from_raw
from recsmith.data.transforms.graph import TransformedSource, TransformGraph, first_problem
from recsmith.errors import CorruptFile, RecSmithError, UsageError

MASK = 2**64 - 1
SCHEMA = DataSchema(
    features=(DataFeature(name="a", num_embeddings=50, pooling_factor=3.0), DataFeature(name="b", num_embeddings=9)),
    dense=("x", "z"), labels=("y",),
)  # fmt: skip


def mixed(word: int) -> int:
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & MASK
    return word ^ (word >> 31)


def hashed(value: int, salt: int, rows: int) -> int:
    return mixed((mixed((value + salt) & MASK) + salt) & MASK) % rows


def gram(ids: list[int], salt: int, rows: int) -> int:
    word = salt
    for each in ids:
        word = mixed((word + each) & MASK)
    return word % rows


def batch(a: list[list[int]], b: list[list[int]], dense: list[tuple[float, float]]) -> Batch:
    def bags(rows: list[list[int]]) -> JaggedIds:
        values = np.array([each for row in rows for each in row], np.int64)
        return JaggedIds(values=values, lengths=np.array([len(row) for row in rows], np.int32))

    return Batch(
        dense=np.array(dense, np.float32).reshape(-1, 2), ids={"a": bags(a), "b": bags(b)},
        labels=np.zeros((len(a), 1), np.float32), label_names=("y",), sample_ids=np.arange(len(a)) + 100,
    )  # fmt: skip


def rows(bags: JaggedIds) -> list[list[int]]:
    return [each.tolist() for each in np.split(bags.values, np.cumsum(bags.lengths)[:-1])]


def made(**words: Any) -> Any:
    return transform_from_raw(words, "a test")


IDS = st.lists(st.integers(0, 60), max_size=5)
SAMPLES = st.lists(st.tuples(IDS, IDS, st.tuples(*[st.floats(-3, 3, width=32)] * 2)), min_size=1, max_size=12)


@given(samples=SAMPLES, repeats=st.booleans())
def test_ids_are_transformed_as_sample_by_sample(samples: list[Any], repeats: bool) -> None:
    a, b, dense = (list(each) for each in zip(*samples, strict=True))
    graph = TransformGraph(
        SCHEMA,
        [
            made(op="hash", feature="a", num_embeddings=7, salt=5, into="h"),
            made(op="first", feature="a", count=2, into="f"),
            made(op="n_gram", feature="a", length=2, num_embeddings=11, salt=3, into="g"),
            made(op="map_ids", feature="b", ids=[4, 2, 60], into="m"),
            made(op="hash", feature="f", num_embeddings=5),  # what one before it wrote
            made(op="scatter", feature="b", num_embeddings=61, into="d"),
        ],
    )
    given_batch = batch(a, b, dense)
    if repeats:
        given_batch = deduplicated(given_batch, [("a",), ("b",)])
    samples_after, wrong = graph.apply(given_batch)
    found = expanded(samples_after).ids
    assert not wrong
    assert set(found) == set(graph.schema.feature_names) == {"a", "b", "h", "f", "g", "m", "d"}
    known = {4: 1, 2: 2, 60: 3}
    expected = {
        "a": a, "b": b,
        "h": [[hashed(each, 5, 7) for each in row] for row in a],
        "f": [[hashed(each, 0, 5) for each in row[:2]] for row in a],
        "g": [[gram(row[i : i + 2], 3, 11) for i in range(len(row) - 1)] for row in a],
        "m": [[known.get(each, 0) for each in row] for row in b],
        "d": [[each * 38 % 61 for each in row] for row in b],
    }  # fmt: skip
    assert {name: rows(bags) for name, bags in found.items()} == expected


@given(times=st.lists(st.integers(-(2**33), 2**35), min_size=1, max_size=20))
def test_times_are_the_hours_and_days_of_pythons_calendar(times: list[int]) -> None:
    parts = ("hour", "weekday", "day", "month")
    graph = TransformGraph(SCHEMA, [made(op="calendar", feature="a", part=each, into=each) for each in parts])
    found = graph.apply(batch([times], [[]], [(0.0, 0.0)]))[0].ids
    known = [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=each) for each in times]
    assert found["hour"].values.tolist() == [each.hour for each in known]
    assert found["weekday"].values.tolist() == [each.weekday() for each in known]
    assert found["day"].values.tolist() == [each.day - 1 for each in known]
    assert found["month"].values.tolist() == [each.month - 1 for each in known]
    assert [graph.schema.features[at].num_embeddings for at in range(2, 6)] == [24, 7, 31, 12]


@given(samples=SAMPLES)
def test_dense_values_are_transformed_as_sample_by_sample(samples: list[Any]) -> None:
    a, b, dense = (list(each) for each in zip(*samples, strict=True))
    graph = TransformGraph(
        SCHEMA,
        [
            made(op="clip", dense="x", least=-2.0, most=1.5, into="c"),
            made(op="bucketize", dense="x", borders=[-1.0, 0.0, 2.0], into="k"),
            made(op="one_hot", dense="c", values=[-2.0, 1.5], into="o"),
            made(op="log", dense="x", into="l"),
            made(op="box_cox", dense="z", power=0.5, into="p"),
        ],
    )
    samples_before = batch(a, b, dense)
    after, wrong = graph.apply(samples_before)
    assert graph.schema.dense == ("x", "z", "c", "o_0", "o_1", "l", "p")
    bad = [not (x > -1) or not (z > 0) for x, z in dense]
    assert np.logical_or.reduce([np.zeros(len(dense), bool), *wrong.values()]).tolist() == bad
    if any(bad):
        assert first_problem(wrong, samples_before.sample_ids).endswith(f"of sample {100 + bad.index(True)}")
    for row, (x, z), ids, is_bad in zip(after.dense, dense, rows(after.ids["k"]), bad, strict=True):
        clipped = min(max(x, -2.0), 1.5)
        assert ids == [sum(border <= x for border in (-1.0, 0.0, 2.0))]
        assert row[2:5].tolist() == [np.float32(clipped), float(clipped == -2.0), float(clipped == 1.5)]
        if not is_bad:
            assert row[5:] == pytest.approx([math.log1p(x), (math.sqrt(z) - 1) / 0.5], rel=1e-5, abs=1e-6)


def spec(**words: Any) -> dict[str, Any]:
    features = [{"name": "a", "num_embeddings": 50}]
    return {"format": "generator", "num_samples": 600, "dense": 1, "features": features, **words}


def test_a_spec_says_them_and_is_written_again() -> None:
    listed = [{"op": "hash", "feature": "a", "num_embeddings": 7, "into": "h"}]
    read = spec_from_raw(spec(transforms=listed), "a test")
    assert spec_from_raw(spec_to_raw(read), "again") == read
    dataset = open_dataset(read)
    assert dataset.schema.feature_names == ("a", "h")
    assert dataset.source.digest != open_dataset(spec_from_raw(spec(), "plain")).source.digest
    with dataset.batches(rank=0, world_size=1, batch_size=64, seed=0) as batches:
        one = next(batches)
    assert one.ids["h"].values.tolist() == [hashed(each, 0, 7) for each in one.ids["a"].values.tolist()]


def test_samples_without_an_outcome_stop_or_are_counted() -> None:
    listed = [{"op": "map_ids", "feature": "a", "ids": list(range(40)), "unknown": "wrong"}]
    stopping = open_dataset(spec_from_raw(spec(transforms=listed), "a test"))
    with pytest.raises(CorruptFile, match=r"map_ids has no outcome for 'a' of sample \d+"):
        list(stopping.batches(rank=0, world_size=1, batch_size=64, seed=0))
    skipping = open_dataset(spec_from_raw(spec(transforms=listed, wrong="skip", max_wrong=600), "a test"))
    with skipping.batches(rank=0, world_size=1, batch_size=64, seed=0) as batches:
        used = sum(len(each) for each in batches)
        corrupt = batches.counts.corrupt
    assert 0 < corrupt < 600
    assert used + corrupt == 600
    few = open_dataset(spec_from_raw(spec(transforms=listed, wrong="skip", max_wrong=1), "a test"))
    with pytest.raises(CorruptFile, match="samples are corrupt, more than"):
        list(few.batches(rank=0, world_size=1, batch_size=64, seed=0))


def test_a_corrupt_sample_needs_no_outcome_and_keeps_its_cause() -> None:
    samples = batch([[1], [2], [3]], [[1]] * 3, [(0.0, 0.0), (-5.0, 0.0), (-5.0, 0.0)])

    class Filled(MemorySource):
        def read(self, block: int) -> SampleBlock:
            wrong = np.array([False, True, False])
            return super().read(block).marked({"rows without a label": wrong}, "row 1 has no label")

    source, log = Filled(SCHEMA, samples), made(op="log", dense="x", into="l")
    found = TransformedSource(source, [log], wrong="skip").read(0)
    assert found.causes == {"rows without a label": 1, "samples where log has no outcome for 'x'": 1}
    assert (found.corrupt, found.first_corrupt) == (2, "row 1 has no label")
    with pytest.raises(CorruptFile, match="log has no outcome for 'x' of sample 102"):
        TransformedSource(source, [log]).read(0)


@pytest.mark.parametrize(
    ("listed", "match"),
    [
        ({"op": "hsah"}, "did you mean"),
        ({"op": "hash", "feature": "a"}, "num_embeddings"),
        ({"op": "scatter", "feature": "a", "num_embeddings": 2**31 + 1}, "at most 2\\^31 rows are scattered"),
        ({"op": "hash", "feature": "aa", "num_embeddings": 3}, "reads feature 'aa', which is not there"),
        ({"op": "log", "dense": "nothing"}, "reads dense column 'nothing'"),
        ({"op": "bucketize", "dense": "dense_0", "borders": [2, 1], "into": "k"}, "rise"),
        ({"op": "hash", "feature": "a", "num_embeddings": 3, "into": "dense_0"}, "which is no feature"),
        ({"op": "first", "feature": "a", "count": 0}, "at least 1"),
        ("hash", "a transform is an object"),
    ],
)
def test_wrong_ones_are_refused(listed: Any, match: str) -> None:
    with pytest.raises((RecSmithError, UsageError), match=match):
        open_dataset(spec_from_raw(spec(transforms=[listed]), "a test"))


@given(runs=st.lists(st.tuples(IDS, st.integers(2, 5)), min_size=1, max_size=5))
def test_runs_of_equal_bags_are_worked_on_once_and_give_the_same(runs: list[tuple[list[int], int]]) -> None:
    """Each bag comes several times in a row, as in sessions."""
    a = [bag for bag, times in runs for _ in range(times)]
    samples = batch(a, [[i] for i in range(len(a))], [(0.0, 1.0)] * len(a))
    graph = TransformGraph(SCHEMA, [
        made(op="n_gram", feature="a", length=2, num_embeddings=1000, into="pairs"),
        made(op="hash", feature="a", num_embeddings=40),
        made(op="first", feature="b", count=1),
    ])  # fmt: skip
    plain, _ = graph.apply(samples)
    once, _ = graph.apply(with_runs_once(samples, graph.read_features))
    for name in ("a", "b", "pairs"):
        assert rows(expanded(once).ids[name]) == rows(plain.ids[name])
    assert "b" not in once.inverse
    changes = sum(before != after for before, after in zip([None, *a], a, strict=False))
    assert "a" not in once.inverse or len(once.ids["a"].lengths) == changes


def test_sessions_are_transformed_once_and_read_in_full(tmp_path: Path) -> None:
    """Blocks keep repeated bags once for whoever deduplicates; batches and files hold every sample's own."""
    listed = [{"op": "hash", "feature": "a", "num_embeddings": 20}]
    raw = spec(transforms=listed, sessions={"size": 8, "duplication": 0.9})
    dataset, plain = (open_dataset(spec_from_raw({**raw, "transforms": each}, "a test")) for each in (listed, []))
    block, before = dataset.source.read(0), plain.source.read(0).whole()
    wanted = [[hashed(each, 0, 20) for each in bag] for bag in rows(before.ids["a"])]
    assert len(block.samples.ids["a"].lengths) < len(wanted) / 2
    assert rows(block.whole().ids["a"]) == wanted
    assert count_figures(dataset, 600).num_samples == 600
    words: Any = {"rank": 0, "world_size": 1, "batch_size": 50, "seed": 0, "together": 8}
    with dataset.batches(**words) as each, dataset.batches(**words, deduplicate=[("a",)]) as once:
        for one, other in zip(each, once, strict=True):
            assert not one.inverse
            assert len(other.ids["a"].lengths) < 50
            assert rows(expanded(other).ids["a"]) == rows(one.ids["a"])
    write_dataset(dataset, tmp_path / "written", form="parquet")
    again = open_dataset(tmp_path / "written").source.read(0).whole()
    assert rows(again.ids["a"])[: len(wanted)] == wanted
