"""All-to-alls of simulated links around kernels, and what the learned model of them says."""

import importlib
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from support.build import cluster, placed, plan_of, table, workload
from support.verified import planned

from recsmith.clusters import load_cluster
from recsmith.plans import Plan
from recsmith.verifying import collectives as room
from recsmith.verifying.collectives import SimulatedCollectives, exchanges_of, measure_collectives, not_measured


def split() -> Plan:
    work = workload(table("a", dim=32), table("b", dim=64), batch_size=10)
    return plan_of(work, cluster(), placed("a", "table_wise", (1,)), placed("b", "column_wise", (0, 1), (48, 16)))


def test_each_rank_sends_its_columns_to_every_rank():
    forward, backward = exchanges_of(split())
    assert forward.width == backward.width == (48, 48)
    assert forward.elements.tolist() == [[480, 480], [480, 480]]
    uneven = exchanges_of(replace(split(), placements=split().placements[:1]))
    assert uneven[0].elements.tolist() == [[0, 0], [320, 320]]
    assert uneven[1].elements.tolist() == [[0, 320], [0, 320]]


def test_where_ranks_have_a_core_each_they_are_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "free_cores", lambda: 2)
    assert not_measured(split(), "cpu") == ""


@pytest.mark.parametrize("hardware", ["cuda", "cuda:h200"])
def test_beside_a_gpu_ranks_are_counted_by_gpus(monkeypatch: pytest.MonkeyPatch, hardware: str):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(room, "free_cores", lambda: 64)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert not_measured(split(), hardware) == "2 ranks outnumber the GPUs that may be used, 1"


def test_why_the_cost_models_are_taken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "free_cores", lambda: 2)
    plan = split()
    rows = plan_of(workload(table("a")), cluster(), placed("a", "row_wise", (0, 1)))
    alone = plan_of(workload(table("a")), cluster(local=1), placed("a", "table_wise", (0,)))
    halves = replace(plan, workload=replace(plan.workload, comm_dtype="fp16"))
    many = plan_of(workload(table("a")), cluster(local=4), placed("a", "table_wise", (0,)))
    assert "has other links than simulated:h100, or other hosts" in not_measured(plan, "simulated:h100")
    there = replace(plan, cluster=load_cluster("h100:2"))
    assert not_measured(there, "simulated:h100?noise=0.1") == ""
    assert "or other hosts" in not_measured(replace(plan, cluster=load_cluster("h100:1x2")), "simulated:h100")
    assert not_measured(many, "cpu") == "4 ranks outnumber the cores that may be used, 2"
    assert not_measured(alone, "cpu") == "one rank exchanges nothing"
    assert not_measured(rows, "cpu") == "row_wise (table 'a') does more than all-to-alls"
    assert not_measured(halves, "cpu").startswith("comm_dtype is fp16")


def test_plans_visits_ranks_and_ways_are_told_apart(monkeypatch: pytest.MonkeyPatch):
    """What a rank returns: visits one after the other, in each of them both exchanges of every plan."""

    def launched(function: str, words: dict[str, Any], *, ranks: int, timeout_s: float) -> list[Any]:
        assert callable(getattr(importlib.import_module(function.partition(":")[0]), function.partition(":")[2]))
        assert words["visits"] == 3
        assert [each["forward"] for each in words["exchanges"]] == [True, False] * 2
        return [
            [[1000 * rank + 100 * visit + exchange for exchange in range(4)] for visit in range(3)] for rank in range(2)
        ]

    monkeypatch.setattr(room, "launch", launched)
    first, second = measure_collectives([split(), split()], visits=3)
    assert first.tolist() == [[[100 * v + 1000 * r, 100 * v + 1000 * r + 1] for r in range(2)] for v in range(3)]
    assert (second == first + 2).all()


@pytest.mark.soak  # tests/measuring/comm measures exchanges by default
@pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec")
def test_two_ranks_exchange_for_real():
    first, second = measure_collectives([split(), split()], visits=3)
    assert first.shape == second.shape == (3, 2, 2)
    assert (first > 0).all()


PLAN = planned("random", seed=3)
KERNELS = np.random.default_rng(0).uniform(1e-3, 2e-3, (2, 4, 2))  # two visits, four ranks


def test_links_without_noise_take_the_same_time_in_every_visit():
    links = SimulatedCollectives("simulated:h100")
    same = links.simulate(PLAN, np.stack([KERNELS[0]] * 2), seed=0)
    assert same.shape == (2, 4, 2)
    assert same[0].tolist() == same[1].tolist()
    assert (same[..., 1] > 0).all()
    noisy = SimulatedCollectives("simulated:h100?noise=0.1")
    assert noisy.simulate(PLAN, np.stack([KERNELS[0]] * 2), seed=0)[0].tolist() != same[0].tolist()


def test_ranks_are_medians_over_visits_and_hold_their_wait():
    links = SimulatedCollectives("simulated:h100")
    comm = links.simulate(PLAN, KERNELS, seed=0)
    found = links.by_rank(PLAN, KERNELS, comm)
    ready = KERNELS.sum(axis=2) + comm[..., 1]
    assert [each.rank for each in found] == [0, 1, 2, 3]
    assert [each.ready_s for each in found] == pytest.approx(np.median(ready, axis=0))
    waits = ready.max(axis=1, keepdims=True) - ready
    assert [each.forward_s for each in found] == pytest.approx(np.median(comm[..., 0] + waits, axis=0))


def test_a_gpu_without_a_model_predicts_nothing():
    links = SimulatedCollectives("simulated:a100-80")
    assert links.predict(PLAN, KERNELS[0]) is None
    assert links.by_rank(PLAN, KERNELS, links.simulate(PLAN, KERNELS, seed=0)) == ()
    predicted = SimulatedCollectives("simulated:h100").predict(PLAN, KERNELS[0])
    assert predicted is not None
    assert predicted.shape == (len(exchanges_of(PLAN)[0].width), 2)
