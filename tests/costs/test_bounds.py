"""No plan costs less than its bound, and the parts that bounds are made of are exact."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import (
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
    workload,
)

from recsmith.costs import price
from recsmith.costs.table_totals import TableTotals
from recsmith.costs.partitions import cheapest_partition
from recsmith.costs.relaxation import DEAREST, Relaxation, fits_alone, fitting_price
from recsmith.errors import Infeasible, NoPlanFound
from recsmith.plans import Placement
from recsmith.problems import NO_PIECE, Constraints, Space, TableRule, footprint_of, option_pieces
from recsmith.sharding import TYPE_NAMES

MEDIUM = drawn(medium_case)
TINY = drawn(lambda pick: medium_case(pick, (0.5, 1.0, 3.0)))


def _bound(case: Case) -> float | None:
    return case.evaluator.outlook.bound.value_s


# --- the law ------------------------------------------------------------------------------------------------------


@given(MEDIUM, st.integers(0, 5))
def test_no_plan_of_the_random_planner_costs_less_than_its_bound(case: Case, seed: int) -> None:
    try:
        plan = case.plan("random", seed=seed).plan
    except (Infeasible, NoPlanFound):
        return
    assert plan.bound.value_s is not None
    assert plan.bound.value_s <= plan.cost.total_s * (1 + 1e-9)


def _hand_made(pick) -> tuple[Case, tuple[Placement, ...]]:
    case = medium_case(pick, LOOSE)
    return case, random_placements(pick, case)


@given(drawn(_hand_made))
def test_no_hand_made_plan_costs_less_than_the_bound(made) -> None:
    case, placements = made
    bound = _bound(case)
    if fits(case, placements):
        assert bound is not None
        assert bound <= price(case.evaluator, footprint_of(case.problem, placements)).total_s * (1 + 1e-9)


@pytest.mark.parametrize("chunk", range(4))
def test_no_hand_made_plan_that_just_fits_costs_less_than_the_bound(chunk: int) -> None:
    """Every rank gets exactly the memory that the plan takes: the price on memory is at its highest."""
    for seed in range(chunk, 160, 4):
        pick = seeded(seed)
        case, placements = _hand_made(pick)
        used = [max(device.hbm_bytes, 1) for device in _price(case, placements).per_device]
        hbm = tuple(used) if pick((True, False)) else max(used)
        tight = replace(case, cluster=replace(case.cluster, hbm_bytes=hbm, reserve_bytes=0))
        bound = _bound(tight)
        if fits(tight, placements):
            assert bound is not None
            assert bound <= _price(tight, placements).total_s * (1 + 1e-9)


def _price(case: Case, placements: tuple[Placement, ...]):
    return price(case.evaluator, footprint_of(case.problem, placements))


# --- how tight it is ----------------------------------------------------------------------------------------------


def test_a_table_that_cannot_be_split_is_its_own_bound() -> None:
    case = Case(workload(table("a", 100, 8)), cluster(4), Space(types=("table_wise",)))
    assert _bound(case) == pytest.approx(case.plan().plan.cost.total_s, rel=1e-8)


def test_equal_tables_are_bound_by_the_mean() -> None:
    case = Case(workload(*(table(f"t{i}", 100, 8) for i in range(8))), cluster(4), Space(types=("table_wise",)))
    assert case.plan().plan.gap == pytest.approx(0, abs=1e-8)


def test_memory_raises_the_bound() -> None:
    """Two devices hold two of four tables; the others must run from host memory, fifty times slower."""
    work, space = workload(*(table(f"t{i}", 1000, 16) for i in range(4))), Space(kernels=("fused", "fused_uvm"))
    roomy, tight = (Case(work, cluster(2, hbm=hbm, ddr_bytes_per_host=2**30), space) for hbm in (10**6, 80_000))
    free, bound = _bound(roomy), _bound(tight)
    assert free is not None
    assert bound is not None
    assert bound > 10 * free
    assert bound <= tight.plan().plan.cost.total_s * (1 + 1e-9)


@given(
    drawn(lambda pick: make_workload(pick, 4, (4, 8, 64, 192))), st.integers(1, 3), st.sets(st.sampled_from(TYPE_NAMES))
)
def test_a_wider_space_has_no_higher_bound(work, hosts, names) -> None:
    types = tuple(names | {"table_wise"})
    narrow = Case(work, cluster(2, hosts), Space(types=types, widths="torchrec"))
    for wide in (replace(narrow, space=Space(types=types)), replace(narrow, space=Space(widths="torchrec"))):
        low, high = _bound(wide), _bound(narrow)
        assert low is not None
        assert high is not None
        assert low <= high * (1 + 1e-8)


def test_the_bound_names_its_space() -> None:
    rules = Constraints(rules=(TableRule(tables="a", min_width=8),))
    case = Case(workload(table("a", 100, 8)), cluster(2), Space(types=("row_wise", "table_wise")), rules)
    space = "table_wise + row_wise; widths any; kernels fused, dense; memory real; 1 table rules"
    assert case.evaluator.outlook.bound.space == space


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
    choice = relaxation.choose(limit, price_)
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
        if all(relaxation.piece_fits[piece] and relaxation.piece_seconds[piece] <= limit for piece in pieces):
            seconds = coverage * sum(float(relaxation.piece_seconds[piece]) for piece in pieces)
            size = sum((coverage - 1) * problem.pieces.head.device[p] + problem.pieces.tail.device[p] for p in pieces)
            yield option, relaxation.option_seconds[option] + price_ * relaxation.option_bytes[option]
            assert relaxation.option_seconds[option] == pytest.approx(seconds)
            assert relaxation.option_bytes[option] == size


@given(TINY)
def test_a_piece_fits_alone_where_some_target_has_room(case: Case) -> None:
    problem = case.problem
    found = fits_alone(problem, problem.pieces.mode, problem.pieces.head, problem.pieces.tail)
    for piece, mode in enumerate(problem.pieces.mode):
        t = problem.tables[problem.modes.table[mode]]
        kind, kernel = TYPE_NAMES[problem.modes.type[mode]], problem.modes.kernel[mode]
        assert found[piece] == _has_room(case, t, kind, int(kernel), int(problem.pieces.width[piece]))


def _has_room(case: Case, t, kind: str, kernel: int, width: int) -> bool:
    from recsmith.sharding import KERNELS, sharding_type

    target_count = (case.cluster.world_size, case.cluster.hosts, 1)[sharding_type(kind).span]
    for target in range(target_count):
        ranks = sharding_type(kind).ranks((target,), case.cluster)
        alone = Placement(
            table=t.name, sharding_type=kind, compute_kernel=KERNELS[kernel], ranks=ranks, widths=(width,)
        )
        if fits(case, (alone,)):
            return True
    return False


@pytest.mark.parametrize(("host_rows", "fits_"), [(4, False), (5, False), (6, True)])
def test_a_piece_of_the_world_fits_only_where_its_fullest_host_has_room(host_rows: int, fits_: bool) -> None:
    """10 rows in 4 blocks are 3 + 3 on the first host and 3 + 1 on the last."""
    case = Case(
        workload(table("a", 10, 8, 0.0), optimizer="sgd"),
        cluster(2, 2, ddr_bytes_per_host=host_rows * 8 * 4),
        Space(types=("row_wise",), kernels=("fused_uvm",)),
    )
    pieces = case.problem.pieces
    assert fits_alone(case.problem, pieces.mode, pieces.head, pieces.tail).tolist() == [fits_]


@given(TINY)
def test_a_fitting_price_makes_picks_fit(case: Case) -> None:
    relaxation, room = Relaxation(case.evaluator), float(sum(case.cluster.capacities))
    lightest = relaxation.choose(price=DEAREST)
    if np.isfinite(lightest.seconds).all() and lightest.bytes.sum() <= room:
        price_ = fitting_price(lambda p: relaxation.choose(price=p), room)
        assert relaxation.choose(price=price_).bytes.sum() <= room
        assert (price_ == 0) == (relaxation.choose().bytes.sum() <= room)


@given(TINY)
def test_a_fitting_price_is_nearly_the_least(case: Case) -> None:
    relaxation, room = Relaxation(case.evaluator), float(sum(case.cluster.capacities))
    price_ = fitting_price(lambda p: relaxation.choose(price=p), room)
    if 0 < price_ < DEAREST:
        assert relaxation.choose(price=price_ * 0.99).bytes.sum() >= relaxation.choose(price=price_).bytes.sum()


@given(drawn(lambda pick: medium_case(pick, (1.0, 1.5))), st.sampled_from([0.0, 1e-12, DEAREST]))
def test_splits_of_every_width_are_never_dearer_than_options(case: Case, price_: float) -> None:
    value, _ = TableTotals(case.evaluator).per_table(math.inf, price_)
    choice = Relaxation(case.evaluator).choose(price=price_)
    assert (value <= choice.seconds + price_ * choice.bytes).all()


def test_hand_made_shards_cover_their_table() -> None:
    case, placements = _hand_made(seeded(1))
    for t, placement in zip(sorted(case.workload.tables, key=lambda t: t.name), placements, strict=True):
        cells = sum(
            (s.rows[1] - s.rows[0]) * (s.columns[1] - s.columns[0]) for s in shards_of(case, t, placement)
        )  # fmt: skip
        copies = case.cluster.world_size if placement.sharding_type == "data_parallel" else 1
        assert cells == copies * t.num_embeddings * t.embedding_dim
