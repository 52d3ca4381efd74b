"""How many samples a step has: sizes by step, steps of whole epochs, and what is refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.errors import CorruptFile, UsageError
from recsmith.training import BatchChange, Run, RunData, load_run
from recsmith.training.run.data import BatchSizes

SIZES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 20)), min_size=1, max_size=4).map(
    lambda parts: BatchSizes(tuple((sum(steps for steps, _ in parts[:at]), size) for at, (_, size) in enumerate(parts)))
)


def stepped(sizes: BatchSizes, samples: int, epochs: int, ranks: int) -> list[int]:
    """Samples of a rank in each step, one step after the other."""
    made: list[int] = []
    for _ in range(epochs):
        left = samples
        while left >= sizes.at(len(made))[0] * ranks:
            made.append(sizes.at(len(made))[0])
            left -= made[-1] * ranks
    return made


@given(sizes=SIZES, samples=st.integers(1, 200), epochs=st.integers(1, 3), ranks=st.integers(1, 3))
def test_steps_of_epochs_are_counted_as_they_are_taken(sizes: BatchSizes, samples: int, epochs: int, ranks: int):
    assert sizes.steps(samples, epochs, ranks) == len(stepped(sizes, samples, epochs, ranks))


@given(sizes=SIZES, step=st.integers(0, 40))
def test_a_size_stays_until_it_changes(sizes: BatchSizes, step: int):
    size, more = sizes.at(step)
    assert all(sizes.at(step + later)[0] == size for later in range(min(more or 50, 50)))
    if more is not None:
        assert step + more in [first for first, _ in sizes.changes]


def test_a_run_says_sizes_of_a_rank_or_of_all():
    changes = (BatchChange(after_steps=10, size=120),)
    of_rank = RunData(train="x", batch_size=60, batch_changes=changes)
    of_all = RunData(train="x", global_batch_size=60, batch_changes=changes)
    assert of_rank.batch_sizes(3).changes == ((0, 60), (10, 120))
    assert of_all.batch_sizes(3).changes == ((0, 20), (10, 40))
    assert of_rank.local_batch_size(3) == of_rank.largest_batch == 120
    with pytest.raises(UsageError, match="size 125 cannot be shared evenly by 3 ranks; give a multiple of 3"):
        RunData(
            train="x", global_batch_size=60, batch_changes=(BatchChange(after_steps=1, size=125),)
        ).local_batch_size(3)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("data.batch_changes=[{after_steps: 9, size: 8}, {after_steps: 9, size: 4}]", "put them in order, each once"),
        ("data.batch_changes=[{after_steps: 0, size: 8}]", "after_steps is 0; it must be at least 1"),
        ("data.batch_changes=[{after_steps: 2, size: 0}]", "size is 0; it must be at least 1"),
        ("data.batch_changes=[{after: 2, size: 0}]", "after is not a known field"),
    ],
)
def test_wrong_changes_are_named(setting: str, words: str):
    with pytest.raises((CorruptFile, UsageError), match=words):
        load_run(Run(data=RunData(train="x"), output="y"), (setting,))


@pytest.mark.parametrize("feed", [None, 1])
def test_every_sample_is_used_once_whatever_the_sizes(feed: int | None, tmp_path: Path):
    pytest.importorskip("torchrec")
    from recsmith.training.batches import training_batches
    from recsmith.training.tables.features import Features

    spec = {
        "format": "generator", "seed": 1, "num_samples": 1000, "features": [{"name": "a", "num_embeddings": 10}],
    }  # fmt: skip
    changes = tuple(BatchChange(after_steps=at, size=size) for at, size in ((3, 70), (5, 31), (30, 64)))
    data = RunData(train=spec, batch_size=20, batch_changes=changes, epochs=2, feed=feed)
    from recsmith.training.sources import open_source

    source, features = open_source(Run(data=data, output=str(tmp_path), seed=3)), Features(("a",), {})
    sizes = data.batch_sizes(2)
    every = [list(training_batches(source, sizes, features, rank=rank, ranks=2)) for rank in range(2)]
    assert [len(batch.place.samples) for batch in every[0]] == stepped(sizes, 1000, 2, 2)
    used = [number for batches in every for batch in batches for number in batch.place.samples.sample_ids.tolist()]
    assert max(used.count(number) for number in range(1000)) <= 2
    at = 7  # a run that goes on after some steps takes the batches that it would have taken
    state = every[0][at - 1].place.state
    rest = training_batches(source, sizes, features, rank=0, ranks=2, state=state, step=at)
    assert [batch.place.samples.sample_ids.tolist() for batch in rest] == [
        batch.place.samples.sample_ids.tolist() for batch in every[0][at:]
    ]


def test_data_that_is_smaller_than_a_step_is_refused():
    pytest.importorskip("torchrec")
    from recsmith.training.batches import training_batches
    from recsmith.training.sources import open_source
    from recsmith.training.tables.features import Features

    spec = {"format": "generator", "seed": 1, "num_samples": 100, "features": [{"name": "a", "num_embeddings": 10}]}
    data = RunData(train=spec, batch_size=64)
    source = open_source(Run(data=data, output="x", steps=9))
    batches = training_batches(source, data.batch_sizes(2), Features(("a",), {}), rank=0, ranks=2)
    with pytest.raises(UsageError, match=r"holds 100 samples, and a step takes 128 \(64 on each of 2 ranks\)"):
        next(batches)
