"""Finds the fewest devices whose step is short enough, by planning only some of a sweep's counts of devices.

Counts are tried with growing steps up the list until one has a plan; then bisection finds the first one that has a
plan. From there the same search is repeated for a step that is short enough. Counts are skipped on the assumption that
more devices help; the result of the count just below the answer says whether the answer is proven.
"""

from collections.abc import Callable, Generator, Mapping

from recsmith.analyses.scaling import Fewest, Fixed, Point

HOSTS = 64  # most whole hosts that are tried by default


def turns(counts: int, seen: Mapping[int, Point], limit_s: float) -> Generator[int, None, int | None]:
    """Yields indices of counts to plan for, in turn; returns the index of the answer, or None if there is none.

    counts: number of counts in the list, which rise. seen: points by index; the caller adds the point of the yielded
    index before it continues. limit_s: the longest step.
    """
    holding = yield from _first(0, counts, seen, lambda point: point.outcome == "planned")
    if holding is None:
        return None
    return (yield from _first(holding, counts, seen, lambda point: _is_short(point, limit_s)))


def _first(
    low: int, counts: int, seen: Mapping[int, Point], test: Callable[[Point], bool]
) -> Generator[int, None, int | None]:
    """The first index >= `low` that passes a test, assuming later ones pass too: by doubling steps, then bisection."""
    failed, place, step = low - 1, low, 1
    while not (yield from _asked(place, seen, test)):
        if place == counts - 1:
            return None
        failed, place, step = place, min(place + step, counts - 1), 2 * step
    while place - failed > 1:
        middle = (failed + place) // 2
        if (yield from _asked(middle, seen, test)):
            place = middle
        else:
            failed = middle
    return place


def _asked(place: int, seen: Mapping[int, Point], test: Callable[[Point], bool]) -> Generator[int, None, bool]:
    if place not in seen:
        yield place
    return test(seen[place])


def fewest_of(seen: Mapping[int, Point], found: int | None, limit_s: float, fixed: Fixed) -> Fewest:
    """The result for a series. seen: its planned points by index, at least one; found: index of the answer, or None."""
    some = next(iter(seen.values()))
    here, before = (None, None) if found is None else (seen[found], seen.get(found - 1))
    return Fewest(
        device=some.device, per_host=some.per_host, group_size=some.group_size, limit_s=limit_s,
        size=some.batch_size if fixed == "batch_size" else some.global_batch_size,
        devices=here and here.devices, hosts=here and here.hosts, total_s=here and here.total_s,
        fewer=before and before.devices,
        proven=here is not None and (found == 0 or (before is not None and _cannot(before, limit_s))),
    )  # fmt: skip


def _is_short(point: Point, limit_s: float) -> bool:
    """Whether a point has a plan whose step takes at most limit_s."""
    return point.total_s is not None and point.total_s <= limit_s


def _cannot(point: Point, limit_s: float) -> bool:
    """Whether it is proved that no plan of a point has a step of at most limit_s."""
    return point.outcome == "infeasible" or (point.bound_s is not None and point.bound_s > limit_s)
