"""What binds a step and what a table could do instead: held against prices of changed plans."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given, settings
from support.build import placed, plan_of
from support.cases import (
    BOTH,
    Case,
    cluster,
    drawn,
    fits,
    medium_case,
    random_placements,
    seeded,
    table,
    workload,
)

from recsmith.analyses.alternatives import Alternative
from recsmith.analyses.explain import Explanation, TableAccount, explain
from recsmith.costs import COST_MODELS
from recsmith.costs.analytic import BACKWARD_KERNELS, FORWARD_KERNELS
from recsmith.costs.pricing import device_parts, price
from recsmith.errors import PlanMismatch, UsageError
from recsmith.plans import PARTS, Placement, Plan, check_placements
from recsmith.problems import Footprint, Space, constraints_to_raw, footprint_of, problem_holding, problem_of
from recsmith.workloads import AccessProfile

MODELS = (*BOTH, "fitted")


def _runs(plan: Plan) -> bool:
    """Whether TorchRec runs it; sequences that may only be split by columns sometimes have no width in common."""
    try:
        check_placements(plan.placements, plan.workload, plan.cluster)
    except PlanMismatch:
        return False
    return True


@pytest.mark.parametrize("seed", [16, 96, 208])
def test_random_plans_give_sequences_of_a_collection_one_width(seed: int):
    case = medium_case(seeded(seed))
    assert _runs(plan_of(case.workload, case.cluster, *random_placements(seeded(1), case)))


def plan_of_case(case: Case) -> Plan:
    """Random legal placements of a case; memory is not asked."""
    made = plan_of(case.workload, case.cluster, *random_placements(seeded(1), case))
    assume(_runs(made))
    return replace(made, constraints=constraints_to_raw(case.space, case.constraints))


def parts_of(plan: Plan, model: str, without: str | None = None) -> np.ndarray:
    """Seconds (W, 4) of the ranks, with one table's pieces taken off."""
    problem = problem_holding(problem_of(plan), plan.placements)
    placed_all = footprint_of(problem, plan.placements)
    names = np.array([t.name for t in problem.tables])[problem.modes.table[placed_all.mode]]
    kept = names != without
    left = Footprint(placed_all.mode[kept], placed_all.width[kept], placed_all.target[kept])
    return device_parts(COST_MODELS[model].compile(problem), left)


def total_s(plan: Plan, model: str) -> float:
    """Seconds of the step."""
    problem = problem_holding(problem_of(plan), plan.placements)
    return price(COST_MODELS[model].compile(problem), footprint_of(problem, plan.placements)).total_s


def account(plan: Plan, name: str, model: str) -> TableAccount:
    found = explain(plan, name, model).account
    assert found is not None
    return found


# --- what binds ---------------------------------------------------------------------------------------------------


@settings(max_examples=12)
@given(drawn(medium_case))
@pytest.mark.parametrize("model", MODELS)
def test_phases_add_up_and_name_their_slowest_rank(model: str, case: Case):
    plan = plan_of_case(case)
    found, parts = explain(plan, cost_model=model), parts_of(plan, model)
    assert found.total_s == pytest.approx(total_s(plan, model), rel=1e-12)
    assert sum(phase.seconds for phase in found.phases) == pytest.approx(found.total_s, rel=1e-12)
    assert sorted(part.part for phase in found.phases for part in phase.parts) == sorted(PARTS)
    for phase in found.phases:
        columns = [PARTS.index(part.part) for part in phase.parts]
        seconds = parts[:, columns].sum(axis=1)
        assert phase.seconds == seconds.max() == seconds[phase.rank]
        assert phase.mean_s == pytest.approx(seconds.mean(), rel=1e-12)
        assert [part.seconds for part in phase.parts] == parts[phase.rank, columns].tolist()
        assert phase.largest.seconds == max(part.seconds for part in phase.parts)
        for part in phase.parts:
            assert 0 <= part.launch_s + part.latency_s <= part.seconds * (1 + 1e-12)


@settings(max_examples=12)
@given(drawn(medium_case))
@pytest.mark.parametrize("model", MODELS)
def test_a_tables_seconds_are_what_its_rank_saves_without_it(model: str, case: Case):
    plan = plan_of_case(case)
    parts = parts_of(plan, model)
    for phase in explain(plan, cost_model=model).phases:
        columns = [PARTS.index(part.part) for part in phase.parts]
        shards = {shard.table for shard in plan.shards() if shard.rank == phase.rank}
        assert {share.table for share in phase.tables} == shards
        assert [s.seconds for s in phase.tables] == sorted((s.seconds for s in phase.tables), reverse=True)
        for share in phase.tables:
            saved = (parts - parts_of(plan, model, without=share.table))[phase.rank, columns].sum()
            assert share.seconds == pytest.approx(saved, rel=1e-6, abs=1e-9 * parts.max())


@settings(max_examples=12)
@given(drawn(medium_case))
@pytest.mark.parametrize("model", MODELS)
def test_an_account_says_what_all_ranks_of_a_table_save_without_it(model: str, case: Case):
    plan = plan_of_case(case)
    parts, name = parts_of(plan, model), plan.placements[0].table
    saved = parts - parts_of(plan, model, without=name)
    found = account(plan, name, model)
    shards = [shard for shard in plan.shards() if shard.table == name]
    assert found.shards == tuple(shards)
    assert found.placement == plan.placements[0]
    assert [share.rank for share in found.ranks] == sorted({shard.rank for shard in shards})
    for share in found.ranks:
        seconds = [getattr(share, part) for part in PARTS]
        assert seconds == pytest.approx(saved[share.rank].tolist(), rel=1e-6, abs=1e-9 * parts.max())


WORK = workload(
    table("hot", 3000, 64, 20.0, access=AccessProfile(zipf=1.1)), table("wide", 20_000, 128, 1.0),
    table("small", 50, 16, 1.0), table("list", 400, 32, 3.0, pooling="none"), batch_size=64,
)  # fmt: skip
PLACED = (
    placed("hot", "table_wise", [0]), placed("list", "table_wise", [1]),
    placed("small", "data_parallel", [0, 1, 2, 3], kernel="dense"), placed("wide", "row_wise", [0, 1, 2, 3]),
)  # fmt: skip
PLAN = replace(
    plan_of(WORK, cluster(local=2, hosts=2), *PLACED),
    constraints={"types": list(Space().types), "widths": "any", "kernels": ["fused", "dense"], "memory": "real"},
)


@cache
def explained(model: str) -> Explanation:
    return explain(PLAN, "hot", model)


def test_launches_and_latencies_are_told_apart():
    first = explained("analytic").phases[0]
    launches = {part.part: part.launch_s for part in first.parts}
    ratio = launches["backward_compute_s"] / launches["forward_compute_s"]
    assert ratio == pytest.approx(BACKWARD_KERNELS / FORWARD_KERNELS)
    assert launches["backward_comm_s"] == 0
    assert all(part.latency_s > 0 for part in first.parts if part.part == "backward_comm_s")
    (only,) = explained("torchrec").phases
    assert all(part.launch_s == part.latency_s == 0 for part in only.parts)


def test_the_plans_own_model_is_asked_by_default():
    assert explain(PLAN).cost_model == "torchrec"
    assert explain(PLAN).account is None


def test_an_unknown_table_is_refused():
    with pytest.raises(UsageError, match="the plan has no table 'hott'; did you mean 'hot'"):
        explain(PLAN, "hott")


def test_access_is_told_where_the_workload_gives_it():
    found = account(PLAN, "hot", "torchrec")
    assert found.ids == 20 * 64 * 4
    assert 0 < (found.unique_ratio or 0) < 1
    assert account(PLAN, "wide", "torchrec").unique_ratio is None
    assert account(PLAN, "wide", "torchrec").ids == 64
    spread_out = replace(PLAN, placements=(placed("hot", "row_wise", range(4)), *PLACED[1:]))
    other = account(spread_out, "hot", "torchrec")
    assert other.ids == found.ids / 4
    assert other.unique_ratio == pytest.approx(found.unique_ratio)  # of all blocks together: the same lookups


# --- alternatives -------------------------------------------------------------------------------------------------


def changed(plan: Plan, name: str, way: Alternative) -> Plan:
    """The plan with one table placed differently."""
    laid = Placement(
        table=name, sharding_type=way.sharding_type, compute_kernel=way.compute_kernel, ranks=way.ranks,
        widths=way.widths, cache=way.cache,
    )  # fmt: skip
    return replace(plan, placements=tuple(laid if p.table == name else p for p in plan.placements))


@settings(max_examples=10)
@given(drawn(medium_case))
@pytest.mark.parametrize("model", MODELS)
def test_alternatives_cost_what_the_changed_plan_costs_and_run(model: str, case: Case):
    plan = plan_of_case(case)
    name = plan.placements[-1].table
    was_full = not fits(case, plan.placements)
    ways = account(plan, name, model).alternatives
    current = [way for way in ways if way.current]
    assert [(way.sharding_type, way.ranks, way.change) for way in current] == [
        (plan.placements[-1].sharding_type, plan.placements[-1].ranks, 0.0)
    ]
    for way in ways:
        if way.total_s is None:
            assert (way.change, way.ranks) == (None, ())
            continue
        other = changed(plan, name, way)
        check_placements(other.placements, other.workload, other.cluster)
        seconds, now = total_s(other, model), total_s(plan, model)
        assert way.total_s == pytest.approx(seconds, rel=1e-9)
        assert way.change == pytest.approx(seconds / now - 1 if now else 0.0, abs=2e-9)
        assert was_full or fits(case, other.placements)
    changes = [float("inf") if way.change is None else way.change for way in ways]
    assert changes == sorted(changes)


def test_every_way_of_the_space_is_listed_once():
    ways = account(PLAN, "hot", "torchrec").alternatives
    keys = [(way.sharding_type, way.compute_kernel, way.widths) for way in ways]
    assert len(keys) == len(set(keys))
    assert {way.sharding_type for way in ways} == set(Space().types)
    assert sum(way.sharding_type == "column_wise" for way in ways) > 8


def test_a_piece_goes_where_it_costs_least():
    ways = [way for way in account(PLAN, "wide", "torchrec").alternatives if way.sharding_type == "table_wise"]
    assert ways
    for way in ways:
        each = [total_s(changed(PLAN, "wide", replace(way, ranks=(rank,))), "torchrec") for rank in range(4)]
        assert way.total_s == pytest.approx(min(each), rel=1e-12)


def test_a_better_rank_for_the_same_layout_is_told():
    crowded = replace(PLAN, placements=(PLACED[0], placed("list", "table_wise", [0]), *PLACED[2:]))
    ways = [way for way in account(crowded, "list", "torchrec").alternatives if way.sharding_type == "table_wise"]
    assert [way.current for way in ways] == [False, True]
    assert ways[0].ranks != (0,)
    assert (ways[0].change or 0) < 0
    settled = [way for way in account(PLAN, "list", "torchrec").alternatives if way.sharding_type == "table_wise"]
    assert [way.current for way in settled] == [True]


def test_ways_without_room_are_listed_last():
    tight = replace(PLAN, cluster=replace(PLAN.cluster, hbm_bytes=4 * 2**20))
    ways = account(tight, "wide", "torchrec").alternatives
    lost = {way.sharding_type for way in ways if way.total_s is None}
    assert {"table_wise", "data_parallel"} <= lost
    assert ways[0].total_s is not None
    assert ways[-1].total_s is None


def test_a_plan_of_one_table_compares_ranks_by_what_they_cost():
    """No other table costs anything here, so only the plan's own cost can say which differences count."""
    device = replace(PLAN.cluster.device, host_link_bandwidth=1.0)  # so that a table in UVM costs years
    memory = {"hbm_bytes": (2**20, *[2**30] * 3), "ddr_bytes_per_host": 2**40}
    machines = replace(PLAN.cluster, device=device, **memory)
    alone = plan_of(workload(table("wide", 10**5, 64, 900.0)), machines, placed("wide", "row_wise", range(4)))
    kernels = {**PLAN.constraints, "kernels": ["fused", "fused_uvm"]}
    ways = account(replace(alone, constraints=kernels), "wide", "torchrec").alternatives
    whole = [way for way in ways if way.sharding_type == "table_wise"]
    assert {(way.compute_kernel, way.ranks) for way in whole} == {("fused", (1,)), ("fused_uvm", (1,))}  # 0 is full


def test_ways_keep_to_the_space_though_the_plan_does_not():
    narrow = {"types": ["table_wise", "column_wise"], "widths": "torchrec", "kernels": ["fused"], "memory": "real"}
    rules = [{"tables": "wide", "sharding_types": ["column_wise"]}]
    ways = account(replace(PLAN, constraints={**narrow, "types": Space().types, "rules": rules}), "wide", "torchrec")
    assert {(way.sharding_type, way.current) for way in ways.alternatives} == {
        ("row_wise", True),
        ("column_wise", False),
    }
    wide = account(replace(PLAN, constraints=narrow), "wide", "torchrec").alternatives
    assert {way.sharding_type for way in wide} == {"row_wise", "table_wise", "column_wise"}


def test_sequences_get_no_way_that_runs_with_another_width():
    lists = workload(
        table("a", 400, 256, 3.0, pooling="none"), table("b", 400, 256, 3.0, pooling="none"), batch_size=64
    )  # fmt: skip
    plan = replace(
        plan_of(
            lists, cluster(local=4), placed("a", "column_wise", [0, 1, 2, 3], [64] * 4), placed("b", "table_wise", [0])
        ),
        constraints=PLAN.constraints,
    )
    ways = account(plan, "b", "torchrec").alternatives
    assert "column_wise" not in {way.sharding_type for way in ways}
    assert "row_wise" in {way.sharding_type for way in ways}
