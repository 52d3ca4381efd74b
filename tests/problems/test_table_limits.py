"""Pieces wider than FBGEMM's CUDA kernels take: no planner places them, no bound counts them, no file holds them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.amounts import seeds, some
from support.bounds import bound_of
from support.build import cluster, placed, plan_of, table, workload
from support.cases import BOTH, Case, seeded, small_case

from recsmith import UsageError, load_plan, plan, replan, save_plan
from recsmith.clusters import Cluster
from recsmith.errors import Infeasible, NoPlanFound, PlanMismatch
from recsmith.files import dump_json, encode
from recsmith.planning.registry import PLANNERS
from recsmith.plans import Plan, check_placements, plan_to_raw, wide_tables
from recsmith.problems import Constraints, Pin, Space, TableRule, build_problem
from recsmith.sharding import NOTED_ON_CUDA, SHARDING_TYPES, base

WIDE, WIDEST = 4096, 2048
WORK = workload(table("a", 5000, 64), table("wide", 2000, WIDE), table("half", 2000, 1536), batch_size=64)
LEARNED = ("dreamshard", "autoshard")  # their weights are for whole GPUs of the catalogue


def on_cpu(machines: Cluster) -> Cluster:
    return replace(machines, device=replace(machines.device, kind="cpu"))


def widths_of(made: Plan) -> dict[str, tuple[int, ...]]:
    dims = {each.name: each.embedding_dim for each in made.workload.tables}
    return {each.table: each.widths_of(dims[each.table]) for each in made.placements}


@pytest.mark.parametrize("planner", [name for name in PLANNERS if name not in LEARNED])
def test_every_planner_splits_what_is_too_wide_for_cuda(planner: str) -> None:
    made = plan(WORK, cluster(local=2), planner=planner, iterations=2).plan
    assert max(max(widths) for widths in widths_of(made).values()) <= WIDEST
    assert sum(widths_of(made)["wide"]) == WIDE
    assert set(wide_tables(made)) == {name for name, widths in widths_of(made).items() if max(widths) > NOTED_ON_CUDA}


@pytest.mark.parametrize("planner", ["auto", "ldm", "cost_greedy"])
def test_on_cpu_any_width_runs(planner: str) -> None:
    work = workload(table("wide", 2000, WIDE))
    made = plan(work, on_cpu(cluster(local=1)), space=Space(types=("table_wise",)), planner=planner).plan
    assert widths_of(made) == {"wide": (WIDE,)}
    assert not wide_tables(made)


@pytest.mark.parametrize("kind", SHARDING_TYPES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("dim", [WIDEST, WIDEST + 4, 3 * WIDEST])
def test_types_that_keep_columns_together_refuse_tables_that_are_too_wide(kind: Any, dim: int) -> None:
    """grid_shard has a piece a host at most."""
    machines, one = cluster(hosts=2), table("t", 1000, dim)
    refusal = kind.refusal(one, machines)
    most = {"column_wise": dim // 4, "table_column_wise": dim // 4, "grid_shard": 2}.get(kind.name, 1)
    assert (refusal is None) == (most * WIDEST >= dim)
    assert refusal is None or "at most 2,048" in refusal
    assert kind.refusal(one, on_cpu(machines)) is None


@pytest.mark.parametrize("kind", ["column_wise", "table_column_wise"])
def test_a_placement_with_a_piece_that_is_too_wide_is_refused(kind: str) -> None:
    work = workload(table("t", 1000, WIDE))
    wide, legal = placed("t", kind, [0, 1], (WIDEST + 4, WIDEST - 4)), placed("t", kind, [0, 1], (WIDEST, WIDEST))
    check_placements([legal], work, cluster())
    check_placements([wide], work, on_cpu(cluster()))
    with pytest.raises(PlanMismatch, match=r"table 't' .*2052 columns; FBGEMM's CUDA kernels take at most 2,048"):
        check_placements([wide], work, cluster())


def test_a_plan_file_that_breaks_the_rule_is_refused_by_its_name(tmp_path: Path) -> None:
    machines = on_cpu(cluster())
    made = plan_of(workload(table("t", 1000, WIDE)), machines, placed("t", "table_wise", [1]))
    save_plan(made, tmp_path / "cpu.json")
    assert load_plan(tmp_path / "cpu.json").digest == made.digest
    raw: Any = plan_to_raw(made) | {"digest": ""}
    raw["cluster"]["device"] = encode(replace(machines.device, kind="cuda"))
    (tmp_path / "cuda.json").write_text(dump_json(raw))
    with pytest.raises(PlanMismatch, match=r"cuda\.json': table 't' \(table_wise\).*4096 columns.*at most 2,048"):
        load_plan(tmp_path / "cuda.json")


def test_a_plan_that_is_changed_keeps_the_rule() -> None:
    old = plan(workload(table("a", 5000, 64), table("t", 2000, WIDE)), cluster()).plan
    made = replan(old, workload=WORK, max_moved="100%", iterations=2).result.plan
    assert max(max(widths) for widths in widths_of(made).values()) <= WIDEST


def test_rules_that_leave_only_wide_pieces_say_so() -> None:
    pin = Constraints(rules=(TableRule(tables="wide", pin=Pin(sharding_type="table_wise", ranks=(0,))),))
    with pytest.raises(UsageError, match="at most 2,048"):
        build_problem(WORK, cluster(), constraints=pin)
    whole = Constraints(rules=(TableRule(tables="wide", sharding_types=("table_wise", "row_wise")),))
    with pytest.raises(Infeasible, match=r"'wide' sharding_types .*4096 columns in one piece; .*at most 2,048"):
        plan(WORK, cluster(), constraints=whole)
    narrow = Constraints(rules=(TableRule(tables="wide", min_width=WIDEST + 4),))
    with pytest.raises(UsageError, match=r"table 'wide' .*pieces of at most 2,048"):
        build_problem(WORK, cluster(), constraints=narrow)
    exact = replace(WORK, optimizer="rowwise_adagrad")
    with pytest.raises(UsageError, match=r"table 'wide' .*at most 2,048"):
        build_problem(exact, cluster(), constraints=Constraints(keep_exact=True))
    only = Constraints(rules=(TableRule(tables="wide", widths=(1024, WIDE)),))
    assert set(widths_of(plan(WORK, cluster(), constraints=only).plan)["wide"]) == {1024}


@pytest.mark.parametrize("model", BOTH)
def test_bounds_and_the_exact_planner_keep_a_narrow_limit(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables on kernels that take 8 columns: no planner beats the exact one, which no bound exceeds."""
    monkeypatch.setattr(base, "WIDEST_ON_CUDA", 8)
    limited = 0
    for seed in seeds(30, 60):
        case = replace(small_case(seeded(seed), (3.0, 50.0), (model,)), constraints=Constraints())
        if max(each.embedding_dim for each in case.workload.tables) <= 8:
            continue
        try:
            best = case.plan("exact").plan
            others = [case.plan(name, iterations=3).plan for name in ("auto", "cost_greedy", "neuroshard")]
        except (UsageError, NoPlanFound, Infeasible):
            continue
        limited += 1
        for each in (best, *others):
            assert max(max(widths) for widths in widths_of(each).values()) <= 8, f"seed {seed}"
            assert each.cost.total_s >= best.cost.total_s * (1 - 1e-6), f"seed {seed}"
        bound = bound_of(Case(case.workload, case.cluster, case.space, case.constraints, case.cost_model))
        assert bound is None or bound <= best.cost.total_s * (1 + 1e-9), f"seed {seed}"
    assert limited > some(5, 10)
