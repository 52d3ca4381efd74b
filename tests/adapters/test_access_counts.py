"""What batches ask of tables, added up. Whole workloads: test_observe.py."""

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
