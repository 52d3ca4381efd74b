"""RecSmith as the planner of a TorchRec job: planned, sharded and trained on random clicks, from top to bottom.

python examples/torchrec_dropin.py --ranks 2                    # starts a local job by itself
torchrun --nproc-per-node 2 examples/torchrec_dropin.py         # or under torchrun
"""

import argparse
import os
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.datasets.utils import Batch
from torchrec.distributed import DistributedModelParallel, TrainPipelineSparseDist
from torchrec.distributed.planner import ParameterConstraints
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.optim import CombinedOptimizer, KeyedOptimizerWrapper, RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.optimizers import in_backward_optimizer_filter

from recsmith.jobs.launch import launch
from recsmith.torchrec import RecSmithPlanner, keep_feature_order, leave

BATCH_SIZE, DENSE, DIM = 256, 13, 64
TABLES = {  # rows, and how many ids a sample looks up
    "user": (200_000, 1), "item": (100_000, 1), "history": (100_000, 10), "shop": (20_000, 1), "query": (50_000, 4),
    "city": (5_000, 1), "country": (200, 1), "device": (20, 1),
}  # fmt: skip


def random_batches(steps: int, seed: int) -> Iterator[Batch]:
    """Random samples; a click follows from the first dense feature, country and device, so that it can be learned."""
    draw = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        dense = torch.rand(BATCH_SIZE, DENSE, generator=draw)
        ids = {name: torch.randint(rows, (BATCH_SIZE * n,), generator=draw) for name, (rows, n) in TABLES.items()}
        lengths = torch.tensor([n for _, n in TABLES.values()]).repeat_interleave(BATCH_SIZE)
        sparse = KeyedJaggedTensor(keys=list(TABLES), values=torch.cat(list(ids.values())), lengths=lengths)
        clicked = dense[:, 0] + ids["country"] % 2 + ids["device"] % 2 > 1.5
        yield Batch(dense, sparse, clicked.float())


class Model(nn.Module):
    """A small DLRM: dense features and bags of embeddings, concatenated, then layers over both."""

    def __init__(self) -> None:
        super().__init__()
        bags = [EmbeddingBagConfig(num_embeddings=rows, embedding_dim=DIM, name=name, feature_names=[name])
                for name, (rows, _) in TABLES.items()]  # fmt: skip
        self.tables = EmbeddingBagCollection(tables=bags, device=torch.device("meta"))  # no memory before sharding
        self.dense = nn.Sequential(nn.Linear(DENSE, DIM), nn.ReLU())
        self.over = nn.Sequential(nn.Linear(DIM * (1 + len(TABLES)), 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """(the loss to go backward from, what the pipeline's progress returns)."""
        both = torch.cat([self.dense(batch.dense_features), self.tables(batch.sparse_features).values()], dim=1)
        loss = nn.functional.binary_cross_entropy_with_logits(self.over(both).squeeze(1), batch.labels)
        return loss, loss.detach()


def train(steps: int) -> dict[str, Any]:
    """Plan, shard and train on every rank of an initialised process group."""
    world, local = dist.get_world_size(), int(os.environ["LOCAL_WORLD_SIZE"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    torch.manual_seed(0)  # the same first weights in every run
    model, sharders = Model(), get_default_sharders()

    # RecSmith is free to choose; two tables are told their type, so that the plan shows one of each.
    constraints = {name: ParameterConstraints(pooling_factors=[float(n)]) for name, (_, n) in TABLES.items()}
    constraints["user"].sharding_types = ["row_wise"]
    constraints["device"].sharding_types = ["data_parallel"]
    cluster = f"{'h100' if cuda else 'cpu'}:{local}x{world // local}"  # name your own device, or pass a Topology
    planner = RecSmithPlanner(cluster, batch_size=BATCH_SIZE, constraints=constraints, optimizer="rowwise_adagrad")
    plan = planner.collective_plan(model, sharders, dist.group.WORLD)
    placed: Any = plan.plan["tables"]
    types = {table: sharding.sharding_type for table, sharding in placed.items()}

    # Sharded tables are updated inside backward; data_parallel ones are not, and step with the dense layers below.
    for table, bag in model.tables.embedding_bags.items():
        if types[table] != "data_parallel":
            apply_optimizer_in_backward(RowWiseAdagrad, bag.parameters(), {"lr": 0.05})
    sharded = DistributedModelParallel(model, device=device, plan=plan, sharders=sharders)
    keep_feature_order(sharded)  # the model reads .values(); its columns would lie as the plan places tables
    rest = dict(in_backward_optimizer_filter(sharded.named_parameters()))  # all that no fused optimizer updates
    adagrad = KeyedOptimizerWrapper(rest, lambda parameters: torch.optim.Adagrad(parameters, lr=0.05))
    optimizer = CombinedOptimizer([sharded.fused_optimizer, adagrad])

    pipeline = TrainPipelineSparseDist(sharded, optimizer, device)
    batches = random_batches(steps, seed=dist.get_rank())
    losses = [float(pipeline.progress(batches)) for _ in range(steps)]
    return {"types": types, "losses": losses}


def show(result: dict[str, Any]) -> None:
    """Print the plan and every fifth loss."""
    print("plan  ", ", ".join(f"{table} {kind}" for table, kind in result["types"].items()))
    print("loss  ", " ".join(f"{loss:.3f}" for loss in result["losses"][::5]))


def main() -> None:
    """Join torchrun's job where there is one; start a local job otherwise."""
    parser = argparse.ArgumentParser(description="Train a small DLRM on a plan by RecSmith.")
    parser.add_argument("--ranks", type=int, default=2, help="local ranks to start (without torchrun)")
    parser.add_argument("--steps", type=int, default=41)
    options = parser.parse_args()
    if "RANK" not in os.environ:
        show(launch("torchrec_dropin:train", {"steps": options.steps}, ranks=options.ranks)[0])
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    result = train(options.steps)
    if dist.get_rank() == 0:
        show(result)
    leave()  # gloo's own teardown aborts now and then


if __name__ == "__main__":
    main()
