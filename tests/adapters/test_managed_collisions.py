"""Who loses a row in managed-collision modules is read, and what tells the ids of rows is counted once."""

import warnings
from dataclasses import replace
from typing import Any

import pytest

from recsmith.errors import PlanMismatch

pytestmark = pytest.mark.usefixtures("quiet_torchrec")


@pytest.fixture(scope="module")
def quiet_torchrec(torchrec: None) -> None:
    """TorchRec's hashing modules import with warnings that are not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import support.dynamic_jobs  # noqa: F401


def _collection(policy: Any) -> Any:
    import torch
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
    from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection
    from torchrec.modules.mc_modules import ManagedCollisionCollection, MCHManagedCollisionModule

    cpu = torch.device("cpu")
    table = EmbeddingBagConfig(name="t", embedding_dim=8, num_embeddings=64, feature_names=["f"])
    module = MCHManagedCollisionModule(zch_size=64, device=cpu, eviction_policy=policy, eviction_interval=1)
    return ManagedCollisionEmbeddingBagCollection(
        EmbeddingBagCollection(tables=[table], device=cpu), ManagedCollisionCollection({"t": module}, [table])
    )


def _policies() -> dict[str, Any]:
    from torchrec.modules.mc_modules import DistanceLFU_EvictionPolicy, LFU_EvictionPolicy, LRU_EvictionPolicy

    return {"lfu": LFU_EvictionPolicy(), "lru": LRU_EvictionPolicy(), "distance": DistanceLFU_EvictionPolicy()}


def _made(policy: str, cluster: str = "h100:2", **more: Any) -> tuple[Any, Any]:
    from torch import nn

    from recsmith.torchrec import RecSmithPlanner

    model = nn.Sequential(_collection(_policies()[policy]))
    planner = RecSmithPlanner(cluster, batch_size=8, planner="cost_greedy", reserve_bytes=0, **more)
    return model, planner.make(model).plan


@pytest.mark.parametrize(("policy", "evict"), [("lfu", "lfu"), ("lru", "lru"), ("distance", "lfu")])
def test_the_eviction_policy_of_a_table_is_read(policy: str, evict: str) -> None:
    _, plan = _made(policy)
    (table,) = plan.workload.tables
    assert table.dynamic is not None
    assert (table.dynamic.evict, table.dynamic.admit) == (evict, 1)
    assert plan.placements[0].sharding_type == "row_wise"


@pytest.mark.parametrize("policy", ["lfu", "lru"])
def test_bytes_of_a_row_are_those_of_torchrecs_buffers(policy: str) -> None:
    from recsmith.sharding.memory import id_map_bytes

    model, plan = _made(policy)
    module = model[0]._managed_collision_collection._managed_collision_modules["t"]
    by_row = sum(tensor.nbytes for tensor in module.buffers() if tensor.ndim and tensor.shape[0] == 64)
    assert id_map_bytes(plan.workload.tables[0], "cuda") * 64 == by_row


def test_they_are_counted_once() -> None:
    from recsmith.problems import Constraints

    _, real = _made("lru")
    _, plain = _made("lru", limits=Constraints(memory="torchrec"))
    assert plain.cluster.reserve_bytes - real.cluster.reserve_bytes == 32 * 24


def test_a_plan_of_ids_without_end_needs_a_module_that_gives_them_rows() -> None:
    from torch import nn
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig

    from recsmith.adapters.convert import to_sharding_plan

    model, plan = _made("lru")
    table = EmbeddingBagConfig(name="t", embedding_dim=8, num_embeddings=64, feature_names=["f"])
    assert to_sharding_plan(plan, model, device="cuda").plan
    with pytest.raises(PlanMismatch, match=r"table 't' has ids without end in the plan, and module '0' gives no id"):
        to_sharding_plan(plan, nn.Sequential(EmbeddingBagCollection(tables=[table])), device="cuda")
    plain = replace(plan, workload=replace(plan.workload, tables=(replace(plan.workload.tables[0], dynamic=None),)))
    assert to_sharding_plan(plain, model, device="cuda").plan  # a plan of before
