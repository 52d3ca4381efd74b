"""What plans keep free for the rest of a plain DLRM, where nobody says how much."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from support.build import cluster, table, workload

from recsmith import load_cluster, load_workload, plan, replan
from recsmith.analyses.step_memory import step_memory
from recsmith.errors import Infeasible
from recsmith.prediction.models import load_model
from recsmith.problems import build_problem
from recsmith.problems.history_layers import HistoryLayers, histories_of, history_activations
from recsmith.problems.memory import batch_bytes
from recsmith.problems.plain_reserve import kept_estimate, plain_dense, plain_reserve
from recsmith.workloads import Feature, Workload

GIB = 2**30


def test_only_a_gpu_of_which_neither_memory_nor_reserve_is_stated_keeps_the_estimate():
    tables, named = load_workload("dlrm-v2"), load_cluster("h100:8")
    estimate = plain_reserve(tables, named)
    assert estimate is not None
    kept = {
        "named": build_problem(tables, named).cluster.reserve_bytes,
        "stated": build_problem(tables, named.with_memory(reserve_bytes=GIB)).cluster.reserve_bytes,
        "none": build_problem(tables, named.with_memory(reserve_bytes=0)).cluster.reserve_bytes,
        "memory": build_problem(tables, named.with_memory(60 * GIB)).cluster.reserve_bytes,
        "built": build_problem(workload(), cluster()).cluster.reserve_bytes,
        "cpu": build_problem(workload(), load_cluster("cpu:2")).cluster.reserve_bytes,
    }
    assert kept == {"named": estimate.total, "stated": GIB, "none": 0, "memory": 0, "built": 0, "cpu": 0}


def test_dense_layers_are_those_of_torch():
    torch = pytest.importorskip("torch")
    tables = workload(table("a", dim=32), table("b", dim=16), batch_size=1)

    def layers(*sizes: int) -> list[Any]:
        return [torch.nn.Linear(have, give) for have, give in pairwise(sizes)]

    model = torch.nn.ModuleList([*layers(13, 512, 256, 32), *layers(32 + 32 + 16, 1024, 1024, 512, 256, 1)])
    bytes_of_weights = sum(each.numel() * each.element_size() for each in model.parameters())
    found = plain_reserve(tables, load_cluster("h100:1"))
    assert found is not None
    assert found.dense == 5 * bytes_of_weights


def test_a_batch_twice_as_large_takes_twice_as_much_and_a_sequence_has_no_layers():
    one, two = (plain_reserve(workload(batch_size=size), load_cluster("h100:2")) for size in (1_000, 2_000))
    assert one is not None
    assert two is not None
    assert two.batch == pytest.approx(2 * one.batch, rel=1e-6)
    assert two.dense == one.dense
    sequences = plain_reserve(workload(replace(table("s"), pooling="none"), optimizer="sgd"), load_cluster("h100:2"))
    assert sequences is not None
    assert sequences.dense < one.dense


def test_it_is_cut_at_15_percent_of_the_device_and_says_so():
    features = tuple(Feature(name=f"f{number}", pooling_factor=1.0) for number in range(600))
    wide = workload(replace(table("a", dim=512), features=features), batch_size=65_536)
    named = load_cluster("h100:8")
    found = plain_reserve(wide, named)
    assert found is not None
    assert found.total == int(min(named.hbm_per_rank) * 0.15) < found.needed
    kept = build_problem(wide, named).cluster
    assert "at most 15% of it, where a plain DLRM needs " in str(kept_estimate(wide, kept))


def heavy(count: int) -> Workload:
    """Tables of 1.5 GiB of weights each."""
    return workload(*(table(f"t{number}", 3_200_000, 128) for number in range(count)), optimizer="sgd")


def test_a_plan_says_what_it_keeps_and_keeps_it():
    tables = heavy(90)
    made = plan(tables, "h100:2", planner="cost_greedy").plan
    estimate = plain_reserve(tables, made.cluster)
    assert estimate is not None
    assert kept_estimate(made.workload, made.cluster) == estimate
    assert all(
        device.hbm_bytes <= device.hbm_capacity_bytes == load_cluster("h100:2").hbm_per_rank[0] - estimate.total
        for device in made.cost.per_device
    )


def test_tables_that_fit_only_without_it_are_refused_with_that_way_out():
    with pytest.raises(Infeasible, match=r"Checked to work: --reserve 0;"):
        plan(heavy(102), "h100:2", planner="cost_greedy")
    assert plan(heavy(102), load_cluster("h100:2").with_memory(reserve_bytes=0), planner="cost_greedy").plan


def test_an_estimate_by_when_it_is_alive_adds_up_to_the_reserve():
    work, machine = load_workload("dlrm-v2"), load_cluster("h100:8")
    found, dense = plain_reserve(work, machine), plain_dense(work, machine)
    assert found is not None
    assert dense is not None
    whole = dense.kept_free(batch_bytes(work, machine.world_size))[1]
    assert abs(whole - found.total) <= 4  # a fifth of dense layers is a whole number of bytes


def test_layers_over_histories_are_those_that_are_predicted_and_are_not_cut():
    model, work = load_model("dlrm-v4"), load_workload("dlrm-v4")
    layers = HistoryLayers()
    assert (layers.blocks, layers.streams) == (model.blocks, model.output_streams)
    found = histories_of(work, layers)
    assert found is not None
    assert found.sequences == len(model.joined)
    assert found.width == model.heads * model.attention_dim == model.heads * model.linear_dim
    # by hand, in times 512 columns: three sequences by 3, three blocks by 3, and 12 of the backward pass of one
    assert history_activations(found, layers, 1024) == 1024 * 2663 * 512 * 2 * (9 + 9 + 12)
    kept = build_problem(work, load_cluster("b200:8")).cluster
    assert (kept.reserve_bytes or 0) > history_activations(found, layers, 1024) > 0.15 * kept.hbm_per_rank[0]


def test_beside_pooled_tables_the_model_is_taken_for_a_dlrm():
    rows = replace(table("s", dim=512), pooling="none", features=(Feature(name="s", pooling_factor=2663.0),))
    for tables, histories in ((workload(rows), True), (workload(rows, table("p")), False)):
        found = plain_reserve(tables, load_cluster("h100:8"))
        assert found is not None
        assert bool(found.positions) == histories


@pytest.mark.parametrize("dedup", ["off", "on"])
def test_every_phase_of_a_step_has_room_beside_histories(dedup: Any):
    made = plan(replace(load_workload("dlrm-v4"), index_dedup=dedup), "b200:8", planner="cost_greedy").plan
    memory = step_memory(made)
    assert memory.schedule.fits
    assert memory.dense.activations > 0.4 * made.cluster.hbm_per_rank[0]


def test_histories_that_leave_no_room_are_refused_with_fewer_samples_which_work():
    work = load_workload("dlrm-v4")
    with pytest.raises(
        Infeasible, match=r"MLPerf's HSTU.*state a reserve of your own .*Checked to work: --batch-size 512;"
    ) as found:
        plan(work, "h200:8", planner="cost_greedy")
    assert "--reserve 0" not in str(found.value)
    fewer = plan(replace(work, batch_size=512), "h200:8", planner="cost_greedy").plan
    with pytest.raises(Infeasible, match=r"offer 480"):  # as many samples as before need their own reserve again
        replan(fewer, workload=work)
