"""The memory of a step over its time: phases by hand, sums that hold, and the measured figure on CPU as its peak."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from support.build import placed, plan_of, table, workload
from support.cases import Case, drawn, medium_case, random_placements, seeded

from recsmith import load_cluster
from recsmith.analyses.step_memory import step_memory
from recsmith.errors import UsageError
from recsmith.plans import Plan
from recsmith.problems import constraints_to_raw, footprint_of, problem_holding, problem_of
from recsmith.problems.dense_bytes import DenseBytes
from recsmith.problems.footprint import memory_taken
from recsmith.problems.memory_schedule import KINDS, PHASES, MemorySchedule, memory_schedule
from recsmith.problems.rank_bytes import predicted_bytes

BATCH, DIM, IDS = 64, 32, 4


def schedule_of(plan: Plan, dense: DenseBytes) -> MemorySchedule:
    problem = problem_holding(problem_of(plan), plan.placements)
    return memory_schedule(problem, plan.placements, footprint_of(problem, plan.placements), dense)


def two_ranks(kind: str = "h100:2", **rest: object) -> Plan:
    a, b = (table(name, rows=1000, dim=DIM, pooling_factor=IDS) for name in "ab")
    work = workload(a, b, batch_size=BATCH, optimizer="adagrad", **rest)
    return plan_of(work, load_cluster(kind), placed("a", "table_wise", [0]), placed("b", "table_wise", [1]))


def test_phases_hold_what_a_step_by_hand_holds():
    dense = DenseBytes(fixed=1000, gradients=200, activations=5000, temporaries=300)
    made = schedule_of(two_ranks(), dense)
    weights, state = 1000 * DIM * 4, 1000 * DIM * 4
    bags = 2 * BATCH  # of both ranks
    inputs = bags * (IDS * 8 + 8) + 2 * BATCH * (IDS * 8 + 16)  # of a rank's shard, and of its own batch
    looked_up, returned = bags * DIM * 4, 2 * BATCH * DIM * 4
    always = weights + state + inputs + 1000
    expected = {
        "input": 0, "index all-to-all": 0, "lookup": looked_up, "output all-to-all": looked_up + returned,
        "dense forward": returned + 5000, "dense backward": 2 * returned + 200,
        "gradient all-to-all": looked_up + returned + 2 * returned + 200,
        "embedding update": looked_up + returned + bags * IDS * 36 + 200, "dense optimizer": 500,
    }  # fmt: skip
    for rank in range(2):
        assert {phase: int(made.totals[p, rank]) - always for p, phase in enumerate(PHASES)} == expected


def test_what_rests_is_away_in_dense_phases_alone():
    plan = two_ranks()
    problem = problem_of(plan)
    footprint, dense = footprint_of(problem, plan.placements), DenseBytes(activations=10**6)
    away = np.array([1000, 2000])
    before = memory_schedule(problem, plan.placements, footprint, dense)
    after = memory_schedule(problem, plan.placements, footprint, dense, away)
    fell = before.bytes - after.bytes
    assert fell[:, KINDS.index("weights")].sum() == fell.sum() == 2 * away.sum()
    assert {PHASES[p] for p in np.flatnonzero(fell.sum(axis=(1, 2)))} == {"dense forward", "dense backward"}


@given(drawn(medium_case))
@settings(max_examples=25)
def test_no_phase_holds_more_than_the_sum_of_a_plan_and_its_reserve(case: Case):
    if case.constraints.memory != "real":
        case = replace(case, constraints=replace(case.constraints, memory="real"))
    plan = plan_of(case.workload, case.cluster, *random_placements(seeded(3), case))
    plan = replace(plan, constraints=constraints_to_raw(case.space, case.constraints))
    problem = problem_holding(problem_of(plan), plan.placements)
    footprint = footprint_of(problem, plan.placements)
    dense = DenseBytes(fixed=11, gradients=7, activations=10**6, temporaries=5, batch_apart=False)
    made = memory_schedule(problem, plan.placements, footprint, dense)
    beside, most = dense.kept_free(0)
    assert (made.bytes >= 0).all()
    assert (made.peak <= memory_taken(problem, footprint)[0] + most).all()
    rested = np.array([phase not in ("dense forward", "dense backward") for phase in PHASES])
    assert (made.totals[rested].max(axis=0) <= memory_taken(problem, footprint)[0] + beside).all()


@pytest.mark.parametrize(("kind", "batch"), [("table_wise", 64), ("table_wise", 4096), ("row_wise", 64)])
def test_on_cpu_the_peak_is_the_figure_that_measurements_hold(kind: str, batch: int):
    a = table("a", rows=5000, dim=DIM, pooling_factor=IDS)
    ranks = [0] if kind == "table_wise" else [0, 1]
    plan = plan_of(workload(a, batch_size=batch), load_cluster("cpu:2"), placed("a", kind, ranks))
    made = schedule_of(plan, DenseBytes())
    for rank, (tables, own) in enumerate(predicted_bytes(plan)):
        assert made.peak[rank] == pytest.approx(tables + own, abs=8)


def test_explained_memory_takes_a_stated_reserve_as_alive_in_every_phase():
    plan = two_ranks()
    plan = replace(plan, cluster=plan.cluster.with_memory(2**30, 2**20))
    found = step_memory(plan)
    assert (found.schedule.bytes[:, KINDS.index("dense layers")] == 2**20).all()
    assert found.rests is None
    assert found.schedule.fits
    assert found.schedule.when(0) == "embedding update"


def test_explained_memory_knows_no_phases_of_torchrec():
    with pytest.raises(UsageError, match="TorchRec's accounting"):
        step_memory(replace(two_ranks(), constraints={"memory": "torchrec"}))
