"""Tables that rest while dense layers work: plans that fit so and not otherwise, choices of tables, and refusals."""

import re
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.build import placed, plan_of, table, workload

from recsmith import load_cluster, load_plan, plan, replan, simulate
from recsmith.analyses.step_memory import step_memory
from recsmith.clusters import Cluster, sharding_group
from recsmith.costs.published import error_of
from recsmith.errors import Infeasible, NoPlanFound, PlanMismatch, UsageError
from recsmith.planning.stashing import stash_of, step_with_copies
from recsmith.plans import Plan, check_placements, save_plan
from recsmith.problems import Constraints, Space, footprint_of, problem_of
from recsmith.problems.dense_bytes import Stashing
from recsmith.problems.memory_schedule import KINDS, PHASES
from recsmith.problems.stashing import FEW, choose_stash, exposed_seconds, with_stash
from recsmith.reports.plan_summary import step_words
from recsmith.reports.plan_words import overfull_phase_words, rest_words
from recsmith.units import format_time

MIB = 2**20
CACHED = "fused_uvm_caching"
TABLES = tuple(table(f"t{i}", rows=20_000 + 3000 * i, dim=64, pooling_factor=2.0) for i in range(6))  # 5 to 9 MiB each


def machine(hbm: int, reserve: int | None, kind: str = "h100:2") -> Cluster:
    return load_cluster(kind).with_memory(hbm, reserve)


def planned(hbm: int, reserve: int, *tables: Any, **words: Any) -> Plan:
    limits = Constraints(stash=Stashing(**words)) if words else None
    work = workload(*(tables or TABLES), batch_size=64, optimizer="rowwise_adagrad")
    return plan(work, machine(hbm, reserve), cost_model="torchrec", constraints=limits, iterations=3).plan


def test_a_job_that_fits_no_plan_fits_when_tables_rest():
    with pytest.raises(
        Infeasible, match=r"or --stash weights --activations 8MiB, if that much of the reserve is alive"
    ):
        planned(32 * MIB, 16 * MIB)
    assert planned(32 * MIB, 16 * MIB, activations=8 * MIB)
    with pytest.raises(Infeasible) as told:
        planned(20 * MIB, 16 * MIB)  # tables do not fit where nothing is reserved
    assert "--stash" not in str(told.value)
    made = planned(32 * MIB, 16 * MIB, activations=15 * MIB)
    found = step_memory(made)
    assert found.schedule.fits
    assert found.rests is not None
    assert found.rests.most <= 1.35 * found.rests.mean
    without = step_memory(replace(made, placements=tuple(replace(each, stash=None) for each in made.placements)))
    assert not without.schedule.fits
    assert without.schedule.when(without.schedule.fullest).startswith("dense")


def test_a_plan_whose_tables_no_longer_rest_is_told_the_phase_that_finds_no_room():
    made = planned(32 * MIB, 16 * MIB, activations=15 * MIB)
    assert overfull_phase_words(made) is None
    without = replace(made, placements=tuple(replace(each, stash=None) for each in made.placements))
    assert re.match(
        r"rank \d would need .* more memory than there is in phase 'dense", overfull_phase_words(without) or ""
    )


def test_nothing_rests_where_all_fits_anyway():
    made = planned(120 * MIB, 16 * MIB, activations=15 * MIB)
    assert stash_of(made) is None
    assert made.cluster.reserve_bytes == 16 * MIB


def test_the_bound_of_a_plan_that_stashes_is_no_higher_than_that_of_all_its_memory():
    made = planned(32 * MIB, 16 * MIB, activations=15 * MIB)
    roomy = planned(200 * MIB, 0)
    assert made.bound.value_s is not None
    assert made.bound.value_s <= made.cost.total_s
    assert roomy.cost.total_s <= made.cost.total_s * (1 + 1e-9)


def test_a_plan_that_stashes_is_written_read_priced_and_planned_anew(tmp_path: Any):
    made = planned(32 * MIB, 16 * MIB, activations=15 * MIB, dense_s=1.0)
    save_plan(made, tmp_path / "plan.json")
    read = load_plan(tmp_path / "plan.json")
    assert read == made
    assert simulate(read).placements == made.placements
    assert stash_of(read) == stash_of(made)
    file = tmp_path / "rules.yaml"
    file.write_text("schema: recsmith/constraints/1\nper_rank: [{max_tables: 100}]\n")
    for rules in (None, file):
        again = replan(made, constraints=rules, cost_model="torchrec", iterations=2).result.plan
        assert step_memory(again).schedule.fits
        assert stash_of(again) is not None


def test_copies_that_dense_layers_hide_are_free_and_others_are_weighed():
    fast = planned(32 * MIB, 16 * MIB, activations=15 * MIB, dense_s=1.0)
    rests = stash_of(fast)
    assert rests is not None
    assert rests.exposed_s == 0
    assert step_with_copies(fast) == fast.cost.total_s
    slow = planned(32 * MIB, 16 * MIB, activations=15 * MIB, dense_s=0.0)
    told = stash_of(slow)
    assert told is not None
    assert told.copy_s is not None
    assert step_with_copies(slow) == pytest.approx(slow.cost.total_s + 2 * told.copy_s)


def halves(hbm: int, reserve: int, *tables: Any, activations: int | None = None, **layout: Any) -> Plan:
    """A plan for one of two sharding groups of two devices."""
    job = load_cluster("h100:4").with_memory(hbm, reserve)
    limits = None if activations is None else Constraints(stash=Stashing(activations=activations))
    work = workload(*(tables or TABLES), batch_size=64, optimizer="rowwise_adagrad")
    group = sharding_group(job, 2, **layout)
    return plan(work, group, cost_model="torchrec", constraints=limits, iterations=3).plan


def test_replicas_that_are_fully_sharded_make_way_for_activations(tmp_path: Any):
    """Half of the weights and the share's buffer is there while dense layers work, whole weights and it before."""
    with pytest.raises(Infeasible):
        halves(34 * MIB, 16 * MIB)
    made = halves(34 * MIB, 16 * MIB, fully_sharded=True, activations=15 * MIB)
    assert all(each.stash is None for each in made.placements)
    memory = step_memory(made)
    schedule = memory.schedule
    assert memory.stated.reserve_bytes == 16 * MIB > (made.cluster.reserve_bytes or 0)
    assert schedule.fits
    weights = schedule.bytes[:, KINDS.index("weights"), :]
    at = {phase: weights[p] for p, phase in enumerate(PHASES)}
    np.testing.assert_array_equal(at["dense backward"], -(-at["input"] // 2))
    np.testing.assert_array_equal(at["embedding update"], at["input"] + at["dense backward"])
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == made
    with pytest.raises(PlanMismatch, match="hold one copy of weights between them"):
        with_stash(*needing(made, 30 * MIB))


def needing(made: Plan, more: int) -> tuple[Any, Any, Any]:
    """The problem of a plan whose activations are so much more, its placements and footprint."""
    problem = problem_of(made)
    stash = problem.constraints.stash
    assert stash is not None
    assert stash.dense is not None
    dense = replace(stash.dense, activations=stash.dense.activations + more)
    limits = replace(problem.constraints, stash=replace(stash, dense=dense))
    footprint = footprint_of(problem, made.placements)
    return replace(problem, constraints=limits), made.placements, footprint


def test_shards_that_replicas_do_not_divide_are_copied_while_they_are_padded():
    group = sharding_group(load_cluster("h100:8x3").with_memory(80 * MIB, 0), 8, fully_sharded=True)
    assert group.job_world_size == 3 * group.world_size
    work = workload(table("odd", rows=20_000, dim=4, pooling_factor=2.0), batch_size=64)
    made = plan_of(work, group, placed("odd", "table_wise", [0]))
    weights = 20_000 * 4 * 4
    totals = step_memory(made).schedule.bytes[:, KINDS.index("temporaries"), 0]
    assert totals[PHASES.index("output all-to-all")] == weights
    assert totals[PHASES.index("lookup")] == 0


@pytest.mark.parametrize(
    ("layout", "kernels", "on", "told"),
    [
        ({"steps_per_sync": 2}, ("fused",), "h100:4", "averaged in every step"),
        ({}, ("fused", "fused_uvm"), "h100:4", "replicas drift apart"),
        ({}, ("fused",), "cpu:4", "need CUDA streams"),
    ],
)
def test_what_fully_sharded_replicas_do_not_hold_is_refused(layout: dict[str, Any], kernels: Any, on: str, told: str):
    work = workload(*TABLES, batch_size=64, optimizer="rowwise_adagrad")
    job = replace(load_cluster(on), ddr_bytes_per_host=2**33)

    def planned_so() -> None:
        plan(work, sharding_group(job, 2, fully_sharded=True, **layout), space=Space(kernels=kernels))

    with pytest.raises(UsageError, match=told):
        planned_so()


def test_tables_in_host_memory_and_replicas_apart_do_not_go_together():
    with pytest.raises(UsageError, match="take --fully-sharded"):
        halves(34 * MIB, 16 * MIB, activations=15 * MIB)


def test_tables_fill_ranks_alike_where_copies_are_exposed():
    many = (table(f"t{i}", rows=2000, dim=64, pooling_factor=2.0) for i in range(80))  # 20 MiB a rank
    made = planned(32 * MIB, 16 * MIB, *many, activations=15 * MIB)
    rests = stash_of(made)
    assert rests is not None
    assert rests.most <= 1.05 * rests.mean


def test_copies_that_are_exposed_stand_beside_the_step():
    slow = planned(32 * MIB, 16 * MIB, activations=15 * MIB, dense_s=0.0)
    copies, told = step_with_copies(slow) - slow.cost.step_s, step_words(slow, error_of(slow))
    assert told.startswith(f"{format_time(step_with_copies(slow))}: {format_time(slow.cost.step_s)} and up to ")
    assert f"{format_time(copies)} of copies" in told
    rests = [each.table for each in slow.placements if each.stash]
    assert f"({', '.join(rests)})" in (rest_words(slow) or "")
    fast = planned(32 * MIB, 16 * MIB, activations=15 * MIB, dense_s=1.0)
    assert "copies" not in step_words(fast, error_of(fast))


def test_ranks_are_filled_more_alike_so_that_less_rests():
    """At an unevenness of 1% alone, 0.46 MiB rest here."""
    large = tuple(table(f"large{i}", rows=40_000, dim=64) for i in range(5))  # 9.8 MiB each
    small = tuple(table(f"small{i}", rows=rows, dim=64) for i, rows in enumerate((3000, 700, 400, 200, 100)))
    made = planned(42 * MIB + MIB // 4, 17 * MIB, *large, *small, activations=15 * MIB, dense_s=0.0)
    rests = stash_of(made)
    assert rests is None or rests.most <= MIB // 4


def test_activations_larger_than_a_device_are_refused_by_name():
    limits = Constraints(stash=Stashing(activations=90 * MIB))
    work = workload(*TABLES, batch_size=64, optimizer="rowwise_adagrad")
    with pytest.raises(Infeasible, match=r"activations of 90 MiB .* need more than the 32 MiB of a device"):
        plan(work, machine(32 * MIB, None), constraints=limits)


def test_what_can_never_fit_names_the_phase():
    with pytest.raises(Infeasible, match="in phase 'embedding update', in which nothing rests"):
        planned(16 * MIB, 12 * MIB, activations=8 * MIB)


def test_hosts_have_room_for_what_rests():
    work = workload(*TABLES, batch_size=64, optimizer="rowwise_adagrad")
    cluster = replace(machine(32 * MIB, 16 * MIB), ddr_bytes_per_host=2 * MIB)
    limits = Constraints(stash=Stashing(activations=15 * MIB))
    with pytest.raises(NoPlanFound, match="host's memory"):
        plan(work, cluster, cost_model="torchrec", constraints=limits, iterations=2)


@pytest.mark.parametrize(
    ("what", "hbm", "reserve", "kind", "told"),
    [
        ({"what": "weights_and_state"}, 32 * MIB, 16 * MIB, "h100:2", "TorchRec 1.8 moves weights"),
        ({"activations": 17 * MIB}, 32 * MIB, 16 * MIB, "h100:2", "a part of the reserve"),
    ],
)
def test_refusals(what: dict[str, Any], hbm: int, reserve: int, kind: str, told: str):
    work = workload(*TABLES, batch_size=64, optimizer="rowwise_adagrad")
    with pytest.raises(UsageError, match=told):
        plan(work, machine(hbm, reserve, kind), constraints=Constraints(stash=Stashing(**what)))


@pytest.mark.parametrize(
    ("kernel", "stash", "told"),
    [("fused_uvm", "weights", "only fused"), ("fused", "weights_and_state", "TorchRec 1.8")],
)
def test_placements_that_cannot_rest_are_refused(kernel: str, stash: Any, told: str):
    work = workload(table("a", rows=100))
    one = replace(placed("a", "table_wise", [0], kernel=kernel), stash=stash)
    with pytest.raises(PlanMismatch, match=told):
        check_placements((one,), work, load_cluster("h100:2"))


def test_a_stash_changes_the_digest_and_its_absence_does_not():
    work, cluster = workload(table("a", rows=100)), load_cluster("h100:2")
    plain = plan_of(work, cluster, placed("a", "table_wise", [0]))
    rests = plan_of(work, cluster, replace(placed("a", "table_wise", [0]), stash="weights"))
    from recsmith.plans.files import digest_of

    one, other = (digest_of(each.workload, each.cluster, {}, each.placements) for each in (plain, rests))
    assert one != other


# --- which tables ------------------------------------------------------------------------------------------------

AMOUNTS = st.integers(0, 40)


def best_by_hand(freed: np.ndarray, need: np.ndarray) -> tuple[int, int] | None:
    sums = [np.array(pick) @ freed for pick in product((0, 1), repeat=len(freed))]
    return min(((int(each.max()), int(each.sum())) for each in sums if (each >= need).all()), default=None)


@given(
    st.lists(st.lists(AMOUNTS, min_size=3, max_size=3), min_size=1, max_size=7),
    st.lists(AMOUNTS, min_size=3, max_size=3),
)
@settings(max_examples=100)
def test_of_few_tables_the_best_choice_is_found(freed: list[list[int]], need: list[int]):
    sizes, needs = np.array(freed), np.array(need)
    found, best = choose_stash(sizes, needs), best_by_hand(sizes, needs)
    assert (found is None) == (best is None)
    if found is not None and needs.max() > 0:
        sums = sizes[found].sum(axis=0)
        assert (sums >= needs).all()
        assert (int(sums.max()), int(sums.sum())) == best


@pytest.mark.parametrize("seed", range(5))
def test_of_many_tables_enough_are_taken_and_ranks_are_even(seed: int):
    draw = np.random.default_rng(seed)
    freed = np.zeros((200, 8), dtype=np.int64)
    freed[np.arange(200), np.arange(200) % 8] = draw.integers(1, 100, 200)
    need = np.full(8, freed.sum(axis=0).min() // 2)
    assert len(freed) > FEW
    found = choose_stash(freed, need)
    assert found is not None
    sums = freed[found].sum(axis=0)
    assert (sums >= need).all()
    assert sums.max() <= 1.05 * sums.mean()


def test_copies_hide_behind_the_shorter_and_the_longer_half():
    assert exposed_seconds(1.0, 3.0) == 0
    assert exposed_seconds(1.0, 0.0) == 2.0
    assert exposed_seconds(1.0, 1.5) == pytest.approx(0.5)


def test_copies_that_are_most_of_a_step_are_told_with_what_would_be_shorter():
    work = workload(*TABLES, batch_size=64, optimizer="rowwise_adagrad")
    limits = Constraints(stash=Stashing(activations=15 * MIB, dense_s=1e-6))
    one = machine(32 * MIB, 16 * MIB)
    dear = plan(work, one, cost_model="torchrec", constraints=limits, iterations=3)
    beside = plan(work, one, cost_model="torchrec", iterations=3, space=Space(kernels=("fused", "dense", CACHED)))
    assert beside.plan.cost.step_s < step_with_copies(dear.plan)
    (told,) = [each for each in dear.left_out if "--kernels" in each]
    assert told.startswith(f"without --stash, --kernels fused,dense,{CACHED} keeps tables in host memory")
    assert told.endswith(f"its step is {format_time(beside.plan.cost.step_s)}, predicted")
    assert "so resting hardly pays; more devices" in (rest_words(dear.plan) or "")
    hidden = replace(limits, stash=Stashing(activations=15 * MIB, dense_s=1.0))
    found = plan(work, one, cost_model="torchrec", constraints=hidden, iterations=3)
    assert not [each for each in found.left_out if "--kernels" in each]
    assert "hardly pays" not in (rest_words(found.plan) or "hardly pays")
