"""Searches that raise the first bound of a problem that is small enough, each with its share of the work.

If one table is very costly, all spreads of its columns are searched (column_spreads.py). Otherwise the search is over
the seconds of the slowest rank in each phase (phase_branching.py), followed by what one rank can hold
(filling_branching.py), and by the load of each of two hosts (host_branching.py). docs/bounds.md proves them.
"""

from collections.abc import Callable, Iterator, Sequence

from recsmith._types import Floats, Ints
from recsmith.bounds.bends import bent_planes
from recsmith.bounds.column_spreads import HeavyTableBound, heavy_table_bound
from recsmith.bounds.fill_levels import has_levels
from recsmith.bounds.filling_branching import FillingBranching, filling_branchings
from recsmith.bounds.first import always, best_first, first_bound
from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.bounds.host_branching import HostBranching, host_branching
from recsmith.bounds.linear_bounds import LinearBound, kept_for
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.bounds.phase_prices import levelled_prices
from recsmith.bounds.plane_mixes import tightest_mix
from recsmith.bounds.work import (
    MOST_CELLS,
    affordable,
    different_tables,
    filling_work,
    has_many_tables,
    has_selections,
    heavy_work,
    host_work,
    is_large,
    phase_work,
    times_many_devices,
)
from recsmith.costs.protocol import Evaluator
from recsmith.problems import Problem

REACH = 1.5  # times the first bound: the second bound's limit; a gap above 50 % stays as it is
NEAR_REACH = 1.2  # the same if prices by levels spread a launch over what a rank holds in that time
MANY_REACH = 1.1  # the same if tables are many: gaps are small, and there is no work for the ranges of larger ones
FAR_REACH = 1.3  # the same if devices are many, too, and with them the work: gaps are wide
TRIAL = 3  # each of two searches gets a third of the work, each of three a quarter; then the most promising the rest
WORK_AT_ONCE = 200_000_000  # numbers between two checks whether to continue: a fiftieth of a second
HOST_TRIAL, HOST_GAIN = 1 / 6, 2e-4  # share of the work by which the bound must have risen: by this share of it
MOST_SELECTIONS = 3  # after this share of the work, the bound must have risen by this relative amount
HEAVY = 1.1  # times the first bound: if the search over a heavy table's spreads reaches it, it is ahead of others
HEAVY_TRIALS = ((1 / 6, 1.0), (1 / 3, HEAVY))  # shares of its work, and times the first bound that it must have reached


def tightened(
    evaluator: Evaluator, value: float, price: float, keep_on: Callable[[], bool], shares: int = 1,
    linear: LinearBound | None = None,
) -> tuple[float, tuple[Ints, ...]]:  # fmt: skip
    """The bound after branching over the seconds of the phases, if the problem is small enough for it.

    Also returns what tables select in its lowest nodes. shares: among how many such bounds the work is divided.
    """
    selections: tuple[Ints, ...] = ()
    problem, mixes, reached = evaluator.problem, mixes_of(evaluator, linear), True
    near, many = has_levels(evaluator) and not is_large(problem), has_many_tables(problem)
    mixes = mixes[:1] if is_large(problem) else mixes
    work = phase_work(problem, has_mix=mixes[0] is not None) // shares
    heavy = heaviest_table(evaluator, keep_on) if linear is not None else None
    if heavy is not None:
        value, reached = min(heavy.bound, REACH * value), False
    while reached and work > 0 and keep_on():
        below = reach_of(problem) * value
        enough = min(below, NEAR_REACH * value) if near else below
        searches = [quick_search(evaluator, below, price, mix) for mix in mixes]
        searches += levelled_search(evaluator, enough, price)
        for bound in raised(searches, work, enough, keep_on, affordable(WORK_AT_ONCE)):
            value = max(value, min(bound, enough))
        work -= sum(each.work for each in searches)
        if has_selections(problem):
            selections = max(searches, key=lambda search: search.bound).selections(MOST_SELECTIONS)
        reached = (near or many or bool(evaluator.bends)) and value >= enough  # such planes may be far above the first
        if not reached and not many:
            filling = filled(evaluator, searches, filling_work(problem) // shares, enough, keep_on)
            hosts = told_apart(evaluator, searches, host_work(problem) // shares, enough, keep_on)
            value = max(value, min(max(filling.bound, hosts.bound), enough))
    return value, selections


def reach_of(problem: Problem) -> float:
    """Times the bound: the first limit on step times in the search over the seconds of the phases."""
    if not has_many_tables(problem):
        return REACH
    return FAR_REACH if times_many_devices(problem) > 1 else MANY_REACH


def heaviest_table(evaluator: Evaluator, keep_on: Callable[[], bool] = always) -> HeavyTableBound | None:
    """The bound by every spread of the columns of the heaviest table; computed once for each evaluator.

    None if there is no such table, or if the search takes too much work or hardly raises the first bound.
    """

    def solved() -> HeavyTableBound | None:
        first, problem = first_bound(evaluator), evaluator.problem
        value = first.bound.value_s
        if value is None or is_large(problem) or best_first(evaluator).model is not evaluator:
            return None
        mix, below = mixes_of(evaluator, first.linear)[0], REACH * value
        heavy = heavy_table_bound(evaluator, groups_dominated_by_type(evaluator), below, mix)
        if heavy is None:
            return None
        work = heavy_work(problem)
        for share, least in HEAVY_TRIALS:
            solve(heavy, int(share * work), below, keep_on)
            if heavy.bound < least * value:
                return None
        solve(heavy, work, below, keep_on)
        return heavy

    return kept_for(evaluator, "heaviest table", solved)


def heavy_search(evaluator: Evaluator, below: float, mix: Floats | None) -> list[HeavyTableBound]:
    """A new search over the heaviest table's spreads, for plans of less than `below` seconds; [] if there is none."""
    heavy = heavy_table_bound(evaluator, groups_dominated_by_type(evaluator), below, mix)
    return [] if heavy is None else [heavy]


def solve(
    search: HeavyTableBound | FillingBranching | HostBranching, work: int, enough: float, keep_on: Callable[[], bool]
) -> None:
    """Raise a bound until it is high enough, or this many numbers have been worked on."""
    while search.work < work and not search.done and search.bound < enough and keep_on():
        search.solve(min(work, search.work + affordable(WORK_AT_ONCE)), enough)


def raised(
    searches: Sequence[PhaseBranching | HeavyTableBound], work: int, enough: float, keep_on: Callable[[], bool],
    at_once: int,
) -> Iterator[float]:  # fmt: skip
    """Yield the highest bound of some searches again and again: each gets a part of the work, then the best the rest.

    The best one is that which would be highest if each rose once more as in the second half of its part. Together they
    work on `work` numbers, `at_once` of them at a time, until a bound is high enough.
    """

    def worked(search: PhaseBranching | HeavyTableBound, limit: int) -> Iterator[float]:
        while search.work < limit and not search.done and max(each.bound for each in searches) < enough and keep_on():
            search.solve(min(limit, search.work + at_once), enough)
            yield max(each.bound for each in searches)

    yield max(each.bound for each in searches)
    reached, parts = list[float](), max(TRIAL, len(searches) + 1)
    for each in searches:
        yield from worked(each, work // (2 * parts))
        reached.append(each.bound)
        yield from worked(each, work // parts)
    ahead = [2 * each.bound - before for each, before in zip(searches, reached, strict=True)]
    for _, each in sorted(zip(ahead, searches, strict=True), key=lambda pair: -pair[0]):
        yield from worked(each, each.work + work - sum(other.work for other in searches))


def mixes_of(evaluator: Evaluator, linear: LinearBound | None) -> list[Floats | None]:
    """Mixes of planes, each for one search, which tries its mix in every node.

    The best mix raises most nodes at once, but some to an end below that of a search without it: then the latter's
    bound is higher, by 1 % for dlrm-v2 on 8 ranks.
    """
    if bent_planes(evaluator).bent or len(evaluator.planes) < 2:
        return [None]
    return [tightest_mix(evaluator) if linear is None else linear.mix, None]


def quick_search(evaluator: Evaluator, below: float, price: float, mix: Floats | None) -> PhaseBranching:
    """A search that uses dual feasible functions only if it has a mix, and tables and devices are few."""
    few = different_tables(evaluator.problem) * evaluator.problem.cluster.world_size <= MOST_CELLS
    return phase_branching(evaluator, below, price, mix, dual=few and mix is not None)


def levelled_search(evaluator: Evaluator, below: float, price: float) -> list[PhaseBranching]:
    """A search that begins with prices by how full groups are, in levels, if the cost model has levels."""
    if not has_levels(evaluator) or is_large(evaluator.problem):
        return []
    dominated, first = groups_dominated_by_type(evaluator), first_bound(evaluator)
    groups = next((each.groups for each in first.promising if each.groups is not None), None)
    prices = levelled_prices(evaluator, dominated, below, groups)
    if prices is None:
        return []
    byte_price = price / evaluator.problem.cluster.world_size
    mix = prices.levelled_mix
    return [PhaseBranching(
        evaluator, dominated=dominated, below=below, byte_price=byte_price, mix=mix, prices=prices
    )]  # fmt: skip


def phase_branching(
    evaluator: Evaluator, below: float, price: float, mix: Floats | None, *, dual: bool = True
) -> PhaseBranching:
    """A search over the seconds of the phases. price: seconds per byte of all devices; mix: of planes to begin with."""
    byte_price = price / evaluator.problem.cluster.world_size
    return PhaseBranching(
        evaluator, dominated=groups_dominated_by_type(evaluator), below=below, byte_price=byte_price, mix=mix, dual=dual
    )


def filled(
    evaluator: Evaluator, searches: Sequence[PhaseBranching | HeavyTableBound], work: int, enough: float,
    keep_on: Callable[[], bool],
) -> PhaseBranching | FillingBranching:  # fmt: skip
    """The search with the highest bound: the best of some searches, or one by fillings of a rank, begun from it.

    If there are two possible starts, the first gets half of the work, and the rest as well if it is then ahead.
    """
    best = _highest(searches)
    ahead: PhaseBranching | FillingBranching = best
    for filling in filling_branchings(evaluator, best):
        solve(filling, work // 2, enough, keep_on)
        if filling.bound > ahead.bound:
            solve(filling, work, enough, keep_on)
            ahead = filling
        work -= filling.work
    return ahead


def told_apart(
    evaluator: Evaluator, searches: Sequence[PhaseBranching | HeavyTableBound], work: int, enough: float,
    keep_on: Callable[[], bool],
) -> PhaseBranching | HostBranching:  # fmt: skip
    """The search with the highest bound: the best of some searches, or one that distinguishes two hosts, if it leads.

    It begins with the open nodes of the best search without prices by levels, joining those that use the same groups;
    or, if that gains nothing, with these nodes as they are, whose bounds may be far above those of joined nodes.
    """
    best, plain = _highest(searches), highest_plain(searches)
    ahead: PhaseBranching | HostBranching = best
    for joined in (True, False):
        hosts = host_branching(evaluator, plain, joined=joined) if plain else None
        if hosts is None:
            break
        solve(hosts, int(HOST_TRIAL * work), enough, keep_on)
        if hosts.bound > (1 + HOST_GAIN) * best.bound:
            solve(hosts, work, enough, keep_on)
            return hosts
        ahead = hosts if hosts.bound > ahead.bound else ahead
    return ahead


def highest_plain(searches: Sequence[PhaseBranching | HeavyTableBound]) -> PhaseBranching | None:
    """The search over the seconds of the phases with the highest bound, among those without prices by levels."""
    plain = [each for each in searches if isinstance(each, PhaseBranching) and each.prices.suits_fillings()]
    return _highest(plain) if plain else None


def _highest(searches: Sequence[PhaseBranching | HeavyTableBound]) -> PhaseBranching:
    return max((each for each in searches if isinstance(each, PhaseBranching)), key=lambda search: search.bound)
