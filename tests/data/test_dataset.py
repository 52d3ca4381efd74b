"""Every sample of an epoch is used exactly once, in whatever worlds, and however often they are restarted."""

import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data.sources import NumberedSource
from hypothesis import given, settings
from hypothesis import strategies as st

from recsmith.data import Dataset, Position, open_dataset
from recsmith.data import order as order_module
from recsmith.data.batches import HeldBlocks
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import decode, encode

sizes_of_blocks = st.lists(st.integers(0, 9), max_size=14)
worlds = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(0, 3)), max_size=4)


@pytest.fixture(autouse=True, scope="module")
def _small_windows() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Windows of a dozen samples, so that small data has many."""
    kept, order_module.WINDOW = order_module.WINDOW, 12
    yield
    order_module.WINDOW = kept


def used(dataset: Dataset, world_size: int, batch_size: int, steps: int | None, **words: object):
    """(ids by rank of some steps, how many batches each rank got, positions after them)."""
    ids: list[list[int]] = []
    counts: list[int] = []
    positions: list[Position] = []
    for rank in range(world_size):
        with dataset.batches(rank=rank, world_size=world_size, batch_size=batch_size, **words) as batches:  # pyright: ignore[reportArgumentType]
            got = list(itertools.islice(batches, steps))
            assert all(len(batch) <= batch_size for batch in got)
            ids.append([int(each) for batch in got for each in batch.sample_ids])
            counts.append(len(got))
            positions.append(batches.position)
    return ids, counts, positions


@settings(max_examples=120, deadline=None)
@given(sizes_of_blocks, worlds, st.booleans(), st.integers(0, 3), st.booleans())
def test_each_sample_is_used_once_across_restarts_and_worlds(
    sizes: list[int], phases: list[tuple[int, int, int]], shuffle: bool, seed: int, in_files: bool
):
    files = ((0, len(sizes) // 2),) if in_files and len(sizes) > 1 else ()
    dataset = Dataset(NumberedSource(sizes, files))
    seen: list[int] = []
    position = None
    for world_size, batch_size, steps in [*phases, (3, 4, None)]:
        ids, counts, positions = used(
            dataset, world_size, batch_size, steps, seed=seed, shuffle=shuffle, epoch=2, position=position
        )
        assert len(set(counts)) == 1, "ranks get equally many batches"
        assert len(set(map(str, positions))) == 1, "ranks agree on the position"
        position = decode(Position, encode(positions[0]), "checkpoint")
        assert position == positions[0]
        seen += [each for rank in ids for each in rank]
        assert position.used == len(seen)
    assert sorted(seen) == list(range(sum(sizes)))


def test_the_samples_of_a_step_do_not_depend_on_how_many_ranks_share_them():
    dataset = Dataset(NumberedSource([7] * 10))
    steps: list[list[set[int]]] = []
    for world_size, batch_size in ((1, 12), (2, 6), (3, 4), (4, 3)):
        ranks = [
            [set(batch.sample_ids.tolist()) for batch in dataset.batches(rank=r, world_size=world_size,
             batch_size=batch_size, seed=5)] for r in range(world_size)
        ]  # fmt: skip
        steps.append([set.union(*each) for each in zip(*ranks, strict=True)])
    assert all(each == steps[0] for each in steps)
    assert len(steps[0]) == 6


def test_samples_that_stay_together_do_so_and_none_is_lost():
    dataset = Dataset(NumberedSource([8] * 10))
    with dataset.batches(rank=0, world_size=1, batch_size=16, seed=5, together=4) as batches:
        found = [batch.sample_ids for batch in batches]
    assert sorted(np.concatenate(found).tolist()) == list(range(80))
    runs = [set((batch // 4).tolist()) for batch in found]
    assert all(len(each) == 4 for each in runs)
    assert any(max(each) - min(each) > 4 for each in runs), "the runs themselves are shuffled"


def test_the_order_follows_from_seed_and_epoch_and_is_as_stored_without_shuffling():
    dataset = Dataset(NumberedSource([5] * 20))

    def order(**words: int | bool) -> list[int]:
        return used(dataset, 1, 1, None, **({"seed": 0} | words))[0][0]

    assert order() == order()
    assert len({tuple(order(seed=seed, epoch=epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4
    assert order(shuffle=False) == list(range(100))
    firsts = [used(dataset, 1, 1, 1, seed=seed)[0][0][0] for seed in range(200)]
    assert abs(np.mean(firsts) - 49.5) < 4 * 28.9 / np.sqrt(200), "any sample can be the first"


def test_blocks_of_a_file_that_is_read_from_its_beginning_stay_in_order():
    source = NumberedSource([5] * 12, files=((0, 4), (4, 12)))
    used(Dataset(source), 1, 30, None, seed=3)
    firsts = [block for at, block in enumerate(source.reads) if block not in source.reads[:at]]
    assert firsts in ([*range(12)], [*range(4, 12), *range(4)])


def test_a_rank_reads_few_blocks_and_keeps_those_of_a_window(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(order_module, "WINDOW", 1600)
    source = NumberedSource([100] * 64)
    used(Dataset(source), 1, 200, None, seed=0)
    assert sorted(source.reads) == list(range(64)), "one rank reads each block once"
    source.reads.clear()
    ids, _, _ = used(Dataset(source), 8, 25, None, seed=0)
    assert sorted(each for rank in ids for each in rank) == list(range(6400))
    assert len(source.reads) <= 8 * 64 * 0.45, "eight ranks read a part each"


@pytest.mark.parametrize("batch_size", [4, 7])
def test_drop_last_leaves_out_what_does_not_fill_a_step(batch_size: int):
    ids, counts, positions = used(Dataset(NumberedSource([10] * 5)), 3, batch_size, None, seed=0, drop_last=True)
    full = 50 // (3 * batch_size)
    assert counts == [full] * 3
    assert positions[0].used == full * 3 * batch_size == sum(map(len, ids))


def test_the_example_of_joined_blocks_is_of_one_with_a_corrupt_row():
    first, second = (NumberedSource([4], corrupt=every).read(0) for every in (0, 3))
    held = HeldBlocks(())
    held.add({0: replace(first, valid=np.ones(4, np.bool_), first_corrupt=""), 1: second})
    assert (held.block.corrupt, held.block.first_corrupt) == (2, "line 1 is garbage")


def test_corrupt_samples_are_counted_and_stop_the_epoch_above_the_limit():
    dataset = Dataset(NumberedSource([10] * 5, corrupt=10, max_corrupt=5))
    batches = dataset.batches(rank=0, world_size=1, batch_size=8, seed=0)
    assert sorted(int(each) for batch in batches for each in batch.sample_ids) == [n for n in range(50) if n % 10]
    assert (batches.counts.samples, batches.counts.corrupt, batches.position.used) == (45, 5, 50)
    with pytest.raises(CorruptFile, match="5 samples are corrupt, more than max_corrupt: 4 allows; line 1 is garbage"):
        list(Dataset(NumberedSource([10] * 5, corrupt=10, max_corrupt=4)).batches(
            rank=0, world_size=1, batch_size=8, seed=0))  # fmt: skip


def test_a_position_of_other_data_or_another_order_is_refused():
    dataset = Dataset(NumberedSource([10]))
    words: dict[str, Any] = {"rank": 0, "world_size": 1, "batch_size": 4}
    position = dataset.batches(**words, seed=1).position
    with pytest.raises(UsageError, match="the position is of seed 1 and shuffle True, not seed 2 and shuffle True"):
        dataset.batches(**words, seed=2, position=position)
    other = Position(epoch=0, used=0, seed=1, shuffle=True, dataset="else")
    with pytest.raises(CorruptFile, match="the position is of other data"):
        dataset.batches(**words, seed=1, position=other)
    with pytest.raises(UsageError, match="2 rules are broken: rank is 1; it must be 0 to 0; batch_size is 0"):
        dataset.batches(rank=1, world_size=1, batch_size=0, seed=1)


def test_the_thread_ends_with_its_iterator():
    dataset = Dataset(NumberedSource([100] * 20))
    before = set(threading.enumerate())
    batches = dataset.batches(rank=0, world_size=1, batch_size=1, seed=0)
    next(batches)
    assert len(set(threading.enumerate()) - before) == 1
    batches.close()
    assert list(batches) == []
    del batches
    forgotten = dataset.batches(rank=0, world_size=1, batch_size=1, seed=0)
    next(forgotten)
    del forgotten
    deadline = time.monotonic() + 10
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("ending", ["csv", "parquet", "txt"])
def test_files_of_partition_folders_are_read_once(tmp_path: Path, ending: str):
    """Of text, folders within a folder were passed over; and a file beside its folder was read twice."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    line = "\t".join(["1", *["5"] * 13, *["abcdef01"] * 26]) + "\n"
    for day in ("day=10", "day=9", "_temporary", ".cache"):
        (tmp_path / "logs" / day).mkdir(parents=True)
        path = tmp_path / "logs" / day / f"part-0.{ending}"
        if ending == "parquet":
            parquet.write_table(pyarrow.table({"user": [1], "clicked": [1]}), path)
        else:
            path.write_text(line if ending == "txt" else "user,clicked\n1,1\n")
        (path.parent / "_SUCCESS").touch()
    kind = {"csv": "text", "parquet": "parquet", "txt": "criteo"}[ending]
    columns: dict[str, Any] = {"features": [{"name": "user", "num_embeddings": 2}], "labels": ["clicked"]}
    spec = {"format": kind, "paths": [str(tmp_path / "logs")], **({} if kind == "criteo" else columns)}
    assert count(open_dataset(spec)) == 2
    twice = [str(tmp_path / "logs"), str(tmp_path / f"logs/day=9/part-0.{ending}")]
    with pytest.raises(UsageError, match=r"day=9/part-0.* would be read twice; name it, or the folder that it is in"):
        open_dataset(spec | {"paths": twice})


def count(dataset: Dataset) -> int:
    return sum(map(len, dataset.batches(rank=0, world_size=1, batch_size=8, seed=0)))
