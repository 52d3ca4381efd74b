"""A job that is watched beside its plan, and what its ranks say: plain functions that return JSON data."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

import recsmith
from recsmith.files import encode
from recsmith.torchrec import PlanWatch, read_workload, to_sharding_plan

BATCH, ROWS, DIM = 32, (400, 4000), 16
PLANNED, READ = 2, (2, 6)  # ids of a bag: as the plan takes them to be, and as table by table they are


class TwoTables(nn.Module):
    """Two tables, on the meta device."""

    def __init__(self) -> None:
        super().__init__()
        tables = [
            EmbeddingBagConfig(name=f"t{i}", embedding_dim=DIM, num_embeddings=rows, feature_names=[f"f{i}"])
            for i, rows in enumerate(ROWS)
        ]
        self.bags = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))

    def forward(self, batch: KeyedJaggedTensor) -> torch.Tensor:
        """The sum of all embeddings."""
        return self.bags(batch).values().sum()


def batch(generator: torch.Generator) -> KeyedJaggedTensor:
    """Uniform ids, so many a bag as READ says."""
    lengths = torch.tensor([count for count in READ for _ in range(BATCH)])
    values = [
        torch.randint(0, rows, (BATCH * count,), generator=generator) for rows, count in zip(ROWS, READ, strict=True)
    ]
    return KeyedJaggedTensor(keys=["f0", "f1"], values=torch.cat(values), lengths=lengths)


def watched(steps: int, skip: int, steps_left: int | None) -> dict[str, Any]:
    """Train for a while with a watch; its report, and how many kernels still had hooks a step later."""
    model = TwoTables()
    apply_optimizer_in_backward(torch.optim.Adagrad, model.parameters(), {"lr": 0.1})
    plan = _plan(model)
    sharded = DistributedModelParallel(model, device=torch.device("cpu"), plan=to_sharding_plan(plan, model))
    watch = PlanWatch(sharded, plan, steps=steps, skip=skip)
    generator = torch.Generator().manual_seed(dist.get_rank())
    ended = [_train(sharded, watch, generator) for _ in range(skip + steps + 1)]
    report = watch.report(steps_left=steps_left, limits=("0%", "100%"), search_s=5.0)
    return {
        "ended": ended, "times": len(watch.times.forward), "seen": watch.counts.batches,
        "report": encode(without_plan(report)),
        "new": None if report.plan is None else [encode(each) for each in report.plan.placements],
    }  # fmt: skip


def _train(sharded: nn.Module, watch: PlanWatch, generator: torch.Generator) -> bool:
    one = batch(generator)
    sharded(one).backward()
    return watch.step(one)


def _plan(model: nn.Module) -> recsmith.Plan:
    """Both tables on rank 0, as if both were read alike."""
    workload = read_workload(model, get_default_sharders(), batch_size=BATCH)
    placements = [
        recsmith.Placement(table=table.name, sharding_type="table_wise", compute_kernel="fused", ranks=(0,))
        for table in workload.tables
    ]
    return recsmith.price(workload, "cpu:2", placements)


def without_plan(report: Any) -> Any:
    """The report without its plan, which is no JSON data."""
    from dataclasses import replace

    return replace(report, plan=None)
