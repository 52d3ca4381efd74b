"""A table of bounded rows read by a stream, id by id: which lookups find the row of their id.

The rules are those of `Dynamic` (workloads/dynamic.py) with batches of one id: an id gets a row at the `admit`-th time
that it is seen, that time counted, and where all rows are taken another id loses its own. It is then as new. As many
ids wait as there are rows, and of more the one that began to wait first is forgotten.
"""

from collections.abc import Callable, Iterable, Sequence

from recsmith.errors import UsageError


class _Admission:
    """Ids that wait for a row."""

    def __init__(self, rows: int, admit: int) -> None:
        self.rows, self.admit = rows, admit
        self._waiting: dict[int, int] = {}

    def refused(self, item: int) -> bool:
        """Whether an id without a row is still to wait, now that it was seen once more."""
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
    """Lookups that find their row where rows go in the order in which they were given, or last read."""
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
    """Lookups that find their row where the id that has had its row for the longest time loses it."""
    return _in_order(ids, rows, admit, by_use=False)


def served_by_lru(ids: Iterable[int], rows: int, admit: int = 1) -> int:
    """Lookups that find their row where the id that was last seen longest ago loses its row."""
    return _in_order(ids, rows, admit, by_use=True)


def served_by_lfu(ids: Iterable[int], rows: int, admit: int = 1) -> int:
    """Lookups that find their row where the id that was seen least loses it; of equal ones, that of longest ago."""
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
    """Refuse what is no policy by which ids lose their rows."""
    strange = next((each for each in policies if each not in SERVED), None)
    if strange is not None or not policies:
        raise UsageError(f"no policy is called '{strange or ''}'; there are {', '.join(SERVED)}")


def served(ids: Iterable[int], rows: int, policy: str, admit: int = 1) -> int:
    """How many of the lookups find the row of their id in a table of so many rows, under a policy of SERVED."""
    return SERVED[policy](ids, max(rows, 1), admit)
