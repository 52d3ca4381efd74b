"""Lower bounds: seconds that no plan of a problem's space can undercut, and limits under which good plans are sought.

The first bound is for problems of any size (first.py); small problems then get a tighter one (tightening.py). On
request, more work is done. docs/bounds.md proves all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from recsmith._install import has_solver
from recsmith.bounds.column_spreads import HeavyTableBound
from recsmith.bounds.filling_branching import FillingBranching
from recsmith.bounds.first import LowerBound, always, best_first, first_bound
from recsmith.bounds.host_branching import HostBranching, host_branching
from recsmith.bounds.linear_bounds import ROUNDING, kept_for
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.bounds.tightening import (
    WORK_AT_ONCE,
    filled,
    heaviest_table,
    heavy_search,
    highest_plain,
    levelled_search,
    mixes_of,
    phase_branching,
    quick_search,
    raised,
    reach_of,
    solve,
    tightened,
    told_apart,
)
from recsmith.bounds.work import affordable, has_many_tables, is_large, may_gain, phase_work
from recsmith.costs.protocol import Evaluator
from recsmith.plans import LONGER, Bound

PROOF_WORK = 400_000_000_000  # numbers that a bound on request may work on: about a minute
MANY_PROOF_WORK = 200_000_000_000  # the same beyond MANY_TABLES, because numbers take twice as long there
PROOF_WORK_AT_ONCE = 800_000_000  # numbers between two checks whether to continue
FILLING_PROOF = 100_000_000_000  # numbers for fillings on request: half a minute
LISTED = 5  # divides this work if OR-Tools is there, which then continues with all fillings
HOST_PROOF = 50_000_000_000  # numbers for distinguishing two hosts, for each of the two starts: four seconds
MOST_FILLED = 24  # most tables of a problem for which all fillings are used
MOST_ROUNDS, ROUNDS_AT_ONCE = 4_000, 20  # rounds of price search: about a minute; rounds between two checks
CERTIFIED_FILLINGS = 1.5  # times the work of a search for a certificate, as additional work for fillings
CERTIFIED_HOSTS = 5  # times that work, as additional work for distinguishing two hosts, at most

OnBound = Callable[[float, float], None]  # called during a proof with the seconds of the best plan, and of the bound


def lower_bound(evaluator: Evaluator, keep_on: Callable[[], bool] = always) -> LowerBound:
    """The lower bound of an evaluator over its problem's space; computed once for each evaluator.

    keep_on: asked now and then by the first call whether to look for a tighter bound, or to continue.

    Its value is None if the cost model gives no bound, or if no plan exists.

    If the model can be lifted (`Evaluator.lifted`), a bound B of the model lifted by L seconds bounds the model itself
    by B - G * L: a lift adds at most L to each rank for each of the G groups. The best bound over all lifts is
    returned.
    """
    return kept_for(evaluator, "lower bound", lambda: _tightest(evaluator, keep_on))


def _tightest(evaluator: Evaluator, keep_on: Callable[[], bool]) -> LowerBound:
    """The first bound, raised by more work for small problems."""
    first = best_first(evaluator)
    known, value = first.known, first.known.bound.value_s
    if value is None or not may_gain(evaluator) or not keep_on():
        return known
    price = known.promising[0].price if len(known.promising) > 1 else 0.0
    shares = 1 if first.model is evaluator else 2
    raised_s, selections = tightened(first.model, value + first.lifts, price, keep_on, shares, known.linear)
    raised_s -= first.lifts
    if shares > 1:
        raised_s, selections = tightened(evaluator, raised_s, price, keep_on, shares)
    return replace(known, bound=replace(known.bound, value_s=raised_s), selections=selections)


def prove(
    evaluator: Evaluator, total_s: float, keep_on: Callable[[], bool] = always, on_bound: OnBound | None = None
) -> Bound:
    """A bound with more work behind it, for a problem for which a plan with `total_s` seconds is known.

    keep_on: asked now and then whether to continue. on_bound(total_s, bound in seconds): called now and then. Takes
    about a minute if the gap stays open. All searches of `certified_search` take part, each with more work.
    """
    known = lower_bound(evaluator).bound
    if known.value_s is None or known.value_s >= total_s:
        return known
    first, value, work = lower_bound(evaluator), known.value_s, PROOF_WORK
    price, mixes = max(each.price for each in first.promising), mixes_of(evaluator, first.linear)
    if has_many_tables(evaluator.problem):
        mixes, work = mixes[:1], MANY_PROOF_WORK
    searches: list[PhaseBranching | HeavyTableBound] = [
        *(heavy_search(evaluator, total_s, mixes[0]) if heaviest_table(evaluator) is not None else ()),
        *(phase_branching(evaluator, total_s, price, mix) for mix in mixes),
        *levelled_search(evaluator, total_s, price),
    ]
    for bound in raised(searches, affordable(work), total_s, keep_on, affordable(PROOF_WORK_AT_ONCE)):
        value = max(value, min(bound, total_s * (1 - ROUNDING)))
        if on_bound is not None:
            on_bound(total_s, max(value, min(bound, total_s)))
    enough = total_s * (1 - ROUNDING)
    if value < enough:
        work = FILLING_PROOF // LISTED if has_solver() else FILLING_PROOF
        search = filled(evaluator, searches, work, enough, keep_on)
        longer = chain(_by_hosts(evaluator, searches, enough, keep_on), _by_grid(evaluator, search, total_s, keep_on))
        for bound in chain([search.bound], longer if search.bound < enough else ()):
            value = max(value, min(bound, enough))
            if on_bound is not None:
                on_bound(total_s, value)
            if value >= enough:
                break
    kind = known.kind if value <= known.value_s or known.searched else LONGER + known.kind
    return replace(known, value_s=value, kind=kind)


def _by_hosts(
    evaluator: Evaluator, searches: Sequence[PhaseBranching | HeavyTableBound], enough: float,
    keep_on: Callable[[], bool],
) -> Iterator[float]:  # fmt: skip
    """The bound with two hosts distinguished, again and again, from the best search's last state: in both starts."""
    plain = highest_plain(searches)
    for joined in (True, False):
        hosts = host_branching(evaluator, plain, joined=joined) if plain else None
        while hosts is not None and hosts.bound < enough and hosts.work < HOST_PROOF and keep_on():
            if hosts.done and not hosts.go_finer():
                break
            hosts.solve(hosts.work + PROOF_WORK_AT_ONCE, enough)
            yield hosts.bound


def _by_grid(
    evaluator: Evaluator, search: PhaseBranching | FillingBranching, total_s: float, keep_on: Callable[[], bool]
) -> Iterator[float]:
    """The bound by all fillings of a rank, again and again, from a search's last state; none without OR-Tools."""
    tables, prices = len(evaluator.problem.tables), search.prices
    if tables > MOST_FILLED or not prices.suits_fillings() or not has_solver():
        return
    from recsmith.bounds.filling_grid import FillingGrid

    grid = FillingGrid(prices, search.open_nodes, total_s)
    while not grid.done and grid.rounds < MOST_ROUNDS and grid.bound < total_s and keep_on():
        grid.solve(grid.rounds + ROUNDS_AT_ONCE, keep_on=keep_on)
        yield grid.bound


def certified_search(
    evaluator: Evaluator, total_s: float, work: int, keep_on: Callable[[], bool] = always, below: float | None = None
) -> PhaseBranching | FillingBranching | HeavyTableBound | HostBranching:  # fmt: skip
    """The search that ends with the highest bound, for certificates: its parts and their multipliers.

    total_s: seconds of a known plan. work: numbers that it may work on. keep_on: asked now and then whether to
    continue. below: `printed_reach`, for a search with the same limit as the printed bound's; only then are two hosts
    distinguished.
    """
    first = first_bound(evaluator)
    price = max((each.price for each in first.promising), default=0.0)
    mixes = mixes_of(evaluator, first.linear)
    if heaviest_table(evaluator, keep_on) is not None:
        (heavy,) = heavy_search(evaluator, total_s, mixes[0])
        solve(heavy, affordable(work), total_s, keep_on)
        return heavy
    mixes = mixes[:1] if is_large(evaluator.problem) else mixes
    searches = [quick_search(evaluator, below or total_s, price, mix) for mix in mixes]
    searches += levelled_search(evaluator, below or total_s, price)
    known_work = 0 if below is None else phase_work(evaluator.problem, has_mix=True)
    for _ in raised(searches, max(affordable(work), known_work), total_s, keep_on, affordable(WORK_AT_ONCE)):
        pass
    filling = filled(evaluator, searches, int(CERTIFIED_FILLINGS * work), total_s, keep_on)
    if below is None or filling.bound >= total_s:
        return filling
    hosts = told_apart(evaluator, searches, int(CERTIFIED_HOSTS * work), total_s, keep_on)
    return hosts if hosts.bound > filling.bound else filling


def printed_reach(evaluator: Evaluator, total_s: float) -> float | None:
    """The limit in seconds of the printed bound's search, so that a certificate proves as much; None if it had none.

    How the first ranges are cut matters much. (A search whose limit is the known plan of `total_s` seconds ends
    elsewhere, often lower, but only such a search can close a gap.)
    """
    value = first_bound(evaluator).bound.value_s
    if value is None or not may_gain(evaluator) or heaviest_table(evaluator) is not None:
        return None
    return max(reach_of(evaluator.problem) * value, total_s)
