"""Sharding changes nothing: losses of 100 steps of every sharding type beside those of the unsharded model.

python benchmarks/train_exactness.py               # 1, 2 and 4 ranks (4 also as two hosts of two); about 8 minutes
python benchmarks/train_exactness.py --ranks 2     # one number of ranks

The unsharded model trains in one process with torch.optim, on the same global batches.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import recsmith
from recsmith.jobs.launch import launch
from recsmith.training import (
    Run,
    RunData,
    RunMetrics,
    RunModel,
    RunOptimizers,
    SparseOptimizer,
    run_from_raw,
    run_to_raw,
)

STEPS, BATCH = 100, 240  # of all ranks: divisible by 1 to 6
TYPES = ("table_wise", "column_wise", "row_wise", "data_parallel", "table_row_wise", "table_column_wise", "grid_shard")
HOSTS = {"table_row_wise": 2, "table_column_wise": 2, "grid_shard": 2}  # types that mean something on several hosts
FEATURES = [
    {"name": "a", "num_embeddings": 1000},
    {"name": "b", "num_embeddings": 5003, "pooling_factor": 3, "lengths": "poisson"},
    {"name": "c", "num_embeddings": 211},
]
DATA = {"format": "generator", "seed": 7, "num_samples": 200_000, "dense": 4, "features": FEATURES}
DIM = 32


def a_run(output: Path, ranks: int, plan: str = "auto") -> Run:
    return Run(
        data=RunData(train=DATA, global_batch_size=BATCH),
        model=RunModel(embedding_dim=DIM),
        output=str(output),
        plan=plan,
        ranks=ranks,
        steps=STEPS,
        optimizers=RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=0.05)),
        checkpoint=None,
        metrics=RunMetrics(every=1),
    )


def losses_of(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line["logloss"] for line in lines if line["event"] == "train"]


def unsharded(run: dict[str, Any]) -> list[float]:
    """Losses of the model with plain tables and torch.optim in one process."""
    import torch

    from recsmith.training.batches import training_batches
    from recsmith.training.datasets import open_data
    from recsmith.training.metrics import Window
    from recsmith.training.models import build_task, features_of
    from recsmith.training.optimizers import SPARSE, sparse_arguments
    from recsmith.training.sharded import sizes_of
    from recsmith.training.weights import draw_tables

    made = run_from_raw(run, "run")
    dataset = open_data(made.data.train, "data.train")
    task = build_task(made.model, dataset.schema, made.seed, tables_on="cpu")
    draw_tables(task, sizes_of(task), made.seed)
    tables = [parameter for name, parameter in task.named_parameters() if "embedding_bags" in name]
    dense = [parameter for name, parameter in task.named_parameters() if "embedding_bags" not in name]
    sparse = made.optimizers.sparse
    optimizers = [
        SPARSE[sparse.name](tables, **sparse_arguments(sparse)),
        torch.optim.Adam(dense, lr=made.optimizers.dense.learning_rate),
    ]
    batches = training_batches(dataset, made.data, features_of(task), rank=0, ranks=1, seed=made.seed, endless=True)
    losses: list[float] = []
    for _ in range(made.steps or 0):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss, (_, logits, labels, _) = task(next(batches))
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        window = Window()
        window.add(logits, labels)
        losses.append(window.scores().logloss)
    return losses


def plan_of(kind: str, ranks: int, hosts: int, folder: Path) -> str:
    tables = [
        {"name": each["name"], "num_embeddings": each["num_embeddings"], "embedding_dim": DIM,
         "pooling_factor": each.get("pooling_factor", 1)}
        for each in FEATURES
    ]  # fmt: skip
    workload, rules = folder / "tables.json", folder / "rules.json"
    head = {"schema": "recsmith/workload/1", "batch_size": BATCH // ranks, "optimizer": "adagrad"}
    workload.write_text(json.dumps({**head, "tables": tables}))
    rule = {"tables": "*", "sharding_types": [kind]}
    rule = {"tables": "*", "sharding_types": [kind]}
    rules.write_text(json.dumps({"schema": "recsmith/constraints/1", "rules": [rule]}))
    plan = recsmith.plan(workload, f"cpu:{ranks // hosts}x{hosts}", constraints=rules).plan
    recsmith.save_plan(plan, folder / "plan.json")
    return str(folder / "plan.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--types", nargs="*", default=list(TYPES))
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reference = launch("train_exactness:unsharded", {"run": run_to_raw(a_run(folder, 1))}, ranks=1)[0]
        print(f"unsharded: loss {reference[0]:.6f} at step 1, {reference[-1]:.6f} at step {STEPS}", flush=True)
        for kind in words.types:
            for ranks in words.ranks:
                hosts = HOSTS.get(kind, 1)
                if ranks < 2 * hosts and hosts > 1:
                    continue
                output = folder / f"{kind}-{ranks}"
                output.mkdir()
                try:
                    run = a_run(output, ranks, plan_of(kind, ranks, hosts, output))
                    launch("recsmith.training.loop:train_on_rank", {"run": run_to_raw(run)}, ranks=ranks, hosts=hosts)
                except recsmith.RecSmithError as error:
                    print(f"{kind:18} {ranks} ranks: {str(error).splitlines()[-1][:150]}", flush=True)
                    continue
                found = losses_of(output)
                apart = max(abs(one / other - 1) for one, other in zip(found, reference, strict=True))
                word = f"{ranks} ranks" + (f" on {hosts} hosts" if hosts > 1 else "")
                print(f"{kind:18} {word:18} {len(found)} steps, largest relative difference {apart:.1e}", flush=True)


if __name__ == "__main__":
    main()
