"""What binds the plan that a job printed? Run: python examples/plan_that_runs_today.py."""

from pathlib import Path
from tempfile import TemporaryDirectory

import recsmith
from recsmith import Feature, Table, Workload

PRINTED = """\
module: model.ebc

param | sharding type | compute kernel | ranks
----- | ------------- | -------------- | -----
user  | table_wise    | fused          | [0]
item  | table_wise    | fused          | [0]

param | shard offsets | shard sizes   | placement
----- | ------------- | ------------- | -------------
user  | [0, 0]        | [2000000, 64] | rank:0/cuda:0
item  | [0, 0]        | [500000, 64]  | rank:0/cuda:0
"""  # what print(model.plan) writes; model is a DistributedModelParallel


def table(name: str, rows: int, ids: float) -> Table:
    """A table of 64 columns that one feature reads."""
    features = (Feature(name=name, pooling_factor=ids),)
    return Table(name=name, num_embeddings=rows, embedding_dim=64, features=features, collection="model.ebc")


def main() -> None:
    """Both tables are on rank 0: the explanation says so, and the plan of a search says what that costs."""
    workload = Workload(
        batch_size=4096, optimizer="sgd", tables=(table("user", 2_000_000, 1), table("item", 500_000, 20))
    )
    with TemporaryDirectory() as folder:
        log = Path(folder) / "job.log"
        log.write_text(PRINTED)
        running = recsmith.price(workload, "h100:2", str(log))
    slowest = recsmith.explain(running).phases[0]
    best = recsmith.plan(workload, "h100:2").plan
    print(f"rank {slowest.rank} decides, {slowest.seconds / slowest.mean_s:.1f} times the mean")
    print(f"{running.cost.total_s * 1e6:.0f} us today, {best.cost.total_s * 1e6:.0f} us at best known")


if __name__ == "__main__":
    main()
