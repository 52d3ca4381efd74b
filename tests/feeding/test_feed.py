"""A feed gives the batches that a dataset gives, sample by sample, whatever happens to its workers."""

import importlib
from pathlib import Path

import pytest
from feeding.support import BATCH, SPEC, assert_same, kill_worker, locally, settings

from recsmith.data import Batch
from recsmith.errors import CorruptFile, RecSmithError
from recsmith.feeding import Feed


@pytest.mark.parametrize(("used", "drop_last"), [(0, False), (7777, True)])
def test_batches_are_those_of_the_dataset_even_when_workers_are_killed(used: int, drop_last: bool) -> None:
    made = settings(used=used)
    expected = locally(made, drop_last=drop_last)
    with Feed(made, workers=2, drop_last=drop_last) as feed:
        found: list[Batch] = []
        for batch in feed:
            found.append(batch)
            if len(found) in (3, 20):
                kill_worker(feed)
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
            if feed.figures.made == 2:
                break
        time.sleep(0.3)
        assert feed.figures.made == 2  # the window in use, and one ahead
        windows = {window for window, _ in feed.buffer.parts}
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
        with feed.buffer.changed:
            feed.buffer.leases.whole.clear()  # as if the worker had been lost before it said that its windows are whole
        kill_worker(feed)
        for _ in feed:
            pass
        assert feed.figures.lost == 1
        assert not feed.buffer.parts


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


def test_labels_outside_0_to_1_are_corrupt_in_a_worker_as_everywhere(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    importlib.import_module("pyarrow.parquet").write_table(
        pyarrow.table({"b": list(range(300)), "clicked": [(-1.0, 0.0, 0.5, 1.0, 5.0)[row % 5] for row in range(300)]}),
        tmp_path / "a.parquet",
    )
    features = [{"name": "b", "num_embeddings": 300}]
    data = {"format": "parquet", "paths": [str(tmp_path)], "features": features, "labels": ["clicked"]}
    some = settings(data={**data, "max_corrupt": 200}, groups=(), batch_size=30, rank=0, world_size=1)
    with Feed(some, workers=1) as feed:
        found = list(feed)
        assert (feed.counts.samples, feed.counts.corrupt) == (180, 120)
    assert {label for batch in found for label in batch.labels.ravel().tolist()} <= {0.0, 0.5, 1.0}
    for one, other in zip(found, locally(some), strict=True):
        assert_same(one, other)
