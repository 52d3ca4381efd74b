"""What ranks of a local job compute with a model that reads features in the order in which they come."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig, KeyedJaggedTensor
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.train_pipeline import TrainPipelineSparseDist
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection

from recsmith import Constraints, TableRule
from recsmith.jobs.sharded_model import local_shards, shard_of, table_of
from recsmith.problems import Pin
from recsmith.torchrec import RecSmithPlanner, keep_feature_order

BATCH, DIM, ROWS = 4, 8, 20
NAMES = ("a", "b", "c", "d")
LONGEST = 5


class InOrder(nn.Module):
    """Pooled, processed and unpooled features, each by its place and not by its name."""

    def __init__(self, device: str) -> None:
        super().__init__()
        on = torch.device(device)
        words: Any = {"embedding_dim": DIM, "num_embeddings": ROWS}
        bags = [EmbeddingBagConfig(name=name, feature_names=[name, "both"], **words) for name in NAMES]
        processed = [EmbeddingBagConfig(name=f"p{name}", feature_names=[name], **words) for name in NAMES]
        rows = [EmbeddingConfig(name=f"s{name}", feature_names=[name], **words) for name in NAMES]
        self.pooled = EmbeddingBagCollection(tables=bags, device=on)
        self.weighed = FeatureProcessedEmbeddingBagCollection(
            EmbeddingBagCollection(tables=processed, device=on, is_weighted=True),
            PositionWeightedModuleCollection(dict.fromkeys(NAMES, LONGEST), torch.device("cpu")),
        )
        self.sequences = EmbeddingCollection(tables=rows, device=on)

        self.read = Read()

    def forward(self, features: KeyedJaggedTensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(a loss, what was read)."""
        return self.read(self.pooled(features), self.weighed(features), self.sequences(features))


class Read(nn.Module):
    """What comes, in the order in which it comes. It has no tables: TorchRec's pipelines run it whole."""

    def forward(self, pooled: Any, weighed: Any, sequences: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """(a loss, what was read side by side)."""
        rows = [each.to_padded_dense(LONGEST).flatten(1) for each in sequences.values()]
        read = torch.cat([pooled.values(), weighed.values(), *rows], dim=1)
        return (read * torch.arange(read.shape[1])).square().mean(), read.detach()


def batch_of(rank: int) -> KeyedJaggedTensor:
    """Ids of a rank, one to LONGEST of each feature and sample."""
    draw = torch.Generator().manual_seed(rank)
    keys = [*NAMES, "both"]
    lengths = torch.randint(1, LONGEST + 1, (len(keys) * BATCH,), generator=draw)
    ids = torch.randint(ROWS, (int(lengths.sum()),), generator=draw)
    return KeyedJaggedTensor(keys=keys, values=ids, lengths=lengths)


def differences(turned: bool) -> dict[str, float]:
    """How far what the sharded model reads, directly and in a pipeline, is from what the unsharded one reads.

    turned: tables lie on the other ranks.
    """
    torch.manual_seed(0)
    whole, model = InOrder("cpu"), InOrder("meta")
    weights = {table_of(name): each.detach() for name, each in whole.named_parameters() if name.endswith(".weight")}
    kinds = {"a": "table_wise", "b": "row_wise", "c": "table_wise", "d": "column_wise"}
    rules = tuple(
        TableRule(tables=f"*{name}", pin=_pin(kind, (number + turned) % 2))
        for number, (name, kind) in enumerate(kinds.items())
    )
    planner = RecSmithPlanner("cpu:2", batch_size=BATCH, limits=Constraints(rules=rules), planner="size_greedy")
    plan = planner.collective_plan(model, None, dist.group.WORLD)
    sharded = DistributedModelParallel(model, device=torch.device("cpu"), plan=plan)
    with torch.no_grad():
        for table, corner, tensor in local_shards(sharded):
            if tensor.dim() == 2:  # not the weights of positions, which start as ones
                tensor.copy_(shard_of(weights[table], corner, tensor.shape))
    rank = dist.get_rank()
    _, expected = whole(batch_of(rank))
    found = {"without": sharded(batch_of(rank))[1]}  # a batch each: TorchRec's input dist changes the ones that it gets
    keep_feature_order(sharded)
    found["with"] = sharded(batch_of(rank))[1]
    pipeline = TrainPipelineSparseDist(sharded, sharded.fused_optimizer, torch.device("cpu"))
    found["piped"] = pipeline.progress(iter([batch_of(rank) for _ in range(3)]))
    return {name: float((each - expected).abs().max()) for name, each in found.items()}


def _pin(kind: str, rank: int) -> Pin:
    if kind == "table_wise":
        return Pin(sharding_type=kind, ranks=(rank,))
    if kind == "row_wise":
        return Pin(sharding_type=kind, ranks=(0, 1))
    return Pin(sharding_type=kind, ranks=(rank, 1 - rank), widths=(DIM // 2, DIM // 2))
