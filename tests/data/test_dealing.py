"""Samples dealt by work: equally many to each rank, about as much to do, and the same samples of a step."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recsmith.data import Batch, Dataset, ParquetSpec, open_dataset, spec_from_raw, write_dataset
from recsmith.data.dealing import Deal, busiest, dealt
from recsmith.data.deduplication import expanded
from recsmith.errors import UsageError
from recsmith.feeding import Feed, FeedSettings

EVENTS = {
    "format": "sequences", "generated": {"users": 400, "items": 50, "events": 30}, "longest": 40, "negatives": 2
}  # fmt: skip
RANKS, SIZE, SEED = 4, 32, 3
BY_HISTORY = Deal(feature="history", squared=0.1)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.integers(1, 8))
@example([5e-324], 2)  # whose mean is 0 in floats
def test_ranks_get_equally_many_and_full_steps_differ_by_less_than_a_sample(work: list[float], ranks: int):
    each = np.array(work)
    found = dealt(each, ranks)
    counts = np.bincount(found, minlength=ranks)
    assert counts.max() - counts.min() <= 1
    if len(each) % ranks == 0:
        loads = np.bincount(found, weights=each, minlength=ranks)
        assert loads.max() - loads.min() <= (each.max() - each.min()) * (1 + 1e-9) + 1e-6
    assert busiest(each, found, ranks) >= 1 - 1e-9


def test_work_is_of_what_a_model_reads_of_a_history():
    assert Deal(feature="x", squared=0.5, longest=4).work(np.array([0, 2, 9])).tolist() == [0.0, 4.0, 12.0]


def read(dataset: Dataset, rank: int, ranks: int = RANKS, *, steps: int = 3, **words: Any) -> list[Batch]:
    words = {"deal": BY_HISTORY, "seed": SEED, "drop_last": True, **words}
    with dataset.batches(rank=rank, world_size=ranks, batch_size=SIZE * RANKS // ranks, **words) as batches:
        return [expanded(batch) for _, batch in zip(range(steps), batches, strict=False)]


def loads(batch: Batch) -> float:
    return float(BY_HISTORY.work(batch.ids["history"].lengths.astype(np.int64)).sum())


def assert_same(first: Batch, second: Batch) -> None:
    assert first.sample_ids.tolist() == second.sample_ids.tolist()
    assert first.labels.tobytes() == second.labels.tobytes()
    for name, bags in first.ids.items():
        np.testing.assert_array_equal(bags.values, second.ids[name].values)
        np.testing.assert_array_equal(bags.lengths, second.ids[name].lengths)


def test_a_step_has_the_samples_that_it_had_and_ranks_as_much_to_do():
    dataset = open_dataset(spec_from_raw(dict(EVENTS), "events"))
    plain = [read(dataset, rank, deal=None) for rank in range(RANKS)]
    shared = [read(dataset, rank) for rank in range(RANKS)]
    for step in range(3):
        ids = [np.concatenate([each[step].sample_ids for each in ranks]) for ranks in (plain, shared)]
        assert sorted(ids[0].tolist()) == sorted(ids[1].tolist())
        assert {len(each[step]) for each in shared} == {SIZE}
        before, after = ([loads(each[step]) for each in ranks] for ranks in (plain, shared))
        assert max(after) / np.mean(after) < 1.01 < 1.2 < max(before) / np.mean(before)


def test_a_position_goes_on_with_the_same_batches_and_other_ranks_with_the_same_samples():
    dataset = open_dataset(spec_from_raw(dict(EVENTS), "events"))
    whole = read(dataset, 1, steps=4)
    with dataset.batches(
        rank=1, world_size=RANKS, batch_size=SIZE, seed=SEED, drop_last=True, deal=BY_HISTORY
    ) as batches:
        for _ in range(2):
            next(batches)
        position = batches.position
    for before, after in zip(whole[2:], read(dataset, 1, steps=2, position=position), strict=True):
        assert_same(before, after)
    two = [read(dataset, rank, 2, steps=1, position=position)[0].sample_ids for rank in range(2)]
    four = [read(dataset, rank, steps=1, position=position)[0].sample_ids for rank in range(RANKS)]
    assert sorted(np.concatenate(two).tolist()) == sorted(np.concatenate(four).tolist())


def test_rows_are_those_of_blocks():
    source: Any = open_dataset(spec_from_raw(dict(EVENTS), "events")).source
    rows = np.random.default_rng(0).permutation(int(source.sizes()[1]))[:100]
    assert_same(source.read(1).samples.take(rows), source.rows(1, rows).samples)
    for name, bags in source.read(1).samples.ids.items():
        np.testing.assert_array_equal(source.lengths(1, name), bags.lengths)


def test_formats_of_whole_blocks_deal_alike_and_so_do_workers(tmp_path: Path):
    pytest.importorskip("pyarrow")
    dataset = open_dataset(spec_from_raw(dict(EVENTS), "events"))
    write_dataset(dataset, tmp_path / "written")
    written = open_dataset(ParquetSpec(paths=(str(tmp_path / "written"),)))
    shared = [read(written, rank, steps=2) for rank in range(RANKS)]
    for step in range(2):
        work = [loads(each[step]) for each in shared]
        assert max(work) / np.mean(work) < 1.01
    assert len(np.unique(np.concatenate([batch.sample_ids for each in shared for batch in each]))) == 2 * SIZE * RANKS
    position = dataset.batches(rank=0, world_size=1, batch_size=1, seed=SEED).position
    settings = FeedSettings(
        data=dict(EVENTS), position=position, rank=1, world_size=RANKS, batch_size=SIZE, deal=BY_HISTORY
    )
    with Feed(settings, 1) as feed:
        for mine, wanted in zip(feed, read(dataset, 1), strict=False):
            assert_same(mine, wanted)


def test_a_feature_that_is_not_there_is_refused():
    dataset = open_dataset(spec_from_raw(dict(EVENTS), "events"))
    with pytest.raises(UsageError, match=r"dealt to ranks by feature 'histori', which the data does not"):
        read(dataset, 0, deal=Deal(feature="histori"))
    with pytest.raises(UsageError, match="grows with a history, is -1"):
        Deal(feature="history", squared=-1)
