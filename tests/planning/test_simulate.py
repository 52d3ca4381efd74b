"""What a plan costs is the sum over its shards, and `simulate` says of a plan what `plan` said."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from support.cases import (
    BOTH,
    LOOSE,
    Case,
    cluster,
    drawn,
    medium_case,
    random_placements,
    seeded,
    slow_memory,
    slow_parts,
    slow_total,
    small_case,
    table,
    workload,
)

import recsmith
from recsmith.bounds import lower_bound
from recsmith.costs import COST_MODELS, piece_seconds, price
from recsmith.errors import Infeasible, NoPlanFound, PlanMismatch
from recsmith.files import dump_json
from recsmith.planning.simulate import load_priced, simulate
from recsmith.planning.simulate import price as price_given
from recsmith.plans import PARTS, Bound, Cache, Placement, Plan, check_placements, plan_to_raw
from recsmith.problems import Constraints, Space, TableRule, constraints_to_raw, footprint_of
from recsmith.web.report import report_html


def _hand_made(case: Case, priced_by: Case, placements: tuple[Placement, ...]) -> Plan:
    return Plan(
        workload=case.workload, cluster=case.cluster, placements=placements, planner="hand",
        cost_model=case.cost_model, constraints=constraints_to_raw(case.space, case.constraints),
        cost=price(priced_by.evaluator, footprint_of(priced_by.problem, placements)),
        bound=Bound(value_s=None, kind="not asked for", space=""), gap=None,
    )  # fmt: skip


def _priced(pick) -> tuple[Case, Plan]:
    """A hand-made plan, with the cost that `price` gives it."""
    case = medium_case(pick, models=BOTH)
    return case, _hand_made(case, case, random_placements(pick, case))


PRICED = drawn(_priced)


@given(PRICED)
def test_parts_of_every_rank_are_the_sums_of_its_shards(priced) -> None:
    case, plan = priced
    expected = slow_parts(case.evaluator, plan)
    found = [[getattr(device, part) for part in PARTS] for device in plan.cost.per_device]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert plan.cost.total_s == pytest.approx(slow_total(case.evaluator, expected), rel=1e-12)


@given(PRICED)
def test_memory_of_every_rank_is_the_sum_of_its_shards(priced) -> None:
    case, plan = priced
    device, _ = slow_memory(case, plan.placements)
    assert [d.hbm_bytes for d in plan.cost.per_device] == device
    assert [d.hbm_capacity_bytes for d in plan.cost.per_device] == list(case.cluster.capacities)
    assert [d.rank for d in plan.cost.overfull] == [
        rank for rank, size in enumerate(device) if size > case.cluster.capacities[rank]
    ]


@given(PRICED)
def test_parts_and_wait_of_every_rank_add_up_to_the_step(priced) -> None:
    case, plan = priced
    for device in plan.cost.per_device:
        assert device.wait_s >= 0
        assert device.busy_s + device.wait_s == pytest.approx(plan.cost.total_s, rel=1e-12)
    if not case.evaluator.step_rule.several_phases:  # else the slowest of one phase may wait in another
        assert min(device.wait_s for device in plan.cost.per_device) == 0


@given(drawn(medium_case, models=BOTH))
def test_a_piece_alone_costs_what_pricing_says(case: Case) -> None:
    problem = case.problem
    seconds = piece_seconds(case.evaluator, problem.pieces.mode, problem.pieces.width)
    assert (seconds >= 0).all()
    parts = case.evaluator.head(case.evaluator.terms(problem.pieces.mode, problem.pieces.width))
    assert seconds.tolist() == parts.sum(axis=1).tolist()


# --- simulate -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", COST_MODELS)
@pytest.mark.parametrize("seeds", [range(10), pytest.param(range(10, 400), marks=pytest.mark.soak)])
def test_simulate_leaves_a_plan_of_the_planner_as_it_is(model: str, seeds: range) -> None:
    solved = 0
    for seed in seeds:
        own = BOTH[seed // 4 % 2]
        make = medium_case if model == own == "torchrec" else small_case  # bounds of `analytic` take longer
        case = make(seeded(seed), LOOSE, models=(own,))
        try:
            plan = case.plan("cost_greedy").plan
        except (Infeasible, NoPlanFound):
            continue
        solved += 1
        found = simulate(plan, model)
        assert simulate(found) == found
        if model == plan.cost_model:
            assert found == plan
    assert solved > len(seeds) / 3


def test_simulate_is_exact_for_twins_under_different_rules() -> None:
    """Rules decide where a table stands in sums; the sums must not change by their last bits."""
    twins = workload(*(table(f"t{i}", 1000, 24, 3.3) for i in range(13)), batch_size=7)
    for types in (("column_wise",), ("row_wise",), ("data_parallel",)):
        rules = tuple(TableRule(tables=f"t{i}", sharding_types=types) for i in (0, 3, 4, 8, 11))
        plan = Case(twins, cluster(3), Space(types=("table_wise", *types)), Constraints(rules=rules)).plan().plan
        assert simulate(plan) == plan


def _plan(model: str = "torchrec", **space) -> Plan:
    """A plan whose table is cut into uneven columns."""
    tables = workload(table("a", 1000, 24), table("b", 10, 4))
    case = Case(tables, cluster(2, 2), Space(**space), cost_model=model)
    placements = (
        Placement(table="a", sharding_type="column_wise", compute_kernel="fused", ranks=(0, 1, 1), widths=(16, 4, 4)),
        Placement(table="b", sharding_type="row_wise", compute_kernel="fused", ranks=(0, 1, 2, 3)),
    )
    plan = _hand_made(case, Case(case.workload, case.cluster, cost_model=model), placements)
    return replace(plan, bound=lower_bound(case.evaluator).bound)


@pytest.mark.parametrize("model", BOTH)
def test_a_plan_inside_of_its_space_has_a_gap(model: str) -> None:
    plan = simulate(_plan(model))
    assert plan.bound.value_s is not None
    assert plan.gap == plan.cost.total_s / plan.bound.value_s - 1


@pytest.mark.parametrize(
    "space",
    [
        {"types": ("table_wise", "row_wise")},
        {"types": ("column_wise", "table_wise")},
        {"widths": "torchrec"},
        {"kernels": ("dense",), "types": ("data_parallel",)},
    ],
)
@pytest.mark.parametrize("model", BOTH)
def test_a_plan_outside_of_its_space_has_a_price_and_no_gap(model: str, space) -> None:
    plan = _plan(model, **space)
    assert simulate(plan).gap is None
    assert simulate(plan).cost == plan.cost


@pytest.mark.parametrize(
    "rule",
    [
        TableRule(tables="a", min_width=8),
        TableRule(tables="b", sharding_types=("table_wise", "column_wise")),
        TableRule(tables="*", compute_kernels=("dense",)),
    ],
)
def test_a_plan_against_a_rule_has_a_price_and_no_gap(rule: TableRule) -> None:
    plan = _plan()
    ruled = replace(plan, constraints=constraints_to_raw(Space(), Constraints(rules=(rule,))))
    assert simulate(ruled).gap is None
    assert simulate(ruled).cost == plan.cost


def test_a_cache_of_another_factor_has_a_price_and_no_gap() -> None:
    """A needless cache too: of 8 rows, as heavy as the table itself."""
    tables = (table("a", 10**5, 64), table("b", 8, 64))
    for factor, legal in ((0.2, True), (0.3, False)):
        space = Space(kernels=("fused", "fused_uvm_caching"), cache_factors=(0.2,))
        case = Case(workload(*tables), cluster(2, ddr_bytes_per_host=10**9), space)
        cached = tuple(
            Placement(
                table=name, sharding_type="table_wise", compute_kernel="fused_uvm_caching", ranks=(0,),
                cache=Cache(load_factor=factor),
            )
            for name in "ab"
        )  # fmt: skip
        plan = simulate(replace(case.plan().plan, placements=cached))
        assert (plan.gap is not None) == legal
        assert plan.cost.total_s > case.plan().plan.cost.total_s


def test_a_plan_over_capacity_has_a_price_and_no_gap() -> None:
    plan = _plan()
    full = max(device.hbm_bytes for device in plan.cost.per_device)
    for hbm, legal in ((full, True), (full - 1, False), ((full - 1, full, full, full), False)):
        small = simulate(replace(plan, cluster=replace(plan.cluster, hbm_bytes=hbm)))
        assert (small.gap is not None) == legal
        assert bool(small.cost.overfull) != legal
        assert small.cost.total_s == plan.cost.total_s


def test_a_plan_over_host_memory_has_no_gap() -> None:
    case = Case(workload(table("a", 100, 8)), cluster(2, ddr_bytes_per_host=10**6), Space(kernels=("fused_uvm",)))
    plan = case.plan().plan
    assert simulate(plan).gap is not None
    assert simulate(replace(plan, cluster=replace(plan.cluster, ddr_bytes_per_host=10))).gap is None


# --- placements of one's own ---------------------------------------------------------------------------------------


def _runs(plan: Plan) -> bool:
    """Whether TorchRec runs it: placements are drawn table by table, and sequence tables share one width."""
    try:
        check_placements(plan.placements, plan.workload, plan.cluster)
    except PlanMismatch:
        return False
    return True


@settings(max_examples=10)
@given(PRICED)
def test_given_placements_cost_what_a_plan_of_them_costs(priced: tuple[Case, Plan]):
    cost_the_same(priced)


@pytest.mark.soak
@given(PRICED)
def test_many_given_placements_cost_what_plans_of_them_cost(priced: tuple[Case, Plan]):
    cost_the_same(priced)


def cost_the_same(priced: tuple[Case, Plan]) -> None:
    """Price placements as they are given, and as a plan."""
    case, made = priced
    assume(_runs(made))
    found = price_given(
        case.workload, case.cluster, made.placements[::-1],
        cost_model=case.cost_model, constraints=case.constraints, space=case.space,
    )  # fmt: skip
    said = simulate(made)
    assert (found.placements, found.cost, found.bound, found.gap) == (said.placements, said.cost, said.bound, said.gap)


def test_the_default_space_of_given_placements_holds_them():
    work, machines = workload(table("a", rows=10_000, dim=64)), replace(cluster(), ddr_bytes_per_host=2**30)
    cached = Placement(
        table="a", sharding_type="table_wise", compute_kernel="fused_uvm_caching", ranks=(0,),
        cache=Cache(load_factor=0.3),
    )  # fmt: skip
    found = price_given(work, machines, [cached])
    assert found.gap is not None
    assert "0.3" in found.bound.space
    with pytest.raises(PlanMismatch, match="'a'"):
        price_given(work, machines, [])


def test_a_plan_is_priced_alike_without_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    _, plan = _priced(seeded(3))
    again, given = simulate(plan), price_given(plan.workload, plan.cluster, plan, cost_model=plan.cost_model)
    assert again.bound.value_s is not None
    monkeypatch.setattr("recsmith.planning.simulate.lower_bound", None)  # nobody may ask it
    without = simulate(plan, bound=False)
    assert (without.bound.value_s, without.gap) == (None, None)
    assert without.bound.space == again.bound.space
    assert replace(without, bound=again.bound, gap=again.gap) == again
    told = price_given(plan.workload, plan.cluster, plan, cost_model=plan.cost_model, bound=False)
    assert replace(told, bound=given.bound, gap=given.gap) == given


def test_a_file_that_was_edited_has_the_price_of_its_placements(tmp_path: Path) -> None:
    """The digest is taken out to accept an edit; the cost in the file is then of what it was before."""
    made = recsmith.plan(workload(table("a", 10**5, 32), table("b", 10**5, 32)), cluster(), planner="size_greedy").plan
    raw = plan_to_raw(made)
    for each in raw["placements"]:
        each["ranks"] = [0]
    del raw["digest"], raw["shards"]
    file = tmp_path / "edited.json"
    file.write_text(dump_json(raw))
    told = simulate(file)
    assert told.cost.total_s > made.cost.total_s
    assert load_priced(file).cost == told.cost
    change = recsmith.diff(made, file)
    assert (change.before_s, change.after_s) == (made.cost.step_s, told.cost.step_s)
    assert f'"total_s":{told.cost.step_s}' in report_html(file).replace(": ", ":")
    assert recsmith.load_plan(file).placements == told.placements  # a job takes the edit as it is
