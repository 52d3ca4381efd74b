"""No plan costs less than its bound, and the bound is tight where that can be seen."""

import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st
from support.bounds import ANALYTIC, FEW, MEDIUM, SOME, bound_of, hand_made, priced, total_of
from support.cases import (
    BOTH,
    OFF_DISK,
    Case,
    brute_force,
    cluster,
    drawn,
    fits,
    make_workload,
    random_placements,
    seeded,
    shards_of,
    small_case,
    table,
    under,
    with_blocks,
    workload,
)

from recsmith.bounds import first_bound, lower_bound, prove
from recsmith.bounds.first import always
from recsmith.bounds.lower_bound import certified_search
from recsmith.bounds.tightening import FAR_REACH, MANY_REACH, REACH, TRIAL, raised, reach_of
from recsmith.bounds.work import MANY_WORK, MOST_TIMES, has_selections, may_gain, phase_work
from recsmith.clusters import load_cluster
from recsmith.costs import cost_model
from recsmith.errors import Infeasible, NoPlanFound
from recsmith.plans import Placement
from recsmith.problems import Constraints, Space, TableRule, build_problem
from recsmith.sharding import SPLIT_ROWS, TYPE_NAMES


@FEW
@given(MEDIUM, st.integers(0, 5))
def test_no_plan_of_the_random_planner_costs_less_than_its_bound(case: Case, seed: int) -> None:
    try:
        plan = case.plan("random", seed=seed).plan
    except (Infeasible, NoPlanFound):
        reject()  # so that as many other cases are asked
    assert plan.bound.value_s is not None
    assert plan.bound.value_s <= plan.cost.total_s * (1 + 1e-9)


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 1000), marks=pytest.mark.soak)])
def test_no_plan_of_tables_with_uneven_blocks_costs_less_than_the_bound(seeds: range) -> None:
    """Every plan is listed, with loads of blocks that are counted row by row; a tight bound shows that it sees them."""
    asked = uneven = tight = 0
    for seed in seeds:
        pick = seeded(seed)
        case = with_blocks(pick, small_case(pick, models=BOTH))
        least = brute_force(case).least_s
        if least is None:
            continue
        asked += 1
        bound = bound_of(case)
        assert bound is not None
        assert 0 <= bound <= least * (1 + 1e-9)
        modes = case.problem.modes
        uneven += bool((modes.spread < modes.coverage)[np.isin(modes.type, SPLIT_ROWS)].any())
        tight += bound >= 0.5 * least
    assert asked > len(seeds) / 3
    assert uneven > asked / 4
    assert tight > asked / 2


@FEW
@given(drawn(hand_made, **SOME), st.integers(0, 10**6))
def test_no_hand_made_plan_costs_less_than_the_bound(made, seed: int) -> None:
    case, placements = made
    bound, pick = bound_of(case), seeded(seed)
    for each in (placements, *(random_placements(pick, case) for _ in range(5))):
        if fits(case, each):
            assert bound is not None
            assert bound <= total_of(case, each) * (1 + 1e-9)


@pytest.mark.parametrize("model", BOTH)
@pytest.mark.parametrize("seeds", [range(32), pytest.param(range(32, 800), marks=pytest.mark.soak)])
def test_no_hand_made_plan_that_just_fits_costs_less_than_the_bound(seeds: range, model: str) -> None:
    """Every rank gets exactly the memory that the plan takes: the price on memory is at its highest."""
    asked = 0
    for seed in seeds:
        pick = seeded(seed)
        case, placements = hand_made(pick, **(SOME | {"models": (model,)}))
        used = [max(device.hbm_bytes, 1) for device in priced(case, placements).per_device]
        hbm = tuple(used) if pick((True, False)) else max(used)
        tight = replace(case, cluster=replace(case.cluster, hbm_bytes=hbm, reserve_bytes=0))
        bound = bound_of(tight)
        if fits(tight, placements):
            asked += 1
            assert bound is not None
            assert bound <= total_of(tight, placements) * (1 + 1e-9)
    assert asked > len(seeds) / 2


@pytest.mark.parametrize("model", BOTH)
@pytest.mark.parametrize("kernel", ["fused", "fused_uvm", "fused_uvm_caching"])
@pytest.mark.parametrize("ranks", [(0,), (0, 1, 2)])
def test_a_plan_that_takes_the_last_byte_costs_no_less_than_the_bound(model: str, kernel: str, ranks) -> None:
    """There the price on memory has no upper end, and must not drown the seconds."""
    on = cluster(len(ranks), ddr_bytes_per_host=2**40)
    tables = workload(*(table(f"t{rank}", 1000, 8) for rank in ranks))
    space = Space(types=("table_wise", "column_wise", "data_parallel"), kernels=OFF_DISK)
    roomy = Case(tables, on, space, cost_model=model)
    placements = tuple(
        Placement(table=f"t{rank}", sharding_type="table_wise", compute_kernel=kernel, ranks=(rank,)) for rank in ranks
    )
    (need,) = {device.hbm_bytes for device in priced(roomy, placements).per_device}
    tight = replace(roomy, cluster=replace(on, hbm_bytes=need))
    bound = bound_of(tight)
    assert bound is not None
    assert bound <= total_of(tight, placements) * (1 + 1e-9)


@FEW
@given(ANALYTIC)
def test_the_analytic_bound_pays_for_a_group_in_use(case: Case) -> None:
    """Even where tables cost next to nothing: one launch and one latency are left."""
    bound = bound_of(case)
    evaluator = case.evaluator
    least = min(float(row.sum()) for row in evaluator.shared) + min(plane.opening for plane in evaluator.planes)
    assume(bound is not None)
    assert bound is not None
    assert bound >= least * (1 - 1e-9)


@pytest.mark.parametrize("model", BOTH)
def test_a_table_that_cannot_be_split_is_its_own_bound(model: str) -> None:
    case = Case(workload(table("a", 100, 8)), cluster(4), Space(types=("table_wise",)), cost_model=model)
    assert bound_of(case) == pytest.approx(case.plan().plan.cost.total_s, rel=1e-8)


@pytest.mark.parametrize("model", BOTH)
def test_equal_tables_are_bound_by_the_mean(model: str) -> None:
    tables = workload(*(table(f"t{i}", 100, 8, 50.0) for i in range(8)), batch_size=10_000)
    case = Case(tables, cluster(4), Space(types=("table_wise",)), cost_model=model)
    assert case.plan().plan.gap == pytest.approx(0, abs=1e-5)


def test_memory_raises_the_bound() -> None:
    """Two devices hold two of four tables; the others must run from host memory, fifty times slower."""
    work, space = workload(*(table(f"t{i}", 1000, 16) for i in range(4))), Space(kernels=("fused", "fused_uvm"))
    roomy, tight = (Case(work, cluster(2, hbm=hbm, ddr_bytes_per_host=2**30), space) for hbm in (10**6, 80_000))
    free, bound = bound_of(roomy), bound_of(tight)
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
    bound = bound_of(replace(case, space=wide))
    assert bound is not None
    assert bound <= narrow.plan("cost_greedy").plan.cost.total_s * (1 + 1e-9)


@FEW
@given(drawn(_types_case, models=("torchrec",)), st.sampled_from(["any", "torchrec"]))
def test_fewer_types_hardly_lower_the_bound(made, widths) -> None:
    """They can only raise the least cost; how near the bound comes to it differs a little."""
    case, types = made
    low, high = (bound_of(replace(case, space=Space(types=each, widths=widths))) for each in (TYPE_NAMES, types))
    assert low is not None
    assert high is not None
    assert low <= high * 1.01


def test_the_bound_names_its_space() -> None:
    rules = Constraints(rules=(TableRule(tables="a", min_width=8),))
    case = Case(workload(table("a", 100, 8)), cluster(2), Space(types=("row_wise", "table_wise")), rules)
    space = "table_wise + row_wise; widths any; kernels fused, dense; memory real; 1 table rules"
    assert lower_bound(case.evaluator).bound.space == space


def test_there_is_no_bound_where_a_table_fits_nowhere() -> None:
    assert bound_of(Case(workload(table("a", 1000, 8)), cluster(2, hbm=10))) is None


def test_hand_made_shards_cover_their_table() -> None:
    case, placements = hand_made(seeded(1))
    for t, placement in zip(sorted(case.workload.tables, key=lambda t: t.name), placements, strict=True):
        cells = sum(
            (s.rows[1] - s.rows[0]) * (s.columns[1] - s.columns[0]) for s in shards_of(case, t, placement)
        )  # fmt: skip
        copies = case.cluster.world_size if placement.sharding_type == "data_parallel" else 1
        assert cells == copies * t.num_embeddings * t.embedding_dim


@pytest.mark.parametrize(
    ("tables", "model", "sought"),
    [(500, "torchrec", True), (501, "torchrec", False), (501, "analytic", True), (4001, "analytic", False)],
)
def test_the_tighter_bound_is_sought_where_it_may_gain(tables: int, model: str, sought: bool) -> None:
    work = workload(*(table(f"t{i}", 10 + i, 4) for i in range(tables)))
    assert may_gain(cost_model(model).compile(build_problem(work, cluster(local=2)))) is sought


def test_tables_that_are_alike_count_once_where_it_is_asked_whether_a_tighter_bound_may_gain() -> None:
    work = workload(*(table(f"t{i}", 10 + i % 2, 4) for i in range(600)))
    assert may_gain(cost_model("torchrec").compile(build_problem(work, cluster(local=2))))


def test_many_tables_have_the_tighter_bound_too_and_it_goes_on_above_where_it_looked_first() -> None:
    """Twelve heavy tables on eight devices: some device holds two of them, which the mean load does not see."""
    heavy, light = (table("t", 100_000, 16, bags) for bags in (3000.0, 1.0))
    tables = [replace(heavy if i < 12 else light, name=f"t{i}", num_embeddings=100_000 + i) for i in range(501)]
    case = Case(workload(*tables, batch_size=4096), load_cluster("h100:8"), Space(types=("table_wise",)),
                cost_model="analytic")  # fmt: skip
    first, known = first_bound(case.evaluator).bound.value_s, lower_bound(case.evaluator)
    proven, total_s = known.bound.value_s, case.plan("cost_greedy").plan.cost.total_s
    assert first is not None
    assert proven is not None
    assert MANY_REACH * first < proven <= total_s
    assert (known.selections, has_selections(case.problem)) == ((), False)
    longer = prove(case.evaluator, total_s)
    assert longer.value_s is not None
    assert certified_search(case.evaluator, total_s, MANY_WORK).bound <= longer.value_s <= total_s
    assert (known.bound.searched, longer.searched) == (False, longer.value_s > proven)


def test_what_many_tables_select_is_told_on_many_devices_and_what_some_select_on_any() -> None:
    many, some = (workload(*(table(f"t{i}", 10 + i, 4) for i in range(count))) for count in (501, 500))
    found = [
        has_selections(build_problem(work, load_cluster(on)))
        for work, on in ((many, "h100:8x16"), (many, "h100:8x17"), (some, "h100:8"))
    ]
    assert found == [False, True, True]


def test_bounds_of_many_devices_have_more_work_and_of_many_tables_look_further() -> None:
    many, some = (workload(*(table(f"t{i}", 10 + i, 4) for i in range(count))) for count in (501, 500))
    problems = [build_problem(many, load_cluster(on)) for on in ("h100:8x31", "h100:8x32", "h100:8x512")]
    assert [phase_work(each, has_mix=True) // MANY_WORK for each in problems] == [1, 2, MOST_TIMES]
    assert [reach_of(each) for each in problems] == [MANY_REACH, FAR_REACH, FAR_REACH]
    assert reach_of(build_problem(some, load_cluster("h100:8x32"))) == REACH


@dataclass
class Rising:
    """A search whose bound rises by `rise` for each number that it works on, up to `most`."""

    rise: float
    most: float = 1e9
    work: int = 0

    @property
    def bound(self) -> float:
        return min(self.most, self.rise * self.work)

    @property
    def done(self) -> bool:
        return self.bound == self.most

    def solve(self, work: int, enough: float) -> None:
        self.work = work


def test_a_longer_proof_goes_on_with_the_spreads_of_a_heavy_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search over these is replaced by one that proves at once that the plan is the best."""
    case = Case(workload(table("a", 1000, 16), table("b", 500, 8)), cluster(2), cost_model="analytic")
    total_s, module = 1.0, sys.modules[prove.__module__]
    alone = prove(case.evaluator, total_s, keep_on=lambda: False)
    assert alone == lower_bound(case.evaluator).bound
    assert alone.value_s is not None
    monkeypatch.setattr(module, "heaviest_table", lambda *given: True)
    monkeypatch.setattr(module, "heavy_search", lambda *given: [Rising(1.0, most=2 * total_s, work=1)])
    found = prove(case.evaluator, total_s)
    assert (found.value_s, found.searched) == (pytest.approx(total_s), True)


def test_a_longer_proof_tells_two_hosts_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search that does is replaced by one that proves at once that the plan is the best."""
    case = Case(workload(table("a", 1000, 16), table("b", 500, 8)), cluster(2, 2), cost_model="analytic")
    total_s, heard = 1.0, list[float]()
    module = sys.modules[prove.__module__]
    monkeypatch.setattr(module, "host_branching", lambda *given, joined: Rising(1e-8, 2 * total_s))
    found = prove(case.evaluator, total_s, on_bound=lambda _, bound: heard.append(bound))
    assert (found.value_s, found.searched) == (pytest.approx(total_s), True)
    assert heard[-1] == found.value_s
    assert heard == sorted(heard)


def test_the_search_that_is_ahead_after_a_part_of_the_work_has_the_rest() -> None:
    searches: list[Any] = [Rising(1.0), Rising(3.0)]
    *_, last = raised(searches, 100 * TRIAL, 1e9, always, 7)
    assert [search.work for search in searches] == [100, 100 * (TRIAL - 1)]
    assert last == 300 * (TRIAL - 1)


def test_what_a_finished_search_leaves_goes_to_the_other_and_enough_ends_both() -> None:
    searches: list[Any] = [Rising(1.0), Rising(3.0, most=150.0)]
    *_, last = raised(searches, 100 * TRIAL, 1e9, always, 10)
    assert searches[1].work < 100 < searches[0].work <= 100 * TRIAL
    assert last == searches[0].bound == searches[0].work
    searches = [Rising(1.0), Rising(3.0)]
    *_, last = raised(searches, 100 * TRIAL, 50.0, always, 10)
    assert last == 50.0
    assert searches[1].work == 0
