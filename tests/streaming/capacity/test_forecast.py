"""Rows of a longer stream: the law beside streams that are drawn by it, and forecasts beside what came."""

import numpy as np
import pytest

from recsmith.errors import UsageError
from recsmith.streaming.capacity import IdSample, Sampled, TableReads, forecast
from recsmith.streaming.capacity.drawn import drawn
from recsmith.streaming.capacity.fitting import fit, seen
from recsmith.streaming.capacity.law import IdLaw

STEADY = IdLaw(power=1.0, shift=2.0, places=30_000.0, churn=0.0)
CHANGING = IdLaw(power=0.9, shift=5.0, places=4000.0, churn=1e-5)


@pytest.mark.parametrize("law", [STEADY, CHANGING])
def test_a_drawn_stream_is_as_the_law_says(law: IdLaw) -> None:
    made = drawn(law, 500_000, 2**18)
    reads = TableReads(made)
    lengths = np.array([5e4, 5e5])
    assert TableReads(made.first(50_000)).distinct == pytest.approx(law.distinct(lengths)[0], rel=0.02)
    assert reads.distinct == pytest.approx(law.distinct(lengths)[1], rel=0.02)
    for serve in (0.8, 0.95, 0.99):
        assert reads.rows("lru", serve) == pytest.approx(law.rows(5e5, serve), rel=0.03)


@pytest.mark.parametrize("law", [STEADY, CHANGING])
def test_the_law_of_a_stream_is_found_again(law: IdLaw) -> None:
    found = fit(seen(drawn(law, 300_000, 2**19)))
    assert found.off < 0.05
    for lookups in (3e5, 3e6):
        assert found.law.rows(lookups, 0.99) == pytest.approx(law.rows(lookups, 0.99), rel=0.08)
    assert found.law.churn * 3e6 == pytest.approx(law.churn * 3e6, abs=1.0, rel=0.15)


@pytest.mark.parametrize(("law", "lookups", "policy"), [(STEADY, 400_000, "age"), (CHANGING, 1_000_000, "lru")])
def test_the_first_tenth_tells_the_rows_of_the_whole(law: IdLaw, lookups: int, policy: str) -> None:
    whole = drawn(law, lookups, 2**20, seed=3)
    reads = TableReads(whole)
    told = forecast(whole.first(lookups // 10), lookups, (policy,), serve=0.99)
    assert told.rows[policy] == pytest.approx(reads.rows(policy, 0.99), rel=0.1)
    assert told.low <= reads.rows(policy, 0.99) / told.rows[policy] <= told.high
    assert told.distinct == pytest.approx(reads.distinct, rel=0.1)


def test_a_stream_whose_halves_differ_has_a_trend() -> None:
    ids = np.random.default_rng(0).integers(0, 1 + np.arange(30_000) // 20)  # more and more ids, evenly read
    sample = IdSample()
    sample.add(ids)
    grows = forecast(sample.sampled(), 300_000, ("lru",), serve=0.9)
    assert 0.5 < grows.trend < 1.5
    steady = forecast(drawn(STEADY, 30_000, 2**18), 300_000, ("lru",), serve=0.9)
    assert abs(steady.trend) < 0.03


def test_ids_that_have_all_come_need_no_more_rows() -> None:
    sample = IdSample()
    sample.add(np.random.default_rng(0).integers(0, 19, 4000))
    told = forecast(sample.sampled(), 40_000, ("lru", "lfu"), serve=0.99)
    assert told.law is None
    assert told.rows == {policy: TableReads(sample.sampled()).rows(policy, 0.99) for policy in ("lru", "lfu")}
    assert (told.low, told.high, told.distinct) == (1.0, 1.0, 19)


def test_what_cannot_be_told_is_refused() -> None:
    few = Sampled(places=np.arange(30), ids=np.arange(30), lookups=30)
    with pytest.raises(UsageError, match=r"30 lookups are too few to say how many rows"):
        forecast(few, 300, ("lru",), serve=0.99)
    with pytest.raises(UsageError, match=r"a stream of 20 lookups is no longer than the 30 that were read"):
        forecast(few, 20, ("lru",), serve=0.99)
