"""The fewest devices whose step is short enough: which counts of a sweep are planned to find them.

Counts are tried ever further up the list until one has a plan, and the counts skipped on the way are halved down to the
first that has one. From there the same is done until a step is short enough. So counts are passed over where more
devices are taken to help; what came of the count before the answer says whether that is proven.
"""

from collections.abc import Callable, Generator, Mapping

from recsmith.analyses.scaling import Fewest, Fixed, Point

HOSTS = 64  # up to which whole hosts are tried, where no counts are asked for


def turns(counts: int, seen: Mapping[int, Point], limit_s: float) -> Generator[int, None, int | None]:
    """The places to plan for, in turn, of so many counts, few first; returns that of the answer, None without one.

    seen: points by place; that of the place given last is there when the next one is asked for.
    """
    holding = yield from _first(0, counts, seen, lambda point: point.outcome == "planned")
    if holding is None:
        return None
    return (yield from _first(holding, counts, seen, lambda point: _is_short(point, limit_s)))


def _first(
    low: int, counts: int, seen: Mapping[int, Point], test: Callable[[Point], bool]
) -> Generator[int, None, int | None]:
    """The first place from `low` where a test holds, if it holds from there on: by ever larger steps, then halving."""
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
    """What was found of a series: seen, points by place, of which there is one; found, the place of the answer."""
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
    """Whether a point has a plan whose step is at most so long."""
    return point.total_s is not None and point.total_s <= limit_s


def _cannot(point: Point, limit_s: float) -> bool:
    """Whether no plan of a point can be so short."""
    return point.outcome == "infeasible" or (point.bound_s is not None and point.bound_s > limit_s)
