"""Models whose modules remap or weigh ids before their tables, and what ranks of local jobs do with them in tests."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig, KeyedJaggedTensor
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner import ParameterConstraints
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.modules.feature_processor_ import PositionWeightedModule
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection
from torchrec.modules.hash_mc_modules import HashZchManagedCollisionModule
from torchrec.modules.mc_embedding_modules import (
    ManagedCollisionEmbeddingBagCollection,
    ManagedCollisionEmbeddingCollection,
)
from torchrec.modules.mc_modules import (
    DistanceLFU_EvictionPolicy,
    ManagedCollisionCollection,
    ManagedCollisionModule,
    MCHManagedCollisionModule,
)
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from recsmith.adapters.embedding_collections import collections
from recsmith.adapters.managed_collisions import remapping_bytes
from recsmith.adapters.workload import read_workload
from recsmith.torchrec import RecSmithPlanner

BATCH = 8
INTERVAL = 9  # steps between evictions, which FBGEMM runs on GPUs only
IDS = 2**63 - 1  # drawn evenly from all, so that ranks get equal shares of them
CPU = torch.device("cpu")


def managed_bags(rows: int = 64) -> ManagedCollisionEmbeddingBagCollection:
    """Two pooled tables whose ids are remapped by eviction policies."""
    tables = [
        EmbeddingBagConfig(name=f"t{name}", embedding_dim=8, num_embeddings=rows, feature_names=[name])
        for name in ("a", "b")
    ]
    modules: dict[str, ManagedCollisionModule] = {
        table.name: MCHManagedCollisionModule(
            zch_size=rows, device=CPU, eviction_policy=DistanceLFU_EvictionPolicy(), eviction_interval=INTERVAL
        )
        for table in tables
    }
    return ManagedCollisionEmbeddingBagCollection(
        EmbeddingBagCollection(tables=tables, device=CPU), ManagedCollisionCollection(modules, tables)
    )


def managed_sequences(rows: int = 64, hashed_to: int | None = None) -> ManagedCollisionEmbeddingCollection:
    """A sequence table whose ids are remapped: by hashes and probes into so many buckets, or by an eviction policy.

    FBGEMM's hashing trains on GPUs only.
    """
    tables = [EmbeddingConfig(name="ts", embedding_dim=8, num_embeddings=rows, feature_names=["s"])]
    policy = DistanceLFU_EvictionPolicy()
    modules: dict[str, ManagedCollisionModule] = {
        "ts": MCHManagedCollisionModule(zch_size=rows, device=CPU, eviction_policy=policy, eviction_interval=INTERVAL)
        if hashed_to is None
        else _hash_module(rows, hashed_to)
    }
    return ManagedCollisionEmbeddingCollection(
        EmbeddingCollection(tables=tables, device=CPU), ManagedCollisionCollection(modules, tables)
    )


def _hash_module(rows: int, buckets: int) -> HashZchManagedCollisionModule:
    with _quiet():
        return HashZchManagedCollisionModule(zch_size=rows, device=CPU, total_num_buckets=buckets)


def rebuilt(module: ManagedCollisionEmbeddingCollection, rows: tuple[int, int]) -> nn.Module:
    """What remaps the ids of table `ts` on the rank that holds these rows, as TorchRec rebuilds it."""
    whole = module._managed_collision_collection._managed_collision_modules["ts"]
    with _quiet():
        return whole.rebuild_with_output_id_range(rows)  # type: ignore[operator]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without TorchRec's warning on how it copies a tensor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def weighed_bags() -> FeatureProcessedEmbeddingBagCollection:
    """A pooled table whose ids are weighed by their position."""
    table = EmbeddingBagConfig(name="tw", embedding_dim=8, num_embeddings=50, feature_names=["w"])
    bags = EmbeddingBagCollection(tables=[table], device=CPU, is_weighted=True)
    return FeatureProcessedEmbeddingBagCollection(bags, {"w": PositionWeightedModule(max_feature_length=10)})


class DynamicModel(nn.Module):
    """All three, and the sum of what they look up."""

    def __init__(self) -> None:
        super().__init__()
        self.bags, self.sequences, self.weighed = managed_bags(), managed_sequences(), weighed_bags()

    def forward(self, batches: list[KeyedJaggedTensor]) -> torch.Tensor:
        """A number to train on, of one batch for each module."""
        bags, sequences, weighed = batches
        rows = self.sequences(sequences)[0]["s"].values()
        return (
            self.bags(bags)[0].values().square().mean() + rows.square().mean() + self.weighed(weighed).values().mean()
        )


def batch(features: list[str], most: int, generator: torch.Generator) -> KeyedJaggedTensor:
    """Three ids of each feature and sample, below `most`."""
    count = 3 * BATCH * len(features)
    ids = torch.randint(0, most, (count,), generator=generator)
    return KeyedJaggedTensor(keys=features, values=ids, lengths=torch.full((BATCH * len(features),), 3))


def train(steps: int = 5) -> dict[str, Any]:
    """A planned job of all three: placements, losses, and the bytes that remap ids, as planned and as they are."""
    torch.manual_seed(0)
    model = DynamicModel()
    for module in (model.bags, model.sequences, model.weighed._embedding_bag_collection):
        tables = [parameter for name, parameter in module.named_parameters() if name.endswith(".weight")]
        apply_optimizer_in_backward(RowWiseAdagrad, tables, {"lr": 0.1})
    sharders = get_default_sharders()
    planner = RecSmithPlanner("cpu:2", batch_size=BATCH, constraints=_three_ids())
    plan = planner.collective_plan(model, sharders)
    found = collections(model, sharders)
    workload = read_workload(model, sharders, batch_size=BATCH, constraints=_three_ids())
    sharded = DistributedModelParallel(model, device=CPU, plan=plan, sharders=sharders)
    dense = torch.optim.SGD([p for name, p in sharded.named_parameters() if "position_weight" in name], lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    losses = []
    for _ in range(steps):
        dense.zero_grad()
        loss = sharded([batch(keys, most, generator) for keys, most in ((["a", "b"], IDS), (["s"], IDS), (["w"], 50))])
        loss.backward()
        dense.step()
        losses.append(loss.item())
    return {
        "types": {
            f"{path}.{name}": each.sharding_type
            for path, module in plan.plan.items()
            for name, each in module.items()  # type: ignore[attr-defined]
        },
        "losses": losses,
        "planned": remapping_bytes(found, workload, 2),
        "real": _real_bytes(sharded),
    }


def _three_ids() -> dict[str, Any]:
    rows = ParameterConstraints(pooling_factors=[3.0], sharding_types=["row_wise"])
    return {name: ParameterConstraints(pooling_factors=[3.0]) for name in ("ta", "tb", "ts")} | {"tw": rows}


def _real_bytes(sharded: nn.Module) -> int:
    """Bytes of what every ManagedCollisionModule of a rank holds: buffers, parameters, and other tensors once."""
    held: dict[int, int] = {}
    for module in sharded.modules():
        if isinstance(module, (MCHManagedCollisionModule, HashZchManagedCollisionModule)):
            others = [value for value in vars(module).values() if isinstance(value, torch.Tensor)]
            for tensor in (*module.buffers(), *module.parameters(), *others):
                held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return sum(held.values())
