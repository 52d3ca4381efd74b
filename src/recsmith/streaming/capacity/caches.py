"""Simulates a table of limited rows lookup by lookup: counts the lookups that find the row of their id.

The rules are those of `Dynamic` (workloads/dynamic.py) with batches of one id. An id gets a row when it is seen for the
`admit`-th time; if no row is free, another id is evicted, and counts as new from then on. At most as many ids wait for
a row as there are rows; beyond that, the id that has waited longest is forgotten.
"""

from collections.abc import Callable, Iterable, Sequence

from recsmith.errors import UsageError


class _Admission:
    """The ids that wait for a row, with how often each was seen."""

    def __init__(self, rows: int, admit: int) -> None:
        self.rows, self.admit = rows, admit
        self._waiting: dict[int, int] = {}

    def refused(self, item: int) -> bool:
        """Count one more lookup of an id without a row; returns whether it still has to wait."""
        waiting = self._waiting
        times = waiting.get(item, 0) + 1
        if times >= self.admit:
            waiting.pop(item, None)
            return False
        waiting[item] = times
        if len(waiting) > self.rows:
            del waiting[next(iter(waiting))]
        return True


def _in_order(ids: Iterable[int], rows: int, admit: int, *, by_use: bool) -> int:
    """Number of served lookups if rows are evicted in the order in which they were assigned, or last read (by_use)."""
    held: dict[int, None] = {}
    served, waits = 0, _Admission(rows, admit)
    for each in ids:
        if each in held:
            served += 1
            if by_use:
                del held[each]
                held[each] = None
            continue
        if admit > 1 and waits.refused(each):
            continue
        if len(held) >= rows:
            del held[next(iter(held))]
        held[each] = None
    return served


def served_by_age(ids: Iterable[int], rows: int, admit: int = 1) -> int:
    """Number of served lookups if the id that has had its row for the longest time is evicted."""
    return _in_order(ids, rows, admit, by_use=False)


def served_by_lru(ids: Iterable[int], rows: int, admit: int = 1) -> int:
    """Number of served lookups if the least recently used id is evicted."""
    return _in_order(ids, rows, admit, by_use=True)


def served_by_lfu(ids: Iterable[int], rows: int, admit: int = 1) -> int:
    """Number of served lookups if the least frequently used id is evicted; of equal ones, the least recently used."""
    seen: dict[int, int] = {}
    by_seen: dict[int, dict[int, None]] = {}
    least, served, waits = admit, 0, _Admission(rows, admit)
    for each in ids:
        count = seen.get(each, 0)
        if count:
            served += 1
            bucket = by_seen[count]
            del bucket[each]
            if not bucket:
                del by_seen[count]
                least += least == count
            count += 1
        else:
            if admit > 1 and waits.refused(each):
                continue
            if len(seen) >= rows:
                while least not in by_seen:
                    least += 1
                bucket = by_seen[least]
                gone = next(iter(bucket))
                del bucket[gone], seen[gone]
                if not bucket:
                    del by_seen[least]
            least = count = admit
        seen[each] = count
        by_seen.setdefault(count, {})[each] = None
    return served


SERVED: dict[str, Callable[[Iterable[int], int, int], int]] = {
    "lru": served_by_lru, "lfu": served_by_lfu, "age": served_by_age,
}  # fmt: skip


def check_policies(policies: Sequence[str]) -> None:
    """Refuse an empty list or names that are no eviction policies."""
    strange = next((each for each in policies if each not in SERVED), None)
    if strange is not None or not policies:
        raise UsageError(f"no policy is called '{strange or ''}'; there are {', '.join(SERVED)}")


def served(ids: Iterable[int], rows: int, policy: str, admit: int = 1) -> int:
    """Number of lookups that a table of `rows` rows serves under an eviction policy, one of SERVED."""
    return SERVED[policy](ids, max(rows, 1), admit)
