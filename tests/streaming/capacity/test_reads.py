"""What tables serve: distances and simulated tables beside definitions, samples beside whole streams."""

import numpy as np
import pytest

from recsmith._random import ZipfLaw
from recsmith.errors import CorruptFile
from recsmith.streaming.capacity import IdSample, Sampled, TableReads
from recsmith.streaming.capacity.caches import served
from recsmith.streaming.capacity.distances import distances


def zipf(lookups: int, rows: int = 20_000, power: float = 1.0, seed: int = 0) -> np.ndarray:
    """Ids by Zipf's law, whose numbers say nothing of their rank."""
    ranks = np.asarray(ZipfLaw(rows, power).ranks(np.random.default_rng(seed).random(lookups)), np.int64)
    return ranks * 1_000_003 % 2**40


def sampled(ids: np.ndarray, most: int = 2**20, batch: int = 5000) -> Sampled:
    sample = IdSample(most)
    for first in range(0, len(ids), batch):
        sample.add(ids[first : first + batch])
    return sample.sampled()


def by_definition(ids: list[int], rows: int, policy: str, admit: int) -> int:
    """As Dynamic says: (seen, last seen, row since) of each id that has a row; the waiting ones in their order."""
    held: dict[int, list[int]] = {}
    waiting: dict[int, int] = {}
    key = {"lfu": (0, 1), "lru": (1, 0), "age": (2,)}[policy]
    count = 0
    for now, each in enumerate(ids):
        if each in held:
            count += 1
            held[each][:2] = held[each][0] + 1, now
            continue
        times = waiting.pop(each, 0) + 1 if each not in waiting else waiting[each] + 1
        if times < admit:
            waiting[each] = times
            if len(waiting) > rows:
                del waiting[next(iter(waiting))]
            continue
        waiting.pop(each, None)
        if len(held) == rows:
            del held[min(held, key=lambda one: [held[one][at] for at in key])]
        held[each] = [times, now, now]
    return count


@pytest.mark.parametrize("policy", ["lru", "lfu", "age"])
@pytest.mark.parametrize("admit", [1, 2, 3])
def test_simulated_tables_do_as_the_rules_say(policy: str, admit: int) -> None:
    ids = zipf(1500, rows=120, power=0.8).tolist()
    for rows in (1, 2, 7, 40, 119):
        assert served(ids, rows, policy, admit) == by_definition(ids, rows, policy, admit)


@pytest.mark.parametrize(("lookups", "rows"), [(1, 1), (17, 3), (400, 30), (3000, 2500)])
def test_a_distance_is_how_many_other_ids_lie_between(lookups: int, rows: int) -> None:
    ids = zipf(lookups, rows, 0.7, seed=rows)
    last: dict[int, int] = {}
    for at, (each, found) in enumerate(zip(ids.tolist(), distances(ids).tolist(), strict=True)):
        assert found == (len(set(ids[last[each] + 1 : at].tolist())) if each in last else -1)
        last[each] = at


def test_rows_of_a_whole_stream_are_the_fewest_that_serve_the_share() -> None:
    ids = zipf(30_000, 3000)
    reads = TableReads(sampled(ids))
    assert reads.sampled.exact
    again = len(ids) - len(np.unique(ids))
    assert reads.reachable == again
    for policy in ("lru", "lfu", "age"):
        rows = round(reads.rows(policy, 0.95))
        assert served(ids.tolist(), rows, policy) >= 0.95 * again
        assert served(ids.tolist(), round(rows * (1 - 1 / 300)) - 1, policy) < 0.95 * again
        assert reads.served(policy, rows) == served(ids.tolist(), rows, policy) / len(ids)


def test_some_of_the_ids_tell_what_all_do() -> None:
    ids = zipf(60_000, 30_000)
    whole, part = TableReads(sampled(ids)), TableReads(sampled(ids, most=2**14))
    assert part.sampled.rate < 0.5
    assert part.sampled.hot_rows > 0
    assert len(part.sampled.ids) <= 2**14
    assert part.distinct == pytest.approx(whole.distinct, rel=0.04)
    for policy in ("lru", "lfu"):
        assert part.rows(policy, 0.95) == pytest.approx(whole.rows(policy, 0.95), rel=0.12)
        for rows in (2000, 10_000):
            assert part.served(policy, rows) == pytest.approx(whole.served(policy, rows), abs=0.025)
    assert 0.002 < part.deviation("lru", 0.95) < 0.08
    assert whole.deviation("lru", 0.95) == whole.deviation("age", 0.95) == 0


def test_what_is_kept_does_not_depend_on_how_the_stream_comes() -> None:
    ids = zipf(40_000, 9000)
    one, other = (sampled(ids, most=2**13, batch=batch) for batch in (100, 7777))
    assert one.rate < 1
    for each in (one, other):
        assert each.lookups == len(ids)
        kept = np.unique(each.ids)
        assert (ids[each.places] == each.ids).all()
        assert np.isin(ids, kept).sum() == len(each.ids)  # all lookups of the ids that are kept, from the first one


def test_ids_are_not_negative() -> None:
    with pytest.raises(CorruptFile, match=r"the id -3 is negative; ids are whole numbers of 0 or more"):
        IdSample().add(np.array([5, -3]))
