"""The bound with two hosts told apart: above no plan, whatever prices and ranges, and above the search before it."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.bounds import total_of
from support.cases import Case, Pick, cluster, drawn, fits, table, workload
from support.two_hosts import on_two_hosts

from recsmith._compiled import compiled
from recsmith._types import Bools, Floats
from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.bounds.host_branching import HostBranching, host_branching
from recsmith.bounds.host_prices import (
    CODE,
    DISCOUNT,
    HOST_LIMITS,
    HOSTS,
    OF_HOSTS,
    PRICES,
    HostPrices,
    can_tell_hosts_apart,
)
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.bounds.phase_nodes import PhaseRanges
from recsmith.costs.pricing import device_sums
from recsmith.plans import Placement
from recsmith.problems import Constraints, PerRank, footprint_of
from recsmith.problems.footprint import sum_per_rank
from recsmith.sharding import Span
from recsmith.workloads import Table

pytestmark = pytest.mark.skipif(compiled(CODE) is None, reason="built without a C compiler")
WORK = 100_000_000


def search_of(case: Case, below: float, work: int = 0) -> PhaseBranching:
    evaluator = case.evaluator
    search = PhaseBranching(evaluator, dominated=groups_dominated_by_type(evaluator), below=below, byte_price=0.0)
    search.solve(work)
    return search


def told_apart(
    made: tuple[Case, tuple[Placement, ...]], reach: float, work: int = 0, *, joined: bool = True
) -> tuple[HostBranching, float]:
    """The search among plans of up to so many times the seconds of one that was made, and its seconds."""
    case, placements = made
    assume(fits(case, placements))
    total = total_of(case, placements)
    search = search_of(case, reach * total, work)
    assume(search.heap and can_tell_hosts_apart(search.prices, case.problem))
    return HostBranching(search, joined=joined), total


@given(drawn(on_two_hosts), st.floats(1.0, 3.0), st.sampled_from([0, WORK // 10]), st.booleans())
def test_no_hand_made_plan_costs_less(made, reach: float, work: int, joined: bool) -> None:
    """However far above the plan the search looks, wherever it begins and stops."""
    hosts, total = told_apart(made, reach, work, joined=joined)
    before = hosts.bound
    for work in (0, WORK // 4, WORK):
        hosts.solve(work)
        assert before <= hosts.bound <= total * (1 + 1e-9)
        before = hosts.bound


@dataclass(frozen=True)
class Had:
    """What a plan has, worked out anew: ready, rest, and of each host what its own pieces take (2,), by a mix.

    others (2, ranks): what pieces of single ranks take; longest, own_longest (2,): seconds of the longest piece.
    """

    ready: float
    rest: float
    own: Floats
    others: Floats
    longest: Floats
    own_longest: Floats

    @classmethod
    def by(cls, case: Case, placements: tuple[Placement, ...], prices: HostPrices, mix: Floats) -> "Had":
        problem, evaluator, planes = case.problem, case.evaluator, prices.prices.planes
        found, local = footprint_of(problem, placements), ~prices.prices.costs.worldwide
        loads = evaluator.loads(device_sums(evaluator, found))[:, :, local].sum(axis=2)  # (F, W)
        terms = evaluator.terms(found.mode, found.width)
        alone = evaluator.loads(terms)[0] - planes.launch
        seconds = (planes.of_pieces(terms, planes.slopes[:, 0], alone) * mix[evaluator.group[found.mode]]).sum(axis=1)
        span = problem.modes.span[found.mode]

        def of_hosts(values: Floats | Bools, kind: Span) -> Floats:
            return sum_per_rank(np.where(span == kind, values, 0.0), found, problem).reshape(HOSTS, -1)

        def longest(values: Floats, kind: Span) -> Floats:
            on = np.array([of_hosts(np.arange(len(values)) == i, kind).any(axis=1) for i in range(len(values))])
            return np.where(on, values[:, None], -np.inf).max(axis=0)

        rest = float(loads[1:].sum(axis=0).max(initial=0.0))
        return cls(
            max(float(loads[0].max()) - planes.launch, 0.0), rest, of_hosts(seconds, Span.HOST)[:, 0],
            of_hosts(seconds, Span.RANK), longest(alone, Span.RANK), longest(seconds, Span.HOST),
        )  # fmt: skip


@given(drawn(on_two_hosts), st.integers(0, 2**32 - 1))
def test_nodes_allow_and_bound_the_plans_that_they_hold(made, seed: int) -> None:
    """Whatever the prices, and however close its ranges are."""
    hosts, total = told_apart(made, 1.5)
    case, placements = made
    rng, prices = np.random.default_rng(seed), hosts.prices
    search = search_of(case, 1.5 * total)
    had = Had.by(case, placements, prices, search.heap[0].multipliers.mix)
    lists = rng.uniform(0, 2, (12, HOSTS, len(PRICES))) * rng.choice([0.0, 1.0, 1.0, 3.0], (12, HOSTS, len(PRICES)))
    lists[:, :, DISCOUNT] -= rng.uniform(0, 2, (12, HOSTS))
    used = np.zeros(prices.prices.groups, dtype=bool)
    used[case.evaluator.group[footprint_of(case.problem, placements).mode]] = True

    def around(value: float) -> tuple[float, float]:
        low, high = rng.uniform(0, 1, 2) ** rng.choice([0, 0.2, 1, 5], 2)
        return value * float(low) * (1 - 1e-9), (value + float(high) * total * rng.choice([0, 0.1, 1])) * (1 + 1e-9)

    for _ in range(10):
        inner = replace(search.root, ranges=PhaseRanges(around(had.ready), around(had.rest)), paid=used)
        inner.open = np.ones_like(inner.open)
        node = replace(hosts.heap[0], node=inner, seconds=(around(had.own[0]), around(had.own[1])))
        for host, (longest, most, times) in enumerate(prices.limits(node)[OF_HOSTS:].reshape(HOSTS, HOST_LIMITS)):
            assert had.longest[host] <= longest + 1e-8 * had.ready
            assert had.own_longest[host] <= most
            assert (had.own[host] + times * had.others[host] <= had.ready * (1 + 1e-8)).all()
        planes = rng.integers(0, prices.planes, len(lists))
        values, _ = prices.evaluate([node], np.zeros(len(lists), dtype=np.int64), lists, planes)
        assert (values <= total * (1 + 1e-8)).all()


def evenly(pick: Pick) -> tuple[Case, tuple[Placement, ...]]:
    """A plan whose ranks are all alike: of some tables each rank has one, of others each host."""
    ranks, tables, placements = HOSTS * (local := pick((2, 4))), list[Table](), list[Placement]()
    for number in range(pick((1, 2, 3))):
        pooling, dim, of_hosts = pick((1.0, 3.0, 20.0, 60.0, 200.0)), pick((4, 4, 8, 12)), pick((False, False, True))
        for copy in range(HOSTS if of_hosts else ranks):
            name = f"t{number}_{copy}"
            tables.append(table(name, 100_000, dim, pooling))
            on = tuple(range(copy * local, (copy + 1) * local)) if of_hosts else (copy,)
            placements.append(Placement(
                table=name, sharding_type="table_row_wise" if of_hosts else "column_wise", compute_kernel="fused",
                ranks=on, widths=() if of_hosts else (dim,),
            ))  # fmt: skip
    case = Case(workload(*tables, batch_size=pick((64, 1024, 8192))), cluster(local, HOSTS), cost_model="analytic")
    return case, tuple(placements)


@given(drawn(evenly), st.integers(0, 2**32 - 1))
def test_even_plans_leave_no_slack(made, seed: int) -> None:
    """Where ranks are alike, and tables have no other choice, prices that are a little too high are above the plan."""
    case, placements = made
    total, rng = total_of(case, placements), np.random.default_rng(seed)
    search = search_of(case, 1.5 * total)
    assume(can_tell_hosts_apart(search.prices, case.problem))
    found, evaluator = footprint_of(case.problem, placements), case.evaluator
    groups = evaluator.group[found.mode]
    used, opened = np.zeros(evaluator.groups, dtype=bool), np.zeros_like(search.root.open)
    used[groups] = True
    opened[search.prices.like[case.problem.modes.table[found.mode]], groups] = True
    planes = search.prices.planes.flat
    for _ in range(20):
        mix = np.tile(rng.choice([np.eye(planes)[rng.integers(planes)], np.full(planes, 1 / planes)]), (len(used), 1))
        prices = HostPrices(search.prices, mix)
        had = Had.by(case, placements, prices, mix)
        wide = float(rng.choice([1e-9, 0.01, 0.3]))
        ranges = PhaseRanges(*((value * (1 - wide * rng.choice([1e-9, 1])), value * (1 + wide) + 1e-15)
                               for value in (had.ready, had.rest)))  # fmt: skip
        inner = replace(search.root, ranges=ranges, paid=used)
        inner.open = opened
        seconds = tuple((own * (1 - wide), own * (1 + wide) + 1e-15) for own in had.own.tolist())
        node = replace(HostBranching(search).heap[0], node=inner, seconds=seconds)
        lists = rng.uniform(0, 2, (12, 1, len(PRICES))) * rng.choice([0.0, 1.0, 3.0], (12, 1, len(PRICES)))
        lists = np.repeat(lists, HOSTS, axis=1)
        lists[6:, 1] *= rng.uniform(0.5, 2, (6, len(PRICES)))
        values, _ = prices.evaluate([node], np.zeros(12, dtype=np.int64), lists, rng.integers(0, prices.planes, 12))
        assert (values <= total * (1 + 1e-8)).all()


def test_long_pieces_of_hosts_leave_no_room_for_long_pieces_of_ranks() -> None:
    """Tables too long for a rank beside others cover hosts: how much that leaves of each host raises the bound."""
    tables = [table(f"t{i}", 1_000_000, 64, length) for i, length in enumerate((300.0, 220.0, 160.0, *[100.0] * 6))]
    case = Case(workload(*tables, batch_size=4096), cluster(4, HOSTS), cost_model="analytic")
    total = case.plan().plan.cost.total_s
    search = search_of(case, total, 1_000_000_000)
    hosts = host_branching(case.evaluator, search)
    assert hosts is not None
    hosts.solve(1_000_000_000, total)
    assert search.bound * 1.002 < min(hosts.bound, total)


def test_it_begins_with_open_nodes_as_they_are_or_those_that_use_the_same_groups_as_one() -> None:
    tables = [table(f"t{i}", 1_000_000, 64, length) for i, length in enumerate((300.0, 220.0, 160.0, *[100.0] * 6))]
    case = Case(workload(*tables, batch_size=4096), cluster(4, HOSTS), cost_model="analytic")
    search = search_of(case, 0.01, 300_000_000)
    one, each = HostBranching(search), HostBranching(search, joined=False)
    assert len(one.heap) < len(each.heap) == len(search.heap)
    assert one.bound == each.bound == search.bound


def test_hosts_that_are_not_alike_are_not_told_apart() -> None:
    """Nor are more of them, or ranks whose number of tables is limited."""
    made = Case(workload(table("t", 100_000, 64, 100.0)), cluster(2, HOSTS), cost_model="analytic")
    limited = Constraints(per_rank=(PerRank(max_tables=1),))
    others = (
        cluster(2, 3), cluster(2, 1), cluster(2, HOSTS, (2**40, 2**40, 2**40, 2**39)),
    )  # fmt: skip
    for case in (made, replace(made, constraints=limited), *(replace(made, cluster=other) for other in others)):
        search = search_of(case, 1.0)
        assert can_tell_hosts_apart(search.prices, case.problem) == (case is made)
