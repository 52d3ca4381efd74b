"""Lower bounds: seconds that no plan of a problem's space can undercut, and limits under which good plans are sought.

First comes a bound for problems of any size (group_branching.py), then, for small ones, a tighter one
(phase_branching.py). docs/bounds.md proves both.

Legend: T tables, G fusion groups.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from recsmith._install import has_solver
from recsmith._types import Floats, Ints
from recsmith.bounds.bends import bent_planes
from recsmith.bounds.column_spreads import HeavyTableBound, heavy_table_bound
from recsmith.bounds.compiled_prices import is_compiled
from recsmith.bounds.constraint_bounds import confined_bound, counted_bound
from recsmith.bounds.fill_levels import has_levels
from recsmith.bounds.filling_branching import FillingBranching, filling_branchings
from recsmith.bounds.group_branching import GroupBranching
from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.bounds.host_branching import HostBranching, host_branching
from recsmith.bounds.linear_bounds import ROUNDING, LinearBound, SelectionLimits, kept_for
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.bounds.phase_prices import levelled_prices
from recsmith.bounds.plane_mixes import tightest_linear_bound, tightest_mix
from recsmith.costs.protocol import Evaluator
from recsmith.elementary import distinct
from recsmith.plans import LONGER, Bound
from recsmith.problems import Problem

REACH = 1.5  # times the first bound: up to which step time the second one looks; a gap above 50 % stays as it is
NEAR_REACH = 1.2  # the same where prices by levels spread a launch over what a rank holds in that time
MANY_REACH = 1.1  # the same where tables are many: gaps are small, and there is no work for the ranges of larger ones
MANY_TABLES = 500  # of a problem, those alike counted once, beyond which the second bound is sought with less work
MANY_DEVICES = 128  # beyond which plans of many tables gain from what tables select where the bound is lowest
MOST_TABLES = 4_000  # beyond which it is not: half of its work, and half a second of preparing, would be the first node
MOST_ALIKE = 4_000  # tables of which those alike count once
FEW_TABLES, SOME_TABLES = 150, 300  # up to which the work below is done: on any number of devices, and on few
MOST_CELLS = 3_000  # tables times devices beyond FEW_TABLES up to which devices are few, and with dual functions
PHASE_WORK = 6_000_000  # numbers that the second bound may work on, times the third power of the tables
MOST_PHASE_WORK = 3_000_000_000  # numbers at most, which 8 tables reach: half a second
EQUAL_WORK = 6_000_000_000  # numbers at most where there are more tables, many of them alike: about a second
LARGE_WORK = 4_000_000_000  # numbers at most beyond that, all for one search: half a second
MANY_WORK = 2_000_000_000  # the same beyond MANY_TABLES, whose nodes take more work: as much as for a certificate
UNCOMPILED = 8  # times as long array operations take as compiled code: without it so much less work is done
FILLING_WORK = 3_000_000_000  # numbers at most for fillings of a rank, where tables are few: about a second
CERTIFIED_FILLINGS = 1.5  # times the work of a search for a certificate: so much again for fillings
FILLING_PROOF = 100_000_000_000  # the same on request: half a minute
LISTED = 5  # a part of it where OR-Tools is there, which goes on with all fillings
HOST_WORK = 5_000_000_000  # numbers at most where two hosts are told apart: about a second
HOST_TRIAL, HOST_GAIN = 3, 2e-4  # a third of it shows whether it pays: whether the bound has risen by such a part
MOST_FILLED = 24  # tables of a problem for which that is done
MOST_ROUNDS, ROUNDS_AT_ONCE = 4_000, 20  # of prices sought: about a minute; and between two looks at the clock
TRIAL = 3  # a third of the work is for each of two searches, before the one that promises more has the rest, as the
# last quarter where there are three
WORK_AT_ONCE = 200_000_000  # numbers between two questions whether to go on: a fiftieth of a second
PROOF_WORK = 400_000_000_000  # numbers that a bound on request may work on: about a minute
MANY_PROOF_WORK = 200_000_000_000  # the same beyond MANY_TABLES, where numbers take twice as long
PROOF_WORK_AT_ONCE = 800_000_000  # numbers between two questions whether to go on


HEAVY_WORK = 2_000_000_000  # numbers at most for the heaviest table: a quarter of a second
MOST_SELECTIONS = 3  # of what tables select in the lowest nodes, for searches to begin with
HEAVY = 1.1  # times the first bound: where the search over spreads of a heavy table reaches it, others lag behind
HEAVY_TRIALS = ((1 / 6, 1.0), (1 / 3, HEAVY))  # shares of its work, and times the first bound that it reaches by then


OnBound = Callable[[float, float], None]  # hears of a proof: seconds of the best plan, and of the bound


@dataclass(frozen=True, slots=True)
class LowerBound:
    """What is known of a problem before any search: its bound, and under which limits good plans are to be sought.

    linear: the linear bound of the cost that it rests on; None where the cost model gives none.
    promising: limits, the most promising first; the last of them allows every option.
    selections: fusion group of each table (T,) in the parts of the space whose bound is lowest, the lowest first.
    """

    bound: Bound
    linear: LinearBound | None
    promising: tuple[SelectionLimits, ...]
    selections: tuple[Ints, ...] = ()


def always() -> bool:
    """Yes: whether to go on, where nothing limits the time."""
    return True


def lower_bound(evaluator: Evaluator, keep_on: Callable[[], bool] = always) -> LowerBound:
    """The lower bound of an evaluator over its problem's space; worked out once for each evaluator.

    keep_on: asked now and then by the first call whether to look for a tighter bound, or on.

    Its value is None where the cost model gives no bound, and where no plan exists.

    Where the model can be lifted (`Evaluator.lifted`), a bound B of the model lifted by L seconds bounds the model
    itself by B - G * L: a lift adds at most L to each rank for each of the G groups. The best of all lifts counts.
    """
    return kept_for(evaluator, "lower bound", lambda: _tightest(evaluator, keep_on))


def first_bound(evaluator: Evaluator) -> LowerBound:
    """The lower bound before it is tightened, in a few hundredths of a second; large problems have no other."""
    return _first(evaluator).known


def prove(
    evaluator: Evaluator, total_s: float, keep_on: Callable[[], bool] = always, on_bound: OnBound | None = None
) -> Bound:
    """A bound that more work has gone into, of a problem for which a plan with `total_s` seconds is known.

    keep_on: asked now and then whether to go on. on_bound(total_s, bound in seconds): told now and then. Takes about a
    minute where the gap stays open. All that `certified_search` goes through takes part, each with more work.
    """
    known = lower_bound(evaluator).bound
    if known.value_s is None or known.value_s >= total_s:
        return known
    first, value, work = lower_bound(evaluator), known.value_s, PROOF_WORK
    price, mixes = max(each.price for each in first.promising), _mixes(evaluator, first.linear)
    if has_many_tables(evaluator.problem):
        mixes, work = mixes[:1], MANY_PROOF_WORK
    searches: list[PhaseBranching | HeavyTableBound] = [
        *(_heavy_search(evaluator, total_s, mixes[0]) if heaviest_table(evaluator) is not None else ()),
        *(_phase_branching(evaluator, total_s, price, mix) for mix in mixes),
        *_levelled_search(evaluator, total_s, price),
    ]
    for bound in _raised(searches, _affordable(work), total_s, keep_on, _affordable(PROOF_WORK_AT_ONCE)):
        value = max(value, min(bound, total_s * (1 - ROUNDING)))
        if on_bound is not None:
            on_bound(total_s, max(value, min(bound, total_s)))
    enough = total_s * (1 - ROUNDING)
    if value < enough:
        work = FILLING_PROOF // LISTED if has_solver() else FILLING_PROOF
        filled = _filled(evaluator, searches, work, enough, keep_on)
        for bound in (filled.bound, *(_by_grid(evaluator, filled, total_s, keep_on) if filled.bound < enough else ())):
            value = max(value, min(bound, enough))
            if on_bound is not None:
                on_bound(total_s, value)
    kind = known.kind if value <= known.value_s or known.searched else LONGER + known.kind
    return replace(known, value_s=value, kind=kind)


def _by_grid(
    evaluator: Evaluator, search: PhaseBranching | FillingBranching, total_s: float, keep_on: Callable[[], bool]
) -> Iterator[float]:
    """The bound by all fillings of a rank, again and again, from where a search ends; none without OR-Tools."""
    tables, prices = len(evaluator.problem.tables), search.prices
    if tables > MOST_FILLED or not prices.suits_fillings() or not has_solver():
        return
    from recsmith.bounds.filling_grid import FillingGrid

    grid = FillingGrid(prices, search.open_nodes, total_s)
    while not grid.done and grid.rounds < MOST_ROUNDS and grid.bound < total_s and keep_on():
        grid.solve(grid.rounds + ROUNDS_AT_ONCE, keep_on=keep_on)
        yield grid.bound


def certified_search(
    evaluator: Evaluator, total_s: float, work: int, keep_on: Callable[[], bool] = always
) -> PhaseBranching | FillingBranching | HeavyTableBound:  # fmt: skip
    """The search that ends with the highest bound, for certificates: its parts and their multipliers.

    total_s: of a known plan. work: numbers that it may work on. keep_on: asked now and then whether to go on.
    """
    first = first_bound(evaluator)
    price = max((each.price for each in first.promising), default=0.0)
    mixes = _mixes(evaluator, first.linear)
    if heaviest_table(evaluator, keep_on) is not None:
        (heavy,) = _heavy_search(evaluator, total_s, mixes[0])
        _solve(heavy, _affordable(work), total_s, keep_on)
        return heavy
    mixes = mixes[:1] if _is_large(evaluator.problem) else mixes
    searches = [_quick_search(evaluator, total_s, price, mix) for mix in mixes]
    searches += _levelled_search(evaluator, total_s, price)
    for _ in _raised(searches, _affordable(work), total_s, keep_on, _affordable(WORK_AT_ONCE)):
        pass
    return _filled(evaluator, searches, int(CERTIFIED_FILLINGS * work), total_s, keep_on)


@dataclass(frozen=True, slots=True)
class _First:
    """The best of the bounds of a model and of its lifted versions: that of `model`, which adds `lifts` seconds."""

    known: LowerBound
    model: Evaluator
    lifts: float


def _first(evaluator: Evaluator) -> _First:
    return kept_for(evaluator, "first bound", lambda: _best_of_lifts(evaluator))


def _best_of_lifts(evaluator: Evaluator) -> _First:
    """The best bound of the model as it is and of its lifted versions; no bound is tightened yet."""
    best, model, lifts = _bound_of_planes(evaluator), evaluator, 0.0
    value = best.bound.value_s
    for lift, lifted in evaluator.lifted if value is not None else ():
        found = _bound_of_planes(lifted)
        if (found.bound.value_s or 0.0) - lift * evaluator.groups > (value or 0.0) - lifts:
            best, model, lifts, value = found, lifted, lift * evaluator.groups, found.bound.value_s
    below = None if value is None else value - lifts
    linear = best.linear and replace(best.linear, opening=best.linear.opening if model is evaluator else 0.0)
    everything = SelectionLimits(limit=value or np.inf)
    known = LowerBound(replace(best.bound, value_s=below), linear, (*best.promising, everything))
    return _First(known, model, lifts)


def _tightest(evaluator: Evaluator, keep_on: Callable[[], bool]) -> LowerBound:
    """The first bound, and for small problems what more work makes of it."""
    first = _first(evaluator)
    known, value = first.known, first.known.bound.value_s
    if value is None or not may_gain(evaluator) or not keep_on():
        return known
    price = known.promising[0].price if len(known.promising) > 1 else 0.0
    shares = 1 if first.model is evaluator else 2
    tightened, selections = _tightened(first.model, value + first.lifts, price, keep_on, shares, known.linear)
    tightened -= first.lifts
    if shares > 1:
        tightened, selections = _tightened(evaluator, tightened, price, keep_on, shares)
    return replace(known, bound=replace(known.bound, value_s=tightened), selections=selections)


def _bound_of_planes(evaluator: Evaluator) -> LowerBound:
    """The bound that rests on the planes of a model as they are, and its limits but the last; not yet tightened."""
    problem = evaluator.problem
    if not evaluator.planes:
        none = Bound(value_s=None, kind="none: the cost model is not convex", space=describe_space(problem))
        return LowerBound(none, None, ())
    linear = tightest_linear_bound(evaluator)
    branching = GroupBranching(evaluator, linear)
    value, promising = branching.solve()
    constrained = max(confined_bound(evaluator, linear), counted_bound(evaluator, linear))
    value = value if value is None else max(value, constrained)
    kind = "additive: mean load, largest piece, memory"
    if not evaluator.additive:
        kind = "convex: planes below the cost, fusion groups, mean load, largest piece, memory"
    return LowerBound(
        Bound(value_s=value, kind=kind, space=describe_space(problem)), branching.linear, tuple(promising)
    )


def heaviest_table(evaluator: Evaluator, keep_on: Callable[[], bool] = always) -> HeavyTableBound | None:
    """The bound by every way to spread the columns of the heaviest table; worked out once for each evaluator.

    None where there is no such table, where that is too much work, or raises the first bound by little.
    """

    def solved() -> HeavyTableBound | None:
        first, problem = first_bound(evaluator), evaluator.problem
        value, tables = first.bound.value_s, _different_tables(problem)
        if value is None or _is_large(problem) or _first(evaluator).model is not evaluator:
            return None
        mix, below = _mixes(evaluator, first.linear)[0], REACH * value
        heavy = heavy_table_bound(evaluator, groups_dominated_by_type(evaluator), below, mix)
        if heavy is None:
            return None
        work = _affordable(min(HEAVY_WORK, PHASE_WORK * tables**3))
        for share, least in HEAVY_TRIALS:
            _solve(heavy, int(share * work), below, keep_on)
            if heavy.bound < least * value:
                return None
        _solve(heavy, work, below, keep_on)
        return heavy

    return kept_for(evaluator, "heaviest table", solved)


def _heavy_search(evaluator: Evaluator, below: float, mix: Floats | None) -> list[HeavyTableBound]:
    """That search from its beginning, among plans that take fewer seconds than `below`; none where it has no table."""
    heavy = heavy_table_bound(evaluator, groups_dominated_by_type(evaluator), below, mix)
    return [] if heavy is None else [heavy]


def _solve(
    search: HeavyTableBound | FillingBranching | HostBranching, work: int, enough: float, keep_on: Callable[[], bool]
) -> None:
    """Have a bound rise until it is high enough, or so many numbers have been worked on."""
    while search.work < work and not search.done and search.bound < enough and keep_on():
        search.solve(min(work, search.work + _affordable(WORK_AT_ONCE)), enough)


def may_gain(evaluator: Evaluator) -> bool:
    """Whether the second bound is sought without being asked for: where it may be above the first in its time.

    Seconds that add up over many tables can be divided nearly at will, as the first bound divides them. Without
    compiled code the first node alone would take a second.
    """
    most = MANY_TABLES if evaluator.additive or not is_compiled() else MOST_TABLES
    return _different_tables(evaluator.problem) <= most


def has_many_tables(problem: Problem) -> bool:
    """Whether different tables are so many that the second bound is of few nodes."""
    return _different_tables(problem) > MANY_TABLES


def has_selections(problem: Problem) -> bool:
    """Whether the second bound tells what tables select in its lowest nodes: not of many tables on fewer devices.

    There searches that began in it were never ahead of others, and would have waited for the bound.
    """
    return problem.cluster.world_size > MANY_DEVICES or not has_many_tables(problem)


def _is_large(problem: Problem) -> bool:
    """Whether tables and devices are so many that less work is done, by the search that begins in the best mix alone.

    With that much work, the search that begins without a mix ended lower for 12 of 16 problems.
    """
    tables = _different_tables(problem)
    return tables > SOME_TABLES or (tables > FEW_TABLES and tables * problem.cluster.world_size > MOST_CELLS)


def _different_tables(problem: Problem) -> int:
    """How many tables ask for something else than every table before them."""
    demand = problem.demand
    if len(problem.tables) > MOST_ALIKE:
        return len(problem.tables)
    facts = (demand.rows, demand.dim, demand.element_bytes, demand.ids, demand.bags, demand.pooled, demand.weighted,
             demand.repeats)  # fmt: skip
    return len(distinct(np.column_stack(facts), axis=0))


def _tightened(
    evaluator: Evaluator, value: float, price: float, keep_on: Callable[[], bool], shares: int = 1,
    linear: LinearBound | None = None,
) -> tuple[float, tuple[Ints, ...]]:  # fmt: skip
    """The bound after branching over the seconds of the phases, where the problem is small enough for it.

    With what tables select in its lowest nodes. shares: among how many such bounds the work is shared.
    """
    selections: tuple[Ints, ...] = ()
    tables, mixes, reached = len(evaluator.problem.tables), _mixes(evaluator, linear), True
    near, many = has_levels(evaluator) and not _is_large(evaluator.problem), has_many_tables(evaluator.problem)
    work = EQUAL_WORK if tables > SOME_TABLES else min(MOST_PHASE_WORK, PHASE_WORK * tables**3)
    if _is_large(evaluator.problem):
        mixes = mixes[:1]
        work = (MANY_WORK if many else LARGE_WORK) if mixes[0] is not None else 0
    work = _affordable(work) // shares
    heavy = heaviest_table(evaluator, keep_on) if linear is not None else None
    if heavy is not None:
        value, reached = min(heavy.bound, REACH * value), False
    while reached and work > 0 and keep_on():
        below = (MANY_REACH if many else REACH) * value
        enough = min(below, NEAR_REACH * value) if near else below
        searches = [_quick_search(evaluator, below, price, mix) for mix in mixes]
        searches += _levelled_search(evaluator, enough, price)
        for bound in _raised(searches, work, enough, keep_on, _affordable(WORK_AT_ONCE)):
            value = max(value, min(bound, enough))
        work -= sum(each.work for each in searches)
        if has_selections(evaluator.problem):
            selections = max(searches, key=lambda search: search.bound).selections(MOST_SELECTIONS)
        reached = (near or many or bool(evaluator.bends)) and value >= enough  # such planes may lie far above the first
        if not reached and not many:
            filling_work = min(FILLING_WORK, PHASE_WORK * tables**3) // shares
            value = max(value, min(_filled(evaluator, searches, filling_work, enough, keep_on).bound, enough))
            told_work = min(HOST_WORK, PHASE_WORK * tables**3) // shares
            value = max(value, min(_told_apart(evaluator, searches, told_work, enough, keep_on), enough))
    return value, selections


def _affordable(work: int) -> int:
    """How many of so many numbers are worked on: all, or without compiled code as many as take the same time."""
    return work if is_compiled() else work // UNCOMPILED


def _raised(
    searches: Sequence[PhaseBranching | HeavyTableBound], work: int, enough: float, keep_on: Callable[[], bool],
    at_once: int,
) -> Iterator[float]:  # fmt: skip
    """The highest bound of some searches, again and again: each has a part of the work, and one of them then the rest.

    It is the one that would be highest, did each rise once more as in the second half of its part. They work on so many
    numbers in all, `at_once` of them at a time, until a bound is high enough.
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


def _mixes(evaluator: Evaluator, linear: LinearBound | None) -> list[Floats | None]:
    """Mixes of planes, each for one search, which tries it in every node.

    The best mix of all leads most nodes up at once, and some to an end below that of a search without it: then the
    latter's bound is higher, by 1 % for dlrm-v2 on 8 ranks.
    """
    if bent_planes(evaluator).bent or len(evaluator.planes) < 2:
        return [None]
    return [tightest_mix(evaluator) if linear is None else linear.mix, None]


def _quick_search(evaluator: Evaluator, below: float, price: float, mix: Floats | None) -> PhaseBranching:
    """A search with dual feasible functions only where it has a mix, and tables and devices are few."""
    few = _different_tables(evaluator.problem) * evaluator.problem.cluster.world_size <= MOST_CELLS
    return _phase_branching(evaluator, below, price, mix, dual=few and mix is not None)


def _filled(
    evaluator: Evaluator, searches: Sequence[PhaseBranching | HeavyTableBound], work: int, enough: float,
    keep_on: Callable[[], bool],
) -> PhaseBranching | FillingBranching:  # fmt: skip
    """The search with the highest bound: the best of some searches, or by fillings of a rank from there on.

    Where there are two ways to begin, the first has half of the work, and the rest as well if it is ahead by then.
    """
    best = _highest(searches)
    ahead: PhaseBranching | FillingBranching = best
    for filling in filling_branchings(evaluator, best):
        _solve(filling, work // 2, enough, keep_on)
        if filling.bound > ahead.bound:
            _solve(filling, work, enough, keep_on)
            ahead = filling
        work -= filling.work
    return ahead


def _told_apart(
    evaluator: Evaluator, searches: Sequence[PhaseBranching | HeavyTableBound], work: int, enough: float,
    keep_on: Callable[[], bool],
) -> float:  # fmt: skip
    """The highest bound of some searches, or the one with two hosts told apart, if that soon is higher."""
    best = _highest(searches)
    hosts = host_branching(evaluator, best)
    if hosts is None:
        return best.bound
    _solve(hosts, work // HOST_TRIAL, enough, keep_on)
    if hosts.bound > (1 + HOST_GAIN) * best.bound:
        _solve(hosts, work, enough, keep_on)
    return max(best.bound, hosts.bound)


def _highest(searches: Sequence[PhaseBranching | HeavyTableBound]) -> PhaseBranching:
    return max((each for each in searches if isinstance(each, PhaseBranching)), key=lambda search: search.bound)


def _levelled_search(evaluator: Evaluator, below: float, price: float) -> list[PhaseBranching]:
    """A search that begins with prices by levels of how full groups are, where there are some."""
    if not has_levels(evaluator) or _is_large(evaluator.problem):
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


def _phase_branching(
    evaluator: Evaluator, below: float, price: float, mix: Floats | None, *, dual: bool = True
) -> PhaseBranching:
    byte_price = price / evaluator.problem.cluster.world_size
    return PhaseBranching(
        evaluator, dominated=groups_dominated_by_type(evaluator), below=below, byte_price=byte_price, mix=mix, dual=dual
    )


def describe_space(problem: Problem) -> str:
    """The space that a bound holds for, as a sentence."""
    exact = "; keep_exact" if problem.constraints.keep_exact else ""
    given = problem.constraints
    lists = (
        (given.rules, "table rules"),
        (given.together, "together"),
        (given.apart, "apart"),
        (given.per_rank, "per rank"),
    )
    rules = "".join(f"; {len(some)} {what}" for some, what in lists if some)
    return f"{problem.planned_space.describe()}; memory {given.memory}{exact}{rules}"
