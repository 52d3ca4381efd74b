"""A job that runs under a poor plan: watched, planned anew, resharded by checkpoint, and gone on with on more ranks.

python examples/plan_that_lives.py                              # two local jobs, of two and of three ranks
"""

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

import recsmith
from recsmith.jobs.launch import launch
from recsmith.torchrec import PlanWatch, read_workload, reshard, tie_checkpoint, to_sharding_plan

BATCH, DIM, STEPS, SKIP = 32, 32, 4, 2
TABLES = {"user": (4_000, 1), "item": (2_000, 8), "shop": (400, 2)}  # rows, and how many ids a sample looks up


class Model(nn.Module):
    """Three tables, on the meta device: no memory before sharding."""

    def __init__(self) -> None:
        super().__init__()
        bags = [EmbeddingBagConfig(num_embeddings=rows, embedding_dim=DIM, name=name, feature_names=[name])
                for name, (rows, _) in TABLES.items()]  # fmt: skip
        self.tables = EmbeddingBagCollection(tables=bags, device=torch.device("meta"))

    def forward(self, batch: KeyedJaggedTensor) -> torch.Tensor:
        """A loss that falls as rows are updated."""
        return (self.tables(batch).values() - 1).square().mean()


def batches(steps: int) -> list[KeyedJaggedTensor]:
    """The same random samples for every rank."""
    draw = torch.Generator().manual_seed(0)
    lengths = torch.tensor([n for _, n in TABLES.values()]).repeat_interleave(BATCH)
    return [KeyedJaggedTensor(keys=list(TABLES), lengths=lengths, values=torch.cat(
        [torch.randint(rows, (BATCH * n,), generator=draw) for rows, n in TABLES.values()]))
        for _ in range(steps)]  # fmt: skip


def sharded(plan: recsmith.Plan) -> DistributedModelParallel:
    """The model under a plan; its tables are updated inside backward."""
    model = Model()
    apply_optimizer_in_backward(torch.optim.Adagrad, model.parameters(), {"lr": 0.1})
    return DistributedModelParallel(model, device=torch.device("cpu"), plan=to_sharding_plan(plan, model))


def state_of(model: DistributedModelParallel) -> dict[str, Any]:
    """What a checkpoint holds: weights and the optimizer's state, by name."""
    return {"model": model.state_dict(), "optimizer": model.fused_optimizer.state_dict()}


def first(folder: str) -> dict[str, Any]:
    """Train with all tables on rank 0, watch, save; the workload that the batches show is written."""
    workload = read_workload(Model(), get_default_sharders(), batch_size=BATCH)
    placements = [
        recsmith.Placement(table=each.name, sharding_type="table_wise", compute_kernel="fused", ranks=(0,))
        for each in workload.tables
    ]
    plan = recsmith.price(workload, "cpu:2", placements)
    model = sharded(plan)
    watch = PlanWatch(model, plan, steps=STEPS, skip=SKIP)
    *some, one = batches(SKIP + STEPS + 1)
    for batch in some:
        model(batch).backward()
        watch.step(batch)
    report = watch.report()  # a collective call
    save(state_of(model), checkpoint_id=f"{folder}/step-6")
    if dist.get_rank() == 0:
        recsmith.save_plan(plan, f"{folder}/old.json")
        recsmith.save_workload(report.workload, f"{folder}/live.yaml")
        tie_checkpoint(f"{folder}/step-6", plan)
    return {"next": float(model(one)), "factor": report.factor}


def second(folder: str) -> dict[str, Any]:
    """Go on under the new plan, from the resharded checkpoint."""
    model = sharded(recsmith.load_plan(f"{folder}/new.json"))
    load(state_of(model), checkpoint_id=f"{folder}/step-6-new")  # into the memory of the model itself
    return {"next": float(model(batches(SKIP + STEPS + 1)[-1]))}


def main() -> None:
    """Both jobs, and what happens between them."""
    parser = argparse.ArgumentParser(description="Plan a running job anew, and go on under the new plan.")
    parser.add_argument("--ranks", type=int, default=3, help="of the second job")
    ranks = parser.parse_args().ranks
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says that it reads a checkpoint without a process group
        before = launch("plan_that_lives:first", {"folder": name}, ranks=2)[0]
        home = Path(name)
        found = recsmith.replan(home / "old.json", home / "live.yaml", f"cpu:{ranks}", max_moved="90%")
        recsmith.save_plan(found.result.plan, home / "new.json")
        report = reshard(home / "step-6", home / "old.json", home / "new.json", home / "step-6-new")
        after = launch("plan_that_lives:second", {"folder": name}, ranks=ranks)[0]
    print(f"moved {found.moved_bytes / found.staying_bytes:.0%} of the weights; {len(report.inexact)} states inexact")
    print(f"loss of the next step: {before['next']:.6f} before, {after['next']:.6f} after")


if __name__ == "__main__":
    main()
