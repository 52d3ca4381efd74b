"""Blocks of rows: shares against ids that are counted block by block, and laws against the ids that they draw."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.build import table

from recsmith._types import Ints
from recsmith.errors import UsageError
from recsmith.workloads import AccessProfile, Table
from recsmith.workloads.busiest_shares import BLOCKS, BusiestShares, busiest_shares
from recsmith.workloads.reuse import Reuse
from recsmith.workloads.row_blocks import (
    access_of_ids,
    block_ends,
    busiest_block,
    draw_rows,
    hot_rows_of,
    law_of,
    lookups_before,
    range_zipf,
)

RANKS = (2, 4, 8, 16)


def _table(rows: int, **access: Any) -> Table:
    return table("t", rows, 16, access=AccessProfile(**access) if access else None)


def _zipf_ids(rows: int, zipf: float, count: int, seed: int) -> Ints:
    """Ids by frequency: row 0 is read most."""
    chance = np.arange(1, rows + 1) ** -zipf
    return np.random.default_rng(seed).choice(rows, count, p=chance / chance.sum())


def _shares(ids: Ints, rows: int, ranks: int) -> np.ndarray[Any, Any]:
    """The shares of lookups, and of different rows, that TorchRec's blocks find (2, ranks)."""
    size = -(-rows // ranks)
    counts = [np.bincount(each // size, minlength=ranks) for each in (ids, np.unique(ids))]
    return np.array([each / each.sum() for each in counts])


def _blocks(ids: Ints, rows: int, ranks: int) -> tuple[float, float]:
    """The busiest block's share of lookups, and the largest share of different rows."""
    lookups, unique = _shares(ids, rows, ranks).max(axis=1).tolist()
    return lookups, unique


@pytest.mark.parametrize("rows", [100, 1000, 5003])
@pytest.mark.parametrize("ranks", RANKS)
def test_counted_blocks_say_what_torchrec_s_blocks_find(rows: int, ranks: int):
    ids = np.sort(_zipf_ids(rows, 0.9, 40_000, seed=rows))[::-1].copy()
    ids = np.random.default_rng(1).permutation(rows)[ids // 7 * 7 % rows] // 2 + rows // 3  # hot rows in the middle
    access = access_of_ids(ids, rows)
    assert access is not None
    assert access.block_lookups is not None
    assert len(access.block_lookups) == min(BLOCKS, rows)
    assert (access.lookups, sum(access.block_lookups)) == (len(ids), len(ids))
    counted = replace(_table(rows), access=access)
    found = busiest_block(counted, Reuse.of((counted,)), ranks, float(len(ids)))
    lookups, unique = _blocks(ids, rows, ranks)
    assert found is not None
    exactly = 1e-9 if rows <= BLOCKS else 0.05  # of more rows a counted block has several, which two of these share
    assert found.lookups == pytest.approx(lookups, rel=exactly)
    assert found.unique_rows == pytest.approx(unique, rel=exactly)


@pytest.mark.parametrize("zipf", [0.0, 0.6, 0.9, 1.3, 2.0])
@pytest.mark.parametrize("ranks", RANKS)
def test_hot_rows_in_front_follow_from_the_exponent(zipf: float, ranks: int):
    rows, count = 4000, 50_000
    stated = _table(rows, zipf=zipf, hot_rows="in_front")
    found = busiest_block(stated, Reuse.of((stated,)), ranks, float(count))
    each = [_shares(_zipf_ids(rows, zipf, count, seed), rows, ranks) for seed in range(5)]
    lookups, unique = np.mean(each, axis=0)[:, 0].tolist()  # the first block is the busiest
    assert found is not None
    assert found.lookups == pytest.approx(lookups, rel=0.03)
    assert found.unique_rows == pytest.approx(unique, rel=0.05)


def test_hot_rows_of_a_table_come_before_the_workload_s_and_counted_blocks_before_both():
    assert hot_rows_of(_table(10), None) == "scattered"
    assert hot_rows_of(_table(10), "in_front") == "in_front"
    assert hot_rows_of(_table(10, zipf=1.0, hot_rows="scattered"), "in_front") == "scattered"
    assert hot_rows_of(_table(10, block_lookups=(1.0, 3.0)), "in_front") is None
    assert busiest_block(_table(10), Reuse.of((_table(10),)), 2, 100.0) is None


@pytest.mark.parametrize("access", [{"zipf": 1.1, "hot_rows": "in_front"}, {"hot_rows": "in_front"}])
def test_drawn_rows_follow_the_law(access: dict[str, Any]):
    rows = 20_000
    stated = _table(rows, **access)
    ids = draw_rows(law_of(stated), np.random.default_rng(0).random(200_000))
    ends = block_ends(rows, 8)
    assert (ids.min(), ids.max() < rows) == (0, True)
    shares = np.bincount(ids // int(ends[1]), minlength=8) / len(ids)
    assert shares == pytest.approx(np.diff(lookups_before(stated, ends)), abs=0.005)


def test_drawn_rows_are_as_busy_and_as_different_as_those_that_were_counted():
    rows, count = 30_000, 60_000
    ids = (_zipf_ids(rows, 1.05, count, seed=3) + 11_111) % rows
    counted = replace(_table(rows), access=access_of_ids(ids, rows))
    drawn = draw_rows(law_of(counted), np.random.default_rng(5).random(count))
    again = access_of_ids(drawn, rows)
    assert again is not None
    assert counted.access is not None
    assert again.unique_rows == pytest.approx(counted.access.unique_rows, rel=0.05)
    for ranks in RANKS:
        assert _blocks(drawn, rows, ranks) == pytest.approx(_blocks(ids, rows, ranks), rel=0.05)


def test_the_law_of_a_range_reads_as_many_different_rows():
    rows, count = 20_000, 60_000
    stated = _table(rows, zipf=1.0, hot_rows="in_front")
    ids = _zipf_ids(rows, 1.0, count, seed=9)
    for first, last in ((0, 5000), (5000, 10_000), (15_000, 20_000)):
        own = ids[(ids >= first) & (ids < last)]
        (zipf,) = range_zipf(stated, np.array([first, last], dtype=np.float64), float(count)).tolist()
        alone = _table(last - first, zipf=zipf)
        found = Reuse.of((alone,)).unique_rows(np.zeros(1, dtype=np.int64), np.array([float(len(own))]))
        assert found[0] == pytest.approx(len(np.unique(own)), rel=0.05)


def test_small_batches_of_even_ids_have_no_block_that_is_busier():
    """Every other id says which block is the busiest, so the most of some counts is not taken for its share."""
    draw = np.random.default_rng(0)
    found = np.mean([busiest_shares(draw.integers(0, 10_000, 256), 10_000) for _ in range(400)], axis=0)
    assert found * 2.0 ** np.arange(1, 8) == pytest.approx([1.0] * 7, rel=0.05)
    naive = np.mean([np.bincount(draw.integers(0, 16, 256), minlength=16).max() / 16 for _ in range(400)])
    assert naive > 1.3, "which the most would be"


def test_how_much_the_busiest_block_differs_between_batches_is_told():
    """A third of batches read one half of rows alone, the others all evenly: shares of 1 and of 1/2."""
    draw, counted, others = np.random.default_rng(0), BusiestShares(), BusiestShares()
    for i in range(90):
        (counted if i % 2 else others).add(draw.integers(0, 5_000 if i % 3 == 0 else 10_000, 4096), 10_000)
    counted.merge(BusiestShares.from_raw(others.to_raw()))
    assert counted.mean[0] == pytest.approx((1 + 2 * 0.5) / 3, abs=0.01)
    assert counted.deviation[0] == pytest.approx(0.5 * np.sqrt(2) / 3, abs=0.01)
    before = BusiestShares.from_raw({"ids": others.ids, "busiest": others.to_raw()["busiest"]})
    assert before.mean == others.mean
    assert max(before.deviation) < 1e-6, "files of before say nothing of it"


@pytest.mark.parametrize("ranks", [2, 3, 8, 16, 48, 128])
def test_rows_that_are_hot_now_and_others_later_count_batch_by_batch(ranks: int):
    """In each batch half of the lookups read one stretch of rows; over all batches every block is read alike."""
    rows, draw = 12_800, np.random.default_rng(1)
    batches: list[Ints] = []
    for newest in draw.integers(0, rows - rows // 200, 400).tolist():
        new = newest + draw.integers(0, rows // 200, 2000)
        batches.append(np.where(draw.random(2000) < 0.5, new, draw.integers(0, rows, 2000)))
    together, ends = np.concatenate(batches), np.cumsum([len(each) for each in batches])[:-1].tolist()
    counted = replace(_table(rows), access=access_of_ids(together, rows, ends))
    found = busiest_block(counted, Reuse.of((counted,)), ranks, 2000.0)
    assert found is not None
    assert _blocks(together, rows, ranks)[0] < 2 / ranks
    assert found.lookups == pytest.approx(np.mean([_blocks(each, rows, ranks)[0] for each in batches]), rel=0.1)


@pytest.mark.parametrize(
    ("access", "rule"),
    [
        ({"block_lookups": (1.0,), "hot_rows": "in_front"}, "leave hot_rows out"),
        ({"block_unique_rows": (1.0,), "zipf": 1.0}, "block_unique_rows need block_lookups"),
        ({"block_lookups": (1.0, 2.0), "block_unique_rows": (1.0,)}, "of equally many"),
        ({"block_lookups": (0.0, 0.0)}, "of which one is above 0"),
        ({"block_lookups": ()}, "of 1 to 65,536 equal blocks"),
        ({"block_lookups": (1.0, float("nan"))}, "finite and 0 or more"),
        ({"block_lookups": (1.0, -1.0)}, "finite and 0 or more"),
        ({"busiest_lookups": (0.5,), "zipf": 1.0}, "give block_lookups beside them"),
        ({"busiest_lookups": (1.5,), "block_lookups": (1.0,)}, "shares, from 0 to 1"),
        ({"busiest_deviation": (1.5,), "block_lookups": (1.0,)}, "busiest_deviation are shares, from 0 to 1"),
        ({"busiest_lookups": (0.5,) * 17, "block_lookups": (1.0,)}, "at most 16"),
        ({"block_lookups": (1e308, 1e308)}, "finite and 0 or more"),
    ],
)
def test_blocks_that_are_none_are_refused(access: dict[str, Any], rule: str):
    with pytest.raises(UsageError, match=rule):
        AccessProfile(**access)


def test_a_profile_may_say_only_where_hot_rows_lie():
    known, unknown = _table(1000, hot_rows="in_front"), _table(1000)
    assert Reuse.of((known,)).zipf == Reuse.of((unknown,)).zipf
    assert access_of_ids(np.zeros(0, dtype=np.int64), 10) is None
