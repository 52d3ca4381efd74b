"""Samples that come again are counted within their epoch, in bounded memory; state goes on."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.streaming.repeats import SeenSamples


def see(seen: SeenSamples, first: int, last: int, epoch: int = 0) -> tuple[int, int]:
    """What is counted of batches of 500 samples."""
    for at in range(first, last, 500):
        seen.add(np.arange(at, at + 500), epoch)
    return seen.take()


def test_samples_that_come_again_are_counted_in_bounded_memory() -> None:
    seen = SeenSamples(most=256)
    checked, repeated = see(seen, 0, 40_000)
    assert repeated == 0
    assert checked > 256
    checked, repeated = see(seen, 30_000, 40_000)
    assert checked == repeated > 20
    assert seen.take() == (0, 0)


def test_the_next_epoch_repeats_nothing_whatever_its_order() -> None:
    seen, order = SeenSamples(), np.random.default_rng(0).permutation(2000)
    for epoch in range(3):
        for part in np.split(np.roll(order, 700 * epoch), 4):
            seen.add(part, epoch)
    assert seen.take() == (6000, 0)


def test_state_goes_on_and_ranks_merge() -> None:
    seen = SeenSamples(most=256)
    see(seen, 0, 20_000)
    seen.add(np.arange(40), 0)
    other = SeenSamples(most=256)
    other.from_raw(json.loads(json.dumps(seen.to_raw())))
    assert other.to_raw() == seen.to_raw()
    assert see(other, 0, 20_000) == see(seen, 0, 20_000)

    parts = [SeenSamples(most=256), SeenSamples(most=256)]
    see(parts[0], 0, 20_000)
    see(parts[1], 20_000, 40_000)
    whole = SeenSamples(most=256)
    for part in parts:
        whole.take_in(part)
    checked, repeated = see(whole, 0, 40_000)
    assert checked == repeated > 20


@given(st.lists(st.lists(st.integers(0, 50), max_size=20), max_size=20))
def test_with_memory_for_all_it_counts_exactly(batches: list[list[int]]) -> None:
    seen, known, repeated = SeenSamples(), set[int](), 0
    for batch in batches:
        seen.add(np.array(batch, np.int64), 3)
        for each in batch:
            repeated += each in known
            known.add(each)
    assert seen.take() == (sum(map(len, batches)), repeated)


def test_samples_of_another_version_are_refused() -> None:
    from recsmith.errors import CorruptFile

    with pytest.raises(CorruptFile, match="another version"):
        SeenSamples().from_raw({"bound": 1, "seen": 2})
