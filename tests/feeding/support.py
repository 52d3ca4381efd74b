"""Feeds of generated samples, and what they must give."""

import os
import signal
from contextlib import suppress
from typing import Any

import numpy as np

from recsmith.data import Batch, Position, open_dataset, spec_from_raw
from recsmith.feeding import Feed, FeedSettings, FeedStatus, WorkerStatus

LISTS = {"pooling_factor": 3, "lengths": "poisson"}
SPEC: dict[str, Any] = {
    "format": "generator", "num_samples": 40_000, "dense": 2, "sessions": {"size": 8, "duplication": 0.9},
    "features": [{"name": "a", "num_embeddings": 50, **LISTS}, {"name": "b", "num_embeddings": 900}],
}  # fmt: skip
GROUPS, WINDOW, BATCH = (("a",),), 6000, 300
STATUS = FeedStatus(
    rank=0, ranks=2, process="here:1", engine="local", written=1000.0, epoch=1, used=500, num_samples=2000, samples=250,
    seconds=5.0, samples_per_s=50.0, waiting=0.25, waited_s=1.0, ahead=120, windows=3, lost=1, ended=False,
    workers=(WorkerStatus(number=0, place="here:7", window=4, windows=3, lag_s=0.5),),
)  # fmt: skip


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


def pid_of(feed: Feed, number: int = 0) -> int:
    """The process of a worker; 0 where it does not run yet."""
    return int(feed.threads[number].worker.place.rpartition(":")[2] or 0)


def kill_worker(feed: Feed) -> None:
    """Kill a worker's process; one that was killed before and is not replaced yet has none."""
    with suppress(ProcessLookupError):
        os.kill(pid_of(feed), signal.SIGKILL)


def assert_same(one: Batch, other: Batch) -> None:
    assert np.array_equal(one.sample_ids, other.sample_ids)
    assert np.array_equal(one.dense, other.dense)
    assert np.array_equal(one.labels, other.labels)
    for name, bags in one.ids.items():
        assert np.array_equal(bags.values, other.ids[name].values)
        assert np.array_equal(bags.lengths, other.ids[name].lengths)
    assert all(np.array_equal(row, other.inverse[name]) for name, row in one.inverse.items())
