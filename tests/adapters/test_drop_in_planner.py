"""RecSmithPlanner in TorchRec's place: what it reads from a model, and that all ranks agree."""

from typing import Any

import pytest

from recsmith import Constraints, Space
from recsmith.errors import UsageError

pytestmark = pytest.mark.usefixtures("torchrec")


def _workload(**words: Any) -> Any:
    from support.jobs import TwoCollections, constraints
    from torchrec.distributed.sharding_plan import get_default_sharders

    from recsmith.torchrec import read_workload

    return read_workload(TwoCollections(), get_default_sharders(), batch_size=16, constraints=constraints(), **words)


def test_tables_features_and_collections_are_read_from_the_model() -> None:
    tables = {table.name: table for table in _workload().tables}
    assert set(tables) == {"pooled.t0", "weighted.t0", *(f"t{i}" for i in range(1, 6)), "s"}
    assert [f.name for f in tables["t1"].features] == ["shared", "f1"]
    assert [(f.pooling_factor, f.num_poolings) for f in tables["t1"].features] == [(3.0, 1.0), (0.5, 2.0)]
    assert tables["t1"].collection == "pooled"
    assert tables["weighted.t0"].weighted
    assert not tables["s"].pooled


def test_the_attached_optimizer_is_read_and_the_heaviest_counts() -> None:
    import torch
    from support.jobs import TwoCollections
    from torchrec.distributed.sharding_plan import get_default_sharders
    from torchrec.optim import RowWiseAdagrad
    from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

    from recsmith.torchrec import read_workload

    model = TwoCollections()
    assert read_workload(model, get_default_sharders(), batch_size=16).optimizer == "sgd"
    apply_optimizer_in_backward(RowWiseAdagrad, model.pooled.parameters(), {"lr": 0.1})
    assert read_workload(model, get_default_sharders(), batch_size=16).optimizer == "rowwise_adagrad"
    apply_optimizer_in_backward(torch.optim.Adam, model.sequence.parameters(), {"lr": 0.1})
    with pytest.warns(UserWarning, match="memory is counted for adam"):
        assert read_workload(model, get_default_sharders(), batch_size=16).optimizer == "adam"


def test_constraints_of_the_wrong_length_are_refused() -> None:
    from support.jobs import TwoCollections
    from torchrec.distributed.planner import ParameterConstraints
    from torchrec.distributed.sharding_plan import get_default_sharders

    from recsmith.torchrec import read_workload

    wrong = {"t1": ParameterConstraints(pooling_factors=[1.0, 2.0, 3.0])}
    with pytest.raises(UsageError, match="3 pooling_factors for 2 features"):
        read_workload(TwoCollections(), get_default_sharders(), batch_size=16, constraints=wrong)


def test_a_topology_is_read_as_a_cluster() -> None:
    from torchrec.distributed.planner import Topology

    from recsmith import load_cluster
    from recsmith.torchrec import read_cluster

    read = read_cluster(Topology(world_size=16, local_world_size=8, compute_device="cuda"))
    ours = load_cluster("torchrec-default:8x2")
    assert (read.hosts, read.local_world_size, read.capacities) == (2, 8, ours.capacities)
    assert read.ddr_bytes_per_host == ours.ddr_bytes_per_host
    assert read.device.hbm_bandwidth == pytest.approx(ours.device.hbm_bandwidth)
    assert read.device.host_link_bandwidth == pytest.approx(ours.device.host_link_bandwidth)
    assert read.links.intra_host_bandwidth == pytest.approx(ours.links.intra_host_bandwidth)
    assert read.links.inter_host_bandwidth == pytest.approx(ours.links.inter_host_bandwidth)
    assert read_cluster(Topology(world_size=2, compute_device="cpu")).device.kind == "cpu"


def test_the_plan_keeps_to_torchrecs_constraints() -> None:
    from support.jobs import TwoCollections, constraints

    from recsmith.torchrec import RecSmithPlanner

    planner = RecSmithPlanner("h100:2", batch_size=16, constraints=constraints(), space=Space(widths="torchrec"))
    plan = planner.plan(TwoCollections())
    assert plan.plan["pooled"]["t2"].sharding_type == "row_wise"  # type: ignore[index]
    assert planner.result is not None
    assert planner.result.plan.gap is not None


def test_rules_of_ones_own_hold_beside_torchrecs() -> None:
    from support.jobs import TwoCollections

    from recsmith import TableRule
    from recsmith.torchrec import RecSmithPlanner

    limits = Constraints(rules=(TableRule(tables="pooled.*", sharding_types=("table_wise",)),))
    plan = RecSmithPlanner("h100:2", batch_size=16, limits=limits).plan(TwoCollections())
    assert plan.plan["pooled"]["t0"].sharding_type == "table_wise"  # type: ignore[index]


def test_modules_that_are_not_planned_are_refused_by_name() -> None:
    import torch
    from torchrec import EmbeddingBagConfig
    from torchrec.distributed.fused_embeddingbag import FusedEmbeddingBagCollectionSharder
    from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection

    from recsmith.torchrec import read_workload

    tables = [EmbeddingBagConfig(name="t", embedding_dim=8, num_embeddings=10, feature_names=["f"])]
    model = torch.nn.Sequential()
    model.add_module("fused", FusedEmbeddingBagCollection(tables, torch.optim.SGD, {"lr": 0.1}))
    with pytest.raises(UsageError, match="module 'fused' is a FusedEmbeddingBagCollection"):
        read_workload(model, [FusedEmbeddingBagCollectionSharder()], batch_size=16)  # type: ignore[list-item]


def _collective(**words: Any) -> list[Any]:
    from recsmith.jobs.launch import launch

    return launch("support.jobs:collective", words, ranks=2)


def test_all_ranks_receive_the_plan_of_rank_0() -> None:
    first, second = _collective()
    assert first == second
    assert first["pooled"]["t2"] == ["row_wise", [0, 1]]


def test_an_error_of_rank_0_is_raised_on_every_rank() -> None:
    answers = _collective(hbm=2**16)
    assert [answer["error"] for answer in answers] == ["Infeasible", "Infeasible"]
    assert "Proved" in answers[1]["message"]


def test_a_rank_with_another_model_stops_all_ranks() -> None:
    answers = _collective(rows_of_rank_1=999)
    assert [answer["error"] for answer in answers] == ["PlanMismatch", "PlanMismatch"]
    assert "rank 1 cannot use the plan of rank 0" in answers[0]["message"]


def test_a_cluster_of_another_size_is_refused_on_every_rank() -> None:
    answers = _collective(cluster="cpu:4")
    assert all("2 ranks, the cluster 4" in answer["message"] for answer in answers)
