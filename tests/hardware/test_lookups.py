"""The ids of a case: by the Zipf law of its tables, the same every time."""

import math
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.measured import group

from recsmith.workloads.zipf import zipf_reuse_bins, zipf_unique_rows

if find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

import torch

from recsmith.hardware.lookups import draw_lookups, draw_ranks, scatter, uniform_pool

POOL = uniform_pool(2**18, torch.device("cpu"))
shapes = st.tuples(st.integers(1, 2_000_000), st.just(4), st.floats(0, 50), st.floats(0, 1.6))


@settings(max_examples=50)
@given(st.lists(shapes, min_size=1, max_size=4), st.integers(1, 500))
def test_ids_are_rows_and_offsets_are_bags_of_nearly_one_size(tables: list[Any], batch_size: int):
    case = group(*tables, batch_size=batch_size)
    found = draw_lookups(case, POOL)
    bags = found.offsets.diff().view(len(tables), batch_size)
    ids = found.ids.split(list(case.lookups))
    assert tuple(bags.sum(1).tolist()) == case.lookups
    assert (bags.max(1).values - bags.min(1).values <= 1).all()
    for t, (rows, *_) in enumerate(tables):
        assert ((ids[t] >= 0) & (ids[t] < rows)).all()
        assert found.unique_rows[t] == len(ids[t].unique())
    bins = torch.tensor(found.reuse_bins).view(len(tables), 17)
    assert tuple(bins.sum(1).tolist()) == found.unique_rows


def test_bins_count_rows_by_their_reads():
    found = draw_lookups(group((4, 4, 9.0, 1.5), batch_size=100), POOL)
    reads = found.ids.bincount().tolist()
    expected = [0] * 17
    for count in reads:
        expected[math.ceil(math.log2(count))] += 1
    assert list(found.reuse_bins) == expected


@pytest.mark.parametrize("zipf", [0.0, 0.4, 1.0, 1.3, 1.6])
@pytest.mark.parametrize("rows", [30, 3_000, 1_000_000])
def test_rows_repeat_as_the_law_says(zipf: float, rows: int):
    case = group((rows, 4, 100.0, zipf), batch_size=2000)
    found = draw_lookups(case, POOL)
    arguments = np.array([zipf]), np.array([float(rows)]), np.array([float(case.lookups[0])])
    unique = float(zipf_unique_rows(*arguments)[0])
    assert found.unique_rows[0] == pytest.approx(unique, rel=0.01, abs=1)
    bins = zipf_reuse_bins(*arguments)[0]
    assert np.abs(np.array(found.reuse_bins) - bins).max() <= 5 * math.sqrt(bins.max()) + 2


@pytest.mark.parametrize("zipf", [0.3, 1.0, 1.6])
def test_ranks_behind_the_head_have_the_chances_of_the_law(zipf: float):
    """Ranks 65 to 1000 of 1000 at even quantiles: as often as the sum of their chances."""
    even = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    ranks = draw_ranks(even, 1000, zipf).numpy()
    chance = np.arange(1, 1001) ** -zipf
    shares = np.cumsum(chance / chance.sum())
    for rank in (0, 63, 64, 99, 500, 998):
        assert np.mean(ranks <= rank) == pytest.approx(shares[rank], abs=1e-4)
    assert ranks.max() == 999


@given(st.integers(1, 300))
def test_scatter_is_a_permutation(rows: int):
    assert sorted(scatter(torch.arange(rows), rows).tolist()) == list(range(rows))


def test_neighbouring_ranks_are_far_apart():
    spread = scatter(torch.arange(1000), 1_000_000).sort().values.diff()
    assert spread.min() > 100


def test_ids_are_the_same_again_and_a_longer_pool_begins_alike():
    case = group((1000, 4, 5.0, 1.0), (70, 8, 2.0, 0.5))
    first, second = draw_lookups(case, POOL), draw_lookups(case, POOL)
    assert torch.equal(first.ids, second.ids)
    assert torch.equal(uniform_pool(1000, torch.device("cpu")), POOL[:1000])
