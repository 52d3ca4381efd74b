"""Counts of batches, and the KeyedJaggedTensors that are found in them."""

from types import SimpleNamespace
from typing import Any

import pytest
from support.build import table

from recsmith.errors import UsageError
from recsmith.workloads import Feature

pytestmark = pytest.mark.usefixtures("torchrec")
TABLE = table("a", rows=10, features=(Feature(name="f", pooling_factor=1.0),))


def batch(*bags: list[int]) -> Any:
    import torch
    from torchrec import KeyedJaggedTensor

    ids = torch.tensor([i for bag in bags for i in bag], dtype=torch.int64)
    return KeyedJaggedTensor(keys=["f"], values=ids, lengths=torch.tensor([len(bag) for bag in bags]))


def test_ids_bags_and_rows_by_their_reads_add_up_over_batches():
    from recsmith.adapters.access_counts import AccessCounts

    counts = AccessCounts([TABLE])
    counts.add(batch([1, 1, 1], [2]))
    counts.add(batch([1], []))
    counts.check()
    measured = counts.measured(TABLE)
    assert (counts.batches, counts.samples) == (2, 4)
    assert (measured.features[0].pooling_factor, measured.features[0].num_poolings) == (5 / 4, 1.0)
    assert measured.access is not None
    assert (measured.access.lookups, measured.access.unique_rows) == (2, 2)  # of a batch: 5 / 2 and 3 / 2, rounded
    assert measured.access.reuse_bins is not None
    assert measured.access.reuse_bins[:3] == pytest.approx((2 / 3, 0.0, 1 / 3))  # 3 reads are in the bin (2, 4]


def test_too_little_is_refused_only_at_the_end():
    from recsmith.adapters.access_counts import AccessCounts

    counts = AccessCounts([TABLE])
    with pytest.raises(UsageError, match="batches is empty"):
        counts.check()
    counts.add(batch())
    with pytest.raises(UsageError, match="the 1 batches hold no samples"):
        counts.check()


def tensor() -> Any:
    """Two keys of two samples: bags of 1 and 2 ids, and of 0 and 1."""
    import torch
    from torchrec import KeyedJaggedTensor

    return KeyedJaggedTensor(keys=["a", "b"], values=torch.tensor([5, 6, 7, 8]), lengths=torch.tensor([1, 2, 0, 1]))


def test_each_key_has_its_ids_and_bags():
    from recsmith.adapters.access_counts import find_jagged

    (found,) = find_jagged(tensor(), 0)
    assert (found.place, found.samples, found.weighted, found.bags) == ("batch", 2, False, [2, 2])
    assert [found.ids(key).tolist() for key in ("a", "b")] == [[5, 6, 7], [8]]


@pytest.mark.parametrize(
    ("hold", "place"),
    [
        (lambda one: [0, one], "batch[1]"),
        (lambda one: {"x": (one,)}, "batch['x'][0]"),
        (lambda one: SimpleNamespace(sparse=one, again=one), "batch.sparse"),
    ],
)
def test_a_tensor_is_found_once_and_named_by_how_it_is_reached(hold: Any, place: str):
    from recsmith.adapters.access_counts import find_jagged

    assert [each.place for each in find_jagged(hold(tensor()), 0)] == [place]


def test_batches_are_searched_two_levels_deep_and_no_deeper():
    from recsmith.adapters.access_counts import find_jagged

    with pytest.raises(UsageError, match="batch 7 holds no KeyedJaggedTensor at its top or 2 levels deep; types seen"):
        find_jagged([[[tensor()]]], 7)


def test_long_lists_of_words_are_cut():
    from recsmith.adapters.access_counts import listed

    assert listed(["a", "b"]) == "a, b"
    assert listed(["a"] * 23).endswith("a, a and 3 more")
