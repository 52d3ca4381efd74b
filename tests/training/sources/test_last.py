"""Samples that fill no step at the end of an epoch: told, left out, or kept."""

from pathlib import Path
from typing import Any

import pytest

from recsmith.testing.sources import SIZE, numbers, read
from recsmith.training import Run, RunData
from recsmith.training.run.data import BatchSizes
from recsmith.training.sources import open_source, total_steps

TRAIN: dict[str, Any] = {
    "format": "generator", "dense": 2, "num_samples": 103, "features": [{"name": "user", "num_embeddings": 50}],
}  # fmt: skip


@pytest.mark.parametrize("feed", [None, 1])
def test_kept_samples_are_trained_once(feed: int | None, tmp_path: Path):
    data = RunData(train=TRAIN, last="keep", epochs=2, feed=feed)
    source, sizes = open_source(Run(data=data, output=str(tmp_path))), BatchSizes(((0, SIZE),))
    ranks = [read(source, rank, 3, SIZE, steps=99) for rank in range(3)]
    steps = source.steps(sizes, 3)
    assert [len(each) for each in ranks] == [steps] * 3 == [6] * 3
    used = [number for each in ranks for batch, _ in each[:3] for number in numbers(batch)]
    assert sorted(used) == list(range(103))
    assert [len(each[2][0]) for each in ranks] == [2, 2, 3]
    assert source.notes(sizes, 3, None) == []


@pytest.mark.parametrize("last", ["drop", "keep"])
@pytest.mark.parametrize("done", [1, 3, 4])
def test_the_end_is_where_other_ranks_come_to_it(last: Any, done: int):
    run = Run(data=RunData(train=TRAIN, last=last, epochs=3, batch_size=SIZE), output="x")
    source = open_source(run)
    state = [state for _, state in read(source, 0, 3, SIZE, steps=done)][-1]
    rest = read(source, 0, 2, SIZE, steps=99, state=state)
    assert total_steps(run, source, 2, done, state) == done + len(rest)
    assert total_steps(run, source, 3, done, state) == total_steps(run, source, 3)


def test_samples_that_are_left_out_are_told():
    source = open_source(Run(data=RunData(train=TRAIN), output="x"))
    (note,) = source.notes(BatchSizes(((0, SIZE),)), 3, None)
    assert note.startswith("7 of 103 samples fill no step of 3 ranks at the end of an epoch, and are left out")
    assert source.notes(BatchSizes(((0, 103),)), 1, None) == []


def test_tensors_of_a_step_of_fewer_are_as_long_and_nothing_counts_as_corrupt():
    pytest.importorskip("torchrec")
    from recsmith.training.batches import training_batches
    from recsmith.training.steps.protocol import StepOutcome
    from recsmith.training.tables.features import Features

    source = open_source(Run(data=RunData(train=TRAIN, last="keep"), output="x"))
    sizes = BatchSizes(((0, 60),))
    first, last = training_batches(source, sizes, Features(("user",), {}), rank=0, ranks=1)
    assert (len(first.labels), len(last.labels), last.sparse_features.stride()) == (60, 60, 60)
    place = last.place
    outcome = StepOutcome(last.labels, last.labels, last.labels, (place,))
    assert (len(place.samples), outcome.asked, outcome.corrupt) == (43, 43, 0)
