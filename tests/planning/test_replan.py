"""Planning anew from a plan that runs: what may move, what stays, and what is refused."""

from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.cases import table, workload

import recsmith
from recsmith import Plan, Workload
from recsmith.errors import NoPlanFound, UsageError
from recsmith.planners.annealing.kernel import is_compiled
from recsmith.planning.replan import Replanned, replan
from recsmith.plans import diff
from recsmith.workloads.sample import sample_workload

TABLES = sample_workload(24, seed=3)
QUICK = "cost_greedy"
OLD = recsmith.plan(TABLES, "h100:4", iterations=1).plan


def changed(workload: Workload, gone: int, busier: int) -> Workload:
    """The first tables are gone, and some of the others are read five times as often."""
    tables = workload.tables[gone:]
    features = [tuple(replace(each, pooling_factor=5 * each.pooling_factor) for each in t.features) for t in tables]
    busy = [replace(t, features=some) for t, some in zip(tables[:busier], features, strict=False)]
    return replace(workload, tables=(*busy, *tables[busier:]))


def placements(plan: Plan) -> dict[str, recsmith.Placement]:
    return {each.table: each for each in plan.placements}


def test_nothing_moves_where_nothing_may() -> None:
    found = replan(OLD, changed(TABLES, 2, 8), max_moved=0, planner=QUICK)
    now = placements(found.result.plan)
    assert (found.moved_bytes, found.new_bytes) == (0, 0)
    assert all(now[name] == each for name, each in placements(OLD).items() if name in now)
    assert len(now) == 22


@pytest.mark.skipif(not is_compiled(), reason="built without a C compiler")
def test_a_job_of_whole_tables_gets_nearly_all_that_a_fresh_plan_would_bring():
    tables = sample_workload(60, seed=7109, batch_size=2048, max_bytes=2**32)
    old = recsmith.plan(tables, "h100:8", planner="cost_greedy", cost_model="fitted").plan
    fresh = recsmith.plan(tables, "h100:8", cost_model="fitted").plan.cost.total_s
    found = replan(old, max_moved="20%")
    assert found.moved_bytes <= 0.2 * found.staying_bytes
    assert found.result.plan.cost.total_s < fresh + 0.2 * (old.cost.total_s - fresh)


@pytest.mark.skipif(not is_compiled(), reason="built without a C compiler")
def test_a_table_that_may_not_move_whole_moves_in_part():
    tables = (table("giant", 2_000_000, 64, 400.0), *(table(f"t{i}", 50_000, 16, 2.0) for i in range(8)))
    old = recsmith.plan(workload(*tables, batch_size=2048), "h100:4", planner="size_greedy", cost_model="analytic").plan
    found = replan(old, max_moved="30%")
    assert found.moved_bytes <= 0.3 * found.staying_bytes
    assert len(placements(found.result.plan)["giant"].ranks) > 1 == len(placements(old)["giant"].ranks)
    assert found.result.plan.cost.total_s < 0.95 * old.cost.total_s


CHANGES = given(st.integers(0, 5), st.integers(0, 15), st.sampled_from(["0.5%", "3%", "20%", "100%"]))


@settings(max_examples=2)
@example(0, 15, "3%")  # where a looser limit would be used
@CHANGES
def test_no_more_moves_than_may(gone: int, busier: int, limit: str) -> None:
    moved_within(gone, busier, limit)


@pytest.mark.soak
@settings(max_examples=100)
@CHANGES
def test_no_more_moves_than_may_of_many(gone: int, busier: int, limit: str) -> None:
    moved_within(gone, busier, limit)


def moved_within(gone: int, busier: int, limit: str) -> None:
    """Plan anew within a limit of moves, which holds."""
    found = replan(OLD, changed(TABLES, gone, busier), max_moved=limit, planner=QUICK)
    assert found.moved_bytes <= round(float(limit[:-1]) / 100 * found.staying_bytes)
    assert found.moved_bytes == diff(OLD, found.result.plan).moved_bytes - found.new_bytes
    assert recsmith.simulate(found.result.plan).cost == found.result.plan.cost


def test_the_plan_says_nothing_of_pins_and_its_bound_is_that_of_a_fresh_one() -> None:
    new = changed(TABLES, 0, 8)
    found, fresh = replan(OLD, new, max_moved="2%", planner=QUICK), recsmith.plan(new, "h100:4", planner=QUICK)
    assert found.result.plan.constraints == fresh.plan.constraints
    assert found.result.plan.bound == fresh.plan.bound


def test_what_may_move_helps() -> None:
    """Tables that are read much more often crowd their devices; a fiftieth of the bytes relieves them."""
    new = changed(TABLES, 0, 8)
    still, moved = (replan(OLD, new, max_moved=limit, iterations=1).result.plan.cost.total_s for limit in ("0%", "5%"))
    assert moved < 0.98 * still


def test_new_tables_are_made_not_moved() -> None:
    rows = replace(TABLES.tables[0], num_embeddings=TABLES.tables[0].num_embeddings + 1)
    features = tuple(replace(each, name=f"new {each.name}") for each in TABLES.tables[1].features)
    new = replace(TABLES, tables=(rows, *TABLES.tables[1:], replace(TABLES.tables[1], name="new", features=features)))
    found = replan(OLD, new, max_moved=0, planner=QUICK)
    copies = len(placements(found.result.plan)["new"].ranks) if found.moved_bytes else 1
    assert found.moved_bytes == 0
    assert found.new_bytes >= rows.weight_bytes + copies * TABLES.tables[1].weight_bytes


def test_more_devices_get_something_of_what_may_move() -> None:
    found = replan(OLD, cluster="h100:6", max_moved="30%", planner=QUICK)
    used = {rank for each in found.result.plan.placements for rank in each.ranks}
    assert {4, 5} <= used
    assert 0 < found.moved_bytes <= 0.3 * found.staying_bytes
    assert found.slowest_receives_bytes <= found.moved_bytes


def test_tables_on_devices_that_go_must_move() -> None:
    with pytest.raises(NoPlanFound, match=r"moves at most 0 B; the least that was found moves .* allow that with"):
        replan(OLD, cluster="h100:2", max_moved=0, planner=QUICK)
    found: Replanned = replan(OLD, cluster="h100:2", max_moved="100%", planner=QUICK)
    assert found.moved_bytes > 0


def test_what_the_old_plan_had_to_keep_is_kept() -> None:
    rules = recsmith.Constraints(rules=(recsmith.TableRule(tables=TABLES.tables[0].name, min_width=64),))
    old = recsmith.plan(
        TABLES, "h100:4", planner=QUICK, constraints=rules, space=recsmith.Space(types=("column_wise",))
    )
    found = replan(old.plan, changed(TABLES, 1, 5), max_moved="100%", planner=QUICK)
    assert {each.sharding_type for each in found.result.plan.placements} == {"column_wise"}


def test_rules_by_pattern_are_kept_and_those_of_tables_that_are_gone_are_not() -> None:
    gone, *others = [table.name for table in TABLES.tables]
    rules = recsmith.Constraints(
        rules=(
            recsmith.TableRule(tables=gone, ranks=(1,)),
            recsmith.TableRule(tables="*", not_ranks=(0,), sharding_types=("table_wise", "column_wise")),
        ),
        apart=(recsmith.Apart(tables=(gone, *others[:2])),),
    )
    old = recsmith.plan(TABLES, "h100:4", planner=QUICK, constraints=rules)
    found = replan(old.plan, changed(TABLES, 1, 5), max_moved="50%", planner=QUICK)
    where = {each.table: set(each.ranks) for each in found.result.plan.placements}
    assert all(0 not in ranks for ranks in where.values())
    assert not where[others[0]] & where[others[1]]


def test_a_name_with_signs_of_patterns_is_a_name() -> None:
    names = {TABLES.tables[0].name: "t[0]", TABLES.tables[1].name: "t0"}
    tables = tuple(replace(table, name=names.get(table.name, table.name)) for table in TABLES.tables)
    old = recsmith.plan(replace(TABLES, tables=tables), "h100:4", planner=QUICK).plan
    found = replan(old, max_moved=0, planner=QUICK)
    assert found.result.plan.placements == old.placements


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        pytest.param("much", "'much' is not a quantity with a unit", id="no size"),
        pytest.param("x%", "'x%' is no share; write for example 5%, or a size such as 200GiB", id="no share"),
        pytest.param("101%", "'101%' is no share of what can move; shares are from 0% to 100%", id="too much"),
        pytest.param("nan%", "shares are from 0% to 100%", id="not a number"),
        pytest.param(cast(Any, 0.5), "0.5 is no limit; give bytes as a whole number, or a text", id="half"),
        pytest.param(-1, "at most -1 may move; the limit must be at least 0", id="negative"),
    ],
)
def test_limits_that_are_none(limit: int | str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        replan(OLD, max_moved=limit)


def test_a_table_stays_in_widths_that_rules_leave_to_none_of_its_options() -> None:
    """A limit on its shards leaves a table its usual splits; where it is now, in two odd pieces, it keeps the limit."""
    table = replace(TABLES.tables[0], embedding_dim=64, num_embeddings=1000)
    work = replace(TABLES, tables=(table, *TABLES.tables[1:6]))
    odd = recsmith.Placement(
        table=table.name, sharding_type="column_wise", compute_kernel="fused", ranks=(1, 0), widths=(36, 28)
    )
    others = [
        recsmith.Placement(table=each.name, sharding_type="table_wise", compute_kernel="fused", ranks=(i % 4,))
        for i, each in enumerate(work.tables[1:])
    ]
    old = recsmith.price(work, "h100:4", [odd, *others])
    limits = recsmith.Constraints(rules=(recsmith.TableRule(tables=table.name, max_shards=4),))
    found = replan(old, constraints=limits, max_moved=0, planner=QUICK)
    assert found.moved_bytes == 0
    assert len(placements(found.result.plan)[table.name].ranks) <= 4
