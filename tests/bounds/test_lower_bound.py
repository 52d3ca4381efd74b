"""No plan costs less than its bound, and the parts that bounds are made of are exact."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import (
    BOTH,
    LOOSE,
    Case,
    cluster,
    drawn,
    fits,
    make_workload,
    medium_case,
    random_placements,
    seeded,
    shards_of,
    table,
    under,
    workload,
)

from recsmith.bounds import lower_bound
from recsmith.bounds.column_splits import cheapest_partition
from recsmith.bounds.linear_bounds import tightest_linear_bound
from recsmith.bounds.relaxation import DEAREST, Relaxation, fitting_price, mean_linear_bound
from recsmith.bounds.selection import LinearBound, SelectionLimits
from recsmith.bounds.table_totals import TableTotals
from recsmith.costs import Evaluator, price
from recsmith.errors import Infeasible, NoPlanFound
from recsmith.plans import Placement
from recsmith.problems import NO_PIECE, Constraints, Space, TableRule, footprint_of, option_pieces
from recsmith.sharding import KERNEL_NAMES, TYPE_NAMES

SOME = {"models": BOTH, "counts": (1, 2, 3), "dims": (4, 8, 20, 64)}
MEDIUM = drawn(medium_case, **SOME)
TINY = drawn(medium_case, tightness=(0.5, 1.0, 3.0), **SOME)
ANALYTIC = drawn(medium_case, **(SOME | {"models": ("analytic",)}))
FEW = settings(max_examples=40)


def _bound(case: Case) -> float | None:
    return lower_bound(case.evaluator).bound.value_s


# --- the law ------------------------------------------------------------------------------------------------------


@FEW
@given(MEDIUM, st.integers(0, 5))
def test_no_plan_of_the_random_planner_costs_less_than_its_bound(case: Case, seed: int) -> None:
    try:
        plan = case.plan("random", seed=seed).plan
    except (Infeasible, NoPlanFound):
        return
    assert plan.bound.value_s is not None
    assert plan.bound.value_s <= plan.cost.total_s * (1 + 1e-9)


def _hand_made(pick, **words) -> tuple[Case, tuple[Placement, ...]]:
    case = medium_case(pick, LOOSE, **words)
    return case, random_placements(pick, case)


@FEW
@given(drawn(_hand_made, **SOME), st.integers(0, 10**6))
def test_no_hand_made_plan_costs_less_than_the_bound(made, seed: int) -> None:
    case, placements = made
    bound, pick = _bound(case), seeded(seed)
    for each in (placements, *(random_placements(pick, case) for _ in range(5))):
        if fits(case, each):
            assert bound is not None
            assert bound <= _total(case, each) * (1 + 1e-9)


@pytest.mark.parametrize("model", BOTH)
@pytest.mark.parametrize("chunk", range(4))
def test_no_hand_made_plan_that_just_fits_costs_less_than_the_bound(chunk: int, model: str) -> None:
    """Every rank gets exactly the memory that the plan takes: the price on memory is at its highest."""
    for seed in range(chunk, 80, 4):
        pick = seeded(seed)
        case, placements = _hand_made(pick, **(SOME | {"models": (model,)}))
        used = [max(device.hbm_bytes, 1) for device in _price(case, placements).per_device]
        hbm = tuple(used) if pick((True, False)) else max(used)
        tight = replace(case, cluster=replace(case.cluster, hbm_bytes=hbm, reserve_bytes=0))
        bound = _bound(tight)
        if fits(tight, placements):
            assert bound is not None
            assert bound <= _total(tight, placements) * (1 + 1e-9)


@pytest.mark.parametrize("model", BOTH)
@pytest.mark.parametrize("kernel", ["fused", "fused_uvm", "fused_uvm_caching"])
@pytest.mark.parametrize("ranks", [(0,), (0, 1, 2)])
def test_a_plan_that_takes_the_last_byte_costs_no_less_than_the_bound(model: str, kernel: str, ranks) -> None:
    """There the price on memory has no upper end, and must not drown the seconds."""
    on = cluster(len(ranks), ddr_bytes_per_host=2**40)
    tables = workload(*(table(f"t{rank}", 1000, 8) for rank in ranks))
    space = Space(types=("table_wise", "column_wise", "data_parallel"), kernels=KERNEL_NAMES)
    roomy = Case(tables, on, space, cost_model=model)
    placements = tuple(
        Placement(table=f"t{rank}", sharding_type="table_wise", compute_kernel=kernel, ranks=(rank,)) for rank in ranks
    )
    (need,) = {device.hbm_bytes for device in _price(roomy, placements).per_device}
    tight = replace(roomy, cluster=replace(on, hbm_bytes=need))
    bound = _bound(tight)
    assert bound is not None
    assert bound <= _total(tight, placements) * (1 + 1e-9)


def _price(case: Case, placements: tuple[Placement, ...]):
    return price(case.evaluator, footprint_of(case.problem, placements))


def _total(case: Case, placements: tuple[Placement, ...]) -> float:
    return _price(case, placements).total_s


# --- planes and leads ---------------------------------------------------------------------------------------------


def _floors(evaluator: Evaluator) -> list[LinearBound]:
    """Every plane for all groups, and the mixes that bounds and searches use."""
    flat = [LinearBound(np.tile(plane.slopes, (evaluator.groups, 1)), plane.opening) for plane in evaluator.planes]
    return [*flat, mean_linear_bound(evaluator), tightest_linear_bound(evaluator)]


@given(MEDIUM, st.integers(0, 10**6))
def test_floors_lie_below_the_head(case: Case, seed: int) -> None:
    """At sums of pieces that a rank may hold of a group, for every group."""
    evaluator, problem = case.evaluator, case.problem
    rng = np.random.default_rng(seed)
    terms, groups = evaluator.terms(problem.pieces.mode, problem.pieces.width), evaluator.group[problem.pieces.mode]
    floors = _floors(evaluator)
    for group in np.unique(groups).tolist():
        pieces = terms[groups == group]
        held = rng.integers(0, 3, (10, len(pieces))) * (rng.random((10, len(pieces))) < rng.random((10, 1)))
        seconds = evaluator.head(held @ pieces).sum(axis=-1)
        for floor in floors:
            below = held @ pieces @ floor.slopes[group] + np.where(held.any(axis=1), floor.opening, 0.0)
            assert (below <= seconds * (1 + 1e-12) + 1e-18).all()
    assert all(floor.opening >= 0 for floor in floors)


@FEW
@given(MEDIUM)
def test_leads_name_groups_that_tables_can_use_and_the_last_allows_everything(case: Case) -> None:
    evaluator = case.evaluator
    *promising, everything = lower_bound(evaluator).promising
    assert replace(everything, limit=math.inf) == SelectionLimits()
    totals = TableTotals(evaluator)
    for terms in promising:
        assert terms.menu is not None
        assert terms.menu.shape == (evaluator.groups,)
        assert terms.menu.any()
        assert np.isfinite(totals.per_table(SelectionLimits(menu=terms.menu)).value).all()


@pytest.mark.parametrize("model", BOTH)
def test_one_kind_of_table_has_one_lead_of_its_group(model: str) -> None:
    case = Case(workload(table("a", 100, 8)), cluster(2), Space(types=("table_wise",)), cost_model=model)
    lead, everything = lower_bound(case.evaluator).promising
    assert lead.menu is not None
    assert lead.menu.tolist() == [True]
    assert everything.menu is None


@FEW
@given(ANALYTIC)
def test_the_analytic_bound_pays_for_a_group_in_use(case: Case) -> None:
    """Even where tables cost next to nothing: one launch and one latency are left."""
    bound = _bound(case)
    evaluator = case.evaluator
    least = min(float(row.sum()) for row in evaluator.shared) + min(plane.opening for plane in evaluator.planes)
    if bound is not None:
        assert bound >= least * (1 - 1e-9)


# --- how tight it is ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", BOTH)
def test_a_table_that_cannot_be_split_is_its_own_bound(model: str) -> None:
    case = Case(workload(table("a", 100, 8)), cluster(4), Space(types=("table_wise",)), cost_model=model)
    assert _bound(case) == pytest.approx(case.plan().plan.cost.total_s, rel=1e-8)


@pytest.mark.parametrize("model", BOTH)
def test_equal_tables_are_bound_by_the_mean(model: str) -> None:
    tables = workload(*(table(f"t{i}", 100, 8, 50.0) for i in range(8)), batch_size=10_000)
    case = Case(tables, cluster(4), Space(types=("table_wise",)), cost_model=model)
    assert case.plan().plan.gap == pytest.approx(0, abs=1e-5)


def test_memory_raises_the_bound() -> None:
    """Two devices hold two of four tables; the others must run from host memory, fifty times slower."""
    work, space = workload(*(table(f"t{i}", 1000, 16) for i in range(4))), Space(kernels=("fused", "fused_uvm"))
    roomy, tight = (Case(work, cluster(2, hbm=hbm, ddr_bytes_per_host=2**30), space) for hbm in (10**6, 80_000))
    free, bound = _bound(roomy), _bound(tight)
    assert free is not None
    assert bound is not None
    assert bound > 10 * free
    assert bound <= tight.plan().plan.cost.total_s * (1 + 1e-9)


def _types_case(pick, models) -> tuple[Case, tuple[str, ...]]:
    """Loose memory, and some of the sharding types."""
    work = make_workload(pick, 3, (4, 8, 20))
    case = under(pick, Case(work, cluster(2, pick((1, 2, 3)))), models)
    return case, tuple({name for name in TYPE_NAMES if pick((True, False))} | {"table_wise"})


@FEW
@given(
    drawn(_types_case, models=BOTH), st.sampled_from(["any", "torchrec"]), st.sampled_from(["types", "widths", "all"])
)
def test_a_plan_of_a_narrow_space_costs_no_less_than_the_bound_of_a_wider_one(made, widths, wider: str) -> None:
    case, types = made
    narrow = replace(case, space=Space(types=types, widths=widths))
    wide = {"types": Space(types=types), "widths": Space(widths=widths), "all": Space()}[wider]
    bound = _bound(replace(case, space=wide))
    assert bound is not None
    assert bound <= narrow.plan("cost_greedy").plan.cost.total_s * (1 + 1e-9)


@FEW
@given(drawn(_types_case, models=("torchrec",)), st.sampled_from(["any", "torchrec"]))
def test_fewer_types_hardly_lower_the_bound(made, widths) -> None:
    """They can only raise the least cost; how near the bound comes to it differs a little."""
    case, types = made
    low, high = (_bound(replace(case, space=Space(types=each, widths=widths))) for each in (TYPE_NAMES, types))
    assert low is not None
    assert high is not None
    assert low <= high * 1.01


def test_the_bound_names_its_space() -> None:
    rules = Constraints(rules=(TableRule(tables="a", min_width=8),))
    case = Case(workload(table("a", 100, 8)), cluster(2), Space(types=("row_wise", "table_wise")), rules)
    space = "table_wise + row_wise; widths any; kernels fused, dense; memory real; 1 table rules"
    assert lower_bound(case.evaluator).bound.space == space


def test_there_is_no_bound_where_a_table_fits_nowhere() -> None:
    assert _bound(Case(workload(table("a", 1000, 8)), cluster(2, hbm=10))) is None


# --- partitions ---------------------------------------------------------------------------------------------------

COSTS = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 7.0, math.inf]), min_size=1, max_size=9)


@given(COSTS)
def test_the_cheapest_partition_is_the_least_of_all(cost) -> None:
    steps = len(cost)

    @cache
    def least(left: int) -> float:
        return min((cost[size - 1] + least(left - size) for size in range(1, left + 1)), default=0.0)

    extra = np.arange(1.0, steps + 1) ** 2
    found, along = cheapest_partition(np.array([cost]), extra[None])
    assert found.tolist() == [least(steps)]
    if math.isfinite(least(steps)):
        assert (least(steps), along[0]) in _all_partitions(tuple(cost), tuple(extra))


def _all_partitions(cost: tuple[float, ...], extra: tuple[float, ...]) -> set[tuple[float, float]]:
    """(cost, extra) of every way to cover all steps."""
    ways = [{(0.0, 0.0)}]
    for filled in range(1, len(cost) + 1):
        ways.append({(a + cost[n - 1], b + extra[n - 1]) for n in range(1, filled + 1) for a, b in ways[filled - n]})
    return ways[-1]


# --- the relaxation -----------------------------------------------------------------------------------------------


@given(TINY, st.sampled_from([0.0, 0.5, 1.0, 3.0, math.inf]), st.sampled_from([0.0, 1e-15, 1e-12, 1e-6, DEAREST]))
def test_every_table_picks_its_cheapest_open_option(case: Case, share: float, price_: float) -> None:
    relaxation = Relaxation(case.evaluator)
    limit = share * float(relaxation.piece_seconds.mean()) if share < math.inf else math.inf
    choice = relaxation.choose(SelectionLimits(limit=limit, price=price_))
    for t in range(len(case.problem.tables)):
        values = dict(_open_options(relaxation, t, limit, price_))
        if not values:
            assert (choice.option[t], choice.seconds[t], choice.bytes[t]) == (NO_PIECE, math.inf, 0)
        else:
            assert values[choice.option[t]] == min(values.values())
            assert choice.option[t] == min(o for o, value in values.items() if value == min(values.values()))
            assert choice.seconds[t] + price_ * choice.bytes[t] == pytest.approx(min(values.values()))


def _open_options(relaxation: Relaxation, t: int, limit: float, price_: float):
    """(option, seconds + price * bytes over all ranks) of the options below the limit that fit an empty cluster."""
    problem = relaxation.problem
    for option in range(int(problem.options.start[t]), int(problem.options.start[t + 1])):
        pieces = option_pieces(problem, option)
        coverage = int(problem.modes.coverage[problem.options.mode[option]])
        if all(relaxation.piece_fits[piece] and relaxation.piece_alone[piece] <= limit for piece in pieces):
            seconds = coverage * sum(float(relaxation.piece_seconds[piece]) for piece in pieces)
            size = sum((coverage - 1) * problem.pieces.head.device[p] + problem.pieces.tail.device[p] for p in pieces)
            yield option, relaxation.option_seconds[option] + price_ * relaxation.option_bytes[option]
            assert relaxation.option_seconds[option] == pytest.approx(seconds)
            assert relaxation.option_bytes[option] == size


@given(TINY)
def test_a_fitting_price_makes_picks_fit(case: Case) -> None:
    relaxation, room = Relaxation(case.evaluator), float(sum(case.cluster.capacities))
    lightest = relaxation.choose(SelectionLimits(price=DEAREST))
    if np.isfinite(lightest.seconds).all() and lightest.bytes.sum() <= room:
        price_ = fitting_price(lambda p: relaxation.choose(SelectionLimits(price=p)), room)
        assert relaxation.choose(SelectionLimits(price=price_)).bytes.sum() <= room
        assert (price_ == 0) == (relaxation.choose().bytes.sum() <= room)


@given(TINY)
def test_a_fitting_price_is_nearly_the_least(case: Case) -> None:
    relaxation, room = Relaxation(case.evaluator), float(sum(case.cluster.capacities))
    price_ = fitting_price(lambda p: relaxation.choose(SelectionLimits(price=p)), room)
    if 0 < price_ < DEAREST:
        assert (
            relaxation.choose(SelectionLimits(price=price_ * 0.99)).bytes.sum()
            >= relaxation.choose(SelectionLimits(price=price_)).bytes.sum()
        )


@given(TINY, st.sampled_from([0.0, 1e-12, DEAREST]), st.integers(0, 10**6))
def test_splits_of_every_width_are_never_dearer_than_options(case: Case, price_: float, seed: int) -> None:
    terms = SelectionLimits(price=price_, menu=np.random.default_rng(seed).random(case.evaluator.groups) < 0.8)
    totals = TableTotals(case.evaluator)
    least, choice = totals.per_table(terms), Relaxation(case.evaluator).choose(terms)
    assert (least.value <= choice.seconds + price_ * choice.bytes).all()
    assert terms.menu is not None
    found = np.isfinite(least.value)
    assert terms.menu[least.group[found]].all()
    assert totals.at(terms).value == (least.value.sum() if found.all() else math.inf)
    assert totals.at(terms).bytes == least.bytes.sum()


@given(TINY, st.sampled_from([0.3, 1.0, 3.0]), st.sampled_from([0.0, 1e-12]))
def test_totals_fall_as_limits_rise_and_as_menus_widen(case: Case, share: float, price_: float) -> None:
    totals, everything = TableTotals(case.evaluator), np.ones(case.evaluator.groups, dtype=bool)
    limit = share * float(totals.relaxation.piece_alone.mean())
    terms = SelectionLimits(limit=limit, price=price_)
    free, limited = totals.per_table(SelectionLimits(price=price_)), totals.per_table(terms)
    local = totals.per_table(SelectionLimits(local=limit, price=price_))
    assert (free.value <= local.value).all()
    assert (local.value <= limited.value).all()
    for group in range(case.evaluator.groups):
        fewer = everything.copy()
        fewer[group] = False
        without = totals.per_table(replace(terms, menu=fewer))
        assert (limited.value <= without.value).all()
        same = (limited.group != group) & np.isfinite(limited.value)
        assert (without.value[same] == limited.value[same]).all()
    assert totals.at(replace(terms, menu=everything)) == totals.at(terms)


@given(TINY, st.sampled_from([0.1, 1.0, 10.0]))
def test_a_toll_is_paid_by_what_spans_the_world(case: Case, penalty: float) -> None:
    """So nothing is cheaper with it, and all that spans it costs as much on every rank."""
    totals = TableTotals(case.evaluator)
    free, penalised = totals.per_table(SelectionLimits()), totals.per_table(SelectionLimits(world_penalty=penalty))
    found = np.isfinite(free.value)
    everywhere = free.everywhere[found] * case.cluster.world_size
    assert (free.value[found] <= penalised.value[found]).all()
    np.testing.assert_array_less(
        penalised.value[found], (free.value[found] + penalty * everywhere) * (1 + 1e-12) + 1e-300
    )
    assert everywhere[everywhere > 0] == pytest.approx(free.value[found][everywhere > 0])


@given(TINY)
def test_a_piece_alone_costs_its_head_less_the_opening(case: Case) -> None:
    relaxation, problem = Relaxation(case.evaluator), case.problem
    head = case.evaluator.head(case.evaluator.terms(problem.pieces.mode, problem.pieces.width)).sum(axis=-1)
    np.testing.assert_allclose(relaxation.piece_alone + relaxation.linear.opening, head, rtol=1e-12)
    assert (relaxation.piece_seconds <= relaxation.piece_alone * (1 + 1e-9) + 1e-18).all()


def test_hand_made_shards_cover_their_table() -> None:
    case, placements = _hand_made(seeded(1))
    for t, placement in zip(sorted(case.workload.tables, key=lambda t: t.name), placements, strict=True):
        cells = sum(
            (s.rows[1] - s.rows[0]) * (s.columns[1] - s.columns[0]) for s in shards_of(case, t, placement)
        )  # fmt: skip
        copies = case.cluster.world_size if placement.sharding_type == "data_parallel" else 1
        assert cells == copies * t.num_embeddings * t.embedding_dim
