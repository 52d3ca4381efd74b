"""A feed gives the batches that a dataset gives, sample by sample, whatever happens to its workers."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsmith.data import Batch, Position, open_dataset, spec_from_raw
from recsmith.errors import CorruptFile, RecSmithError
from recsmith.feeding import Feed, FeedSettings

LISTS = {"pooling_factor": 3, "lengths": "poisson"}
SPEC: dict[str, Any] = {
    "format": "generator", "num_samples": 40_000, "dense": 2, "sessions": {"size": 8, "duplication": 0.9},
    "features": [{"name": "a", "num_embeddings": 50, **LISTS}, {"name": "b", "num_embeddings": 900}],
}  # fmt: skip
GROUPS, WINDOW, BATCH = (("a",),), 6000, 300


def settings(**words: Any) -> FeedSettings:
    data = words.pop("data", SPEC)
    dataset = open_dataset(spec_from_raw(dict(data), "a test"))
    position = Position(
        epoch=1, used=words.pop("used", 0), seed=3, shuffle=True, dataset=dataset.source.digest, together=8,
        window=WINDOW,
    )  # fmt: skip
    values: dict[str, Any] = {"rank": 1, "world_size": 2, "batch_size": BATCH, "groups": GROUPS}
    return FeedSettings(data=data, position=position, **{**values, **words})


def locally(made: FeedSettings, *, drop_last: bool = False) -> list[Batch]:
    with made.open().batches(
        rank=made.rank, world_size=made.world_size, batch_size=made.batch_size, seed=3, epoch=1, together=8,
        window=WINDOW, position=made.position, deduplicate=made.groups, drop_last=drop_last,
    ) as batches:  # fmt: skip
        return list(batches)


def assert_same(one: Batch, other: Batch) -> None:
    assert np.array_equal(one.sample_ids, other.sample_ids)
    assert np.array_equal(one.dense, other.dense)
    assert np.array_equal(one.labels, other.labels)
    for name, bags in one.ids.items():
        assert np.array_equal(bags.values, other.ids[name].values)
        assert np.array_equal(bags.lengths, other.ids[name].lengths)
    assert all(np.array_equal(row, other.inverse[name]) for name, row in one.inverse.items())


@pytest.mark.parametrize(("used", "drop_last"), [(0, False), (7777, True)])
def test_batches_are_those_of_the_dataset_even_when_workers_are_killed(used: int, drop_last: bool) -> None:
    made = settings(used=used)
    expected = locally(made, drop_last=drop_last)
    with Feed(made, workers=2, drop_last=drop_last) as feed:
        found: list[Batch] = []
        for batch in feed:
            found.append(batch)
            if len(found) in (3, 20):
                os.kill(feed._hands[0].process.pid, signal.SIGKILL)
        assert feed.position.used == (40_000 if not drop_last else used + len(found) * 2 * BATCH)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)


def test_only_so_much_is_read_ahead_of_a_slow_trainer() -> None:
    import time

    with Feed(settings(), workers=1) as feed:
        next(feed)
        for _ in range(40):
            time.sleep(0.1)
            if feed.made == 2:
                break
        time.sleep(0.3)
        assert feed.made == 2  # the window in use, and one ahead
        windows = {window for window, _ in feed._parts}
        assert len(windows) <= 2


def test_a_step_may_have_more_windows_than_are_read_ahead() -> None:
    wide = settings(batch_size=20_000, groups=())  # 40,000 samples in five windows, for a feed that reads two ahead
    with Feed(wide, workers=1) as feed:
        found = list(feed)
    for one, other in zip(found, locally(wide), strict=True):
        assert_same(one, other)


def test_what_comes_again_after_a_loss_is_not_kept() -> None:
    with Feed(settings(), workers=1) as feed:
        for _ in range(3):
            next(feed)
        with feed._changed:
            feed.leases.whole.clear()  # as if the worker had been lost before it said that its windows are whole
        feed._hands[0].process.kill()
        for _ in feed:
            pass
        assert feed.lost == 1
        assert not feed._parts


def test_what_is_wrong_in_a_worker_is_told(tmp_path: Path) -> None:
    wrong = [{"op": "map_ids", "feature": "b", "ids": list(range(5)), "unknown": "wrong"}]
    with (
        Feed(settings(data={**SPEC, "transforms": wrong}), workers=1) as feed,
        pytest.raises(RecSmithError, match="map_ids has no outcome for 'b' of sample"),
    ):
        next(feed)
    counted = {**SPEC, "transforms": wrong, "wrong": "skip", "max_wrong": 20_000}
    some = settings(data=counted)
    with Feed(some, workers=1) as feed:
        found = list(feed)
        assert feed.counts.corrupt > 0
        assert feed.counts.samples + feed.counts.corrupt == 20_000
    for one, other in zip(found, locally(some), strict=True):
        assert_same(one, other)
    few = settings(data={**counted, "max_wrong": 5})
    with Feed(few, workers=1) as feed, pytest.raises((CorruptFile, RecSmithError), match="samples are corrupt"):
        list(feed)
