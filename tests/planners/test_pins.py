"""Pinned tables are placed exactly as they are pinned, by every planner and on every way to a plan."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from planners.contract import planners_here
from support.cases import cluster, table, workload
from support.pinned import broken, drawn_plan, moved_bytes, with_other_tables

import recsmith
from recsmith import Constraints, Placement, Plan, TableRule
from recsmith.errors import NoPlanFound, PlanMismatch
from recsmith.plans import plan_to_raw
from recsmith.problems import Pin

TABLES = tuple(table(f"t{i}", 1000 * (i + 1), 32, 5.0 * (1 + i % 3)) for i in range(6))
WORK, CLUSTER = workload(*TABLES, optimizer="sgd"), cluster(3, 1)
TURNED = {
    "t0": Pin(sharding_type="column_wise", ranks=(2, 0), widths=(16, 16)),
    "t1": Pin(sharding_type="column_wise", ranks=(1, 2, 0), widths=(4, 24, 4)),
    "t2": Pin(sharding_type="column_wise", ranks=(2, 2, 0, 1), widths=(8, 8, 8, 8)),
}
LIMITS = Constraints(rules=tuple(TableRule(tables=name, pin=pin) for name, pin in TURNED.items()))


def placements(plan: Plan) -> dict[str, Placement]:
    return {each.table: each for each in plan.placements}


def is_pinned(plan: Plan) -> bool:
    found = placements(plan)
    return all(found[name] == pin.placement(name) for name, pin in TURNED.items())


@pytest.mark.parametrize("cost_model", ["analytic", "torchrec"])
@pytest.mark.parametrize("planner", planners_here())
def test_every_planner_leaves_pinned_columns_where_they_are(planner: str, cost_model: str) -> None:
    made = recsmith.plan(WORK, CLUSTER, planner=planner, cost_model=cost_model, constraints=LIMITS, iterations=3).plan
    assert is_pinned(made)
    assert recsmith.simulate(made) == made  # priced as it is read


def test_a_plan_is_kept_from_a_file(tmp_path: Path) -> None:
    old = recsmith.plan(WORK, CLUSTER, planner="random", constraints=LIMITS).plan
    (tmp_path / "old.json").write_text(json.dumps(plan_to_raw(old)))
    (tmp_path / "limits.yaml").write_text("schema: recsmith/constraints/1\npin_to: old.json\n")
    more = replace(WORK, tables=(*TABLES, table("new", 500, 16)))
    made = recsmith.plan(more, CLUSTER, planner="cost_greedy", constraints=tmp_path / "limits.yaml").plan
    assert placements(made) == {**placements(old), "new": placements(made)["new"]}


@pytest.mark.parametrize("planner", ["auto", "cost_greedy"])
@pytest.mark.parametrize("limit", ["0%", "100%"])
def test_replanning_keeps_pins_that_the_old_plan_was_made_under(planner: str, limit: str) -> None:
    old = recsmith.plan(WORK, CLUSTER, planner="random", constraints=LIMITS).plan
    busy = replace(TABLES[5], features=(replace(TABLES[5].features[0], pooling_factor=200.0),))
    found = recsmith.replan(old, replace(WORK, tables=(*TABLES[:5], busy)), max_moved=limit, planner=planner)
    assert is_pinned(found.result.plan)


def test_replanning_moves_tables_to_where_they_are_pinned_from_now_on() -> None:
    """Equal pieces change places, which moves them: columns are not left where they were."""
    swapped = {name: replace(pin, ranks=pin.ranks[::-1], widths=pin.widths[::-1]) for name, pin in TURNED.items()}
    rules = tuple(TableRule(tables=name, pin=pin) for name, pin in swapped.items())
    old = recsmith.plan(WORK, CLUSTER, planner="cost_greedy", constraints=Constraints(rules=rules)).plan
    found = recsmith.replan(old, constraints=LIMITS, max_moved="100%", planner="cost_greedy")
    assert is_pinned(found.result.plan)
    assert found.moved_bytes == moved_bytes(plan_to_raw(old), plan_to_raw(found.result.plan)) > 0
    with pytest.raises(NoPlanFound, match="the least that was found moves"):
        recsmith.replan(old, constraints=LIMITS, max_moved=0, planner="cost_greedy")


def test_a_start_with_pinned_pieces_in_other_places_is_no_start() -> None:
    made = recsmith.plan(WORK, CLUSTER, planner="cost_greedy", constraints=LIMITS).plan
    pieces = replace(placements(made)["t0"], ranks=(0, 2))
    other = replace(made, placements=tuple(pieces if each.table == "t0" else each for each in made.placements))
    with pytest.raises(PlanMismatch, match="the starting plan breaks a constraint: table 't0'"):
        recsmith.plan(WORK, CLUSTER, planner="cost_greedy", constraints=LIMITS, start=other)
    given = recsmith.price(WORK, CLUSTER, other.placements, constraints=LIMITS)
    assert given.gap is None  # it is no plan of the space


QUICK = ("cost_greedy", "random", "ldm", "size_lookup_greedy", "neuroshard", "auto")


@pytest.mark.parametrize("seed", range(12))
def test_drawn_plans_are_kept_by_a_check_that_asks_nothing_of_the_sources(seed: int, tmp_path: Path) -> None:
    """A few of the cases of benchmarks/pinned_plans.py: planned anew, with other tables beside, and replanned."""
    drawn, planner = drawn_plan(seed), QUICK[seed % len(QUICK)]
    limits, old = tmp_path / "limits.json", drawn.raw
    limits.write_text(json.dumps(drawn.limits))
    made = recsmith.plan(drawn.plan.workload, drawn.plan.cluster, planner=planner, constraints=limits).plan
    assert broken(plan_to_raw(made), drawn.limits) is None
    (tmp_path / "old.json").write_text(json.dumps(old))
    pins = {"schema": "recsmith/constraints/1", "pin_to": [{"plan": "old.json", "but": ["t1"]}]}
    limits.write_text(json.dumps(pins))
    work = with_other_tables(drawn, seed)
    partial = recsmith.plan(work, drawn.plan.cluster, planner=planner, constraints=limits).plan
    assert broken(plan_to_raw(partial), pins, old) is None
    found = recsmith.replan(made, work, max_moved="30%", planner="cost_greedy")
    assert broken(plan_to_raw(found.result.plan), drawn.limits) is None
    assert found.moved_bytes == moved_bytes(plan_to_raw(made), plan_to_raw(found.result.plan))


def test_the_check_sees_two_equal_pieces_that_change_places() -> None:
    made = plan_to_raw(recsmith.plan(WORK, CLUSTER, planner="cost_greedy", constraints=LIMITS).plan)
    limits = {"rules": [{"tables": "t0", "pin": {"sharding_type": "column_wise", "ranks": [0, 2], "widths": [16, 16]}}]}
    assert "pin of" in (broken(made, limits) or "")
