"""The table of docs/memory.md: memory that the `real` accounting predicts beside what TorchRec takes on CPU.

    python benchmarks/memory.py
    python benchmarks/memory.py stress    # plans whose buffers outweigh their tables
    python benchmarks/memory.py jobs      # whole jobs: models of TorchRec with dense layers (memory_jobs.py)
    python benchmarks/memory.py jobs stress   # of those, some with larger batches

Needs TorchRec, Linux and about 4 GiB; ten plans, some minutes. Each rank's peak resident memory in a step, less what it
had before tables and batches existed, against predicted bytes (src/recsmith/verifying/jobs/predicted_memory.py).
"""

import sys

from recsmith import Feature, Placement, Plan, Table, Workload, load_cluster
from recsmith.jobs.launch import launch
from recsmith.plans.plan import Bound, StepCost
from recsmith.verifying.jobs import verify_job, without_gpu

STEPS = 2
MB = 1e6


def table(name: str, rows: int, dim: int, ids: float = 1, **words: object) -> Table:
    weighted = bool(words.pop("weighted", False))
    feature = Feature(name="f", pooling_factor=ids, weighted=weighted)
    return Table(name=name, num_embeddings=rows, embedding_dim=dim, features=(feature,), **words)  # type: ignore[arg-type]


def place(name: str, sharding_type: str, ranks: tuple[int, ...], widths: tuple[int, ...] = ()) -> Placement:
    kernel = "dense" if sharding_type == "data_parallel" else "fused"
    return Placement(table=name, sharding_type=sharding_type, compute_kernel=kernel, ranks=ranks, widths=widths)


def make(cluster: str, optimizer: str, batch: int, *pairs: tuple[Table, Placement]) -> Plan:
    return Plan(
        workload=Workload(batch_size=batch, optimizer=optimizer, tables=tuple(t for t, _ in pairs)),  # type: ignore[arg-type]
        cluster=load_cluster(cluster), placements=tuple(p for _, p in pairs), planner="by hand", cost_model="torchrec",
        cost=StepCost(total_s=0.0, per_device=()), bound=Bound(value_s=None, kind="none", space=""), gap=None,
    )  # fmt: skip


A, B, C, D = "abcd"
PLANS = {
    "table_wise, sgd, fp32, 1 rank": make(
        "cpu:1", "sgd", 8192, (table(A, 1_000_000, 64, 40), place(A, "table_wise", (0,)))
    ),
    "table_wise, rowwise_adagrad, fp16, 2 ranks": make(
        "cpu:2", "rowwise_adagrad", 4096,
        (table(A, 1_500_000, 64, 30, data_type="fp16"), place(A, "table_wise", (0,))),
        (table(B, 900_000, 128, 10, data_type="fp16"), place(B, "table_wise", (1,))),
    ),
    "row_wise, adagrad, fp32, 4 ranks": make(
        "cpu:4", "adagrad", 4096, (table(A, 2_000_000, 64, 20), place(A, "row_wise", (0, 1, 2, 3)))
    ),
    "column_wise 96+32, rowwise_adagrad, fp32, 2 ranks": make(
        "cpu:2", "rowwise_adagrad", 8192, (table(A, 800_000, 128, 10), place(A, "column_wise", (0, 1), (96, 32)))
    ),
    "data_parallel, adagrad, fp32, 2 ranks": make(
        "cpu:2", "adagrad", 4096, (table(A, 500_000, 64, 5), place(A, "data_parallel", (0, 1)))
    ),
    "data_parallel, sgd, fp16, 2 ranks": make(
        "cpu:2", "sgd", 4096, (table(A, 600_000, 64, 5, data_type="fp16"), place(A, "data_parallel", (0, 1)))
    ),
    "sequences: table_wise and row_wise, sgd, fp32, 2 ranks": make(
        "cpu:2", "sgd", 2048,
        (table(A, 1_000_000, 64, 20, pooling="none"), place(A, "table_wise", (0,))),
        (table(B, 1_500_000, 64, 10, pooling="none"), place(B, "row_wise", (0, 1))),
    ),
    "table_row_wise, rowwise_adagrad, fp32, 2 hosts of 2": make(
        "cpu:2x2", "rowwise_adagrad", 4096,
        (table(A, 1_000_000, 128, 10), place(A, "table_row_wise", (0, 1))),
        (table(B, 1_200_000, 128, 5), place(B, "table_row_wise", (2, 3))),
    ),
    "grid_shard, sgd, fp32, 2 hosts of 2": make(
        "cpu:2x2", "sgd", 8192, (table(A, 1_500_000, 128, 5), place(A, "grid_shard", (0, 1, 2, 3), (64, 64)))
    ),
    "weighted and mean bags, four types, adagrad, fp32, 2 ranks": make(
        "cpu:2", "adagrad", 8192,
        (table(A, 700_000, 64, 40, weighted=True), place(A, "table_wise", (0,))),
        (table(B, 700_000, 64, 40, pooling="mean"), place(B, "table_wise", (1,))),
        (table(C, 600_000, 64, 10), place(C, "row_wise", (0, 1))),
        (table(D, 100_000, 32, 5), place(D, "data_parallel", (0, 1))),
    ),
}  # fmt: skip


STRESS = {
    "wide outputs: table_wise, 2 ranks": make(
        "cpu:2", "sgd", 65_536,
        (table(A, 100_000, 128), place(A, "table_wise", (0,))),
        (table(B, 100_000, 128), place(B, "table_wise", (1,))),
    ),
    "wide outputs: row_wise, 2 ranks": make(
        "cpu:2", "sgd", 65_536, (table(A, 100_000, 128), place(A, "row_wise", (0, 1)))
    ),
    "many ids: table_wise, 2 ranks": make(
        "cpu:2", "sgd", 8192,
        (table(A, 1_000_000, 16, 200), place(A, "table_wise", (0,))),
        (table(B, 1_000_000, 16, 200), place(B, "table_wise", (1,))),
    ),
    "many ids: row_wise, 2 ranks": make(
        "cpu:2", "sgd", 8192, (table(A, 1_000_000, 16, 200), place(A, "row_wise", (0, 1)))
    ),
    "many ids: 4 tables of one rank": make(
        "cpu:1", "sgd", 8192,
        *[(table(name, 200_000, 16, 100), place(name, "table_wise", (0,))) for name in (A, B, C, D)],
    ),
    "sequences: table_wise, 2 ranks": make(
        "cpu:2", "sgd", 8192,
        (table(A, 200_000, 32, 20, pooling="none"), place(A, "table_wise", (0,))),
        (table(B, 200_000, 32, 20, pooling="none"), place(B, "table_wise", (1,))),
    ),
}  # fmt: skip


def show_jobs() -> None:
    from memory_jobs import JOBS
    from memory_jobs import STRESS as LARGER

    print(
        "| job | rank | predicted MB | of it reserve | measured MB | predicted / measured |\n|---|---|---|---|---|---|"
    )
    for name, job in (LARGER if sys.argv[2:] == ["stress"] else JOBS).items():
        cluster = load_cluster(job.cluster)
        with without_gpu():
            found = launch("memory_jobs:measure", {"name": name}, ranks=cluster.world_size, hosts=cluster.hosts)
        for rank, sizes in enumerate(found):
            predicted = sizes["shards"] + sizes["reserve"]
            words = " | ".join(f"{size / MB:.1f}" for size in (predicted, sizes["reserve"], sizes["peak"]))
            print(f"| {name} | {rank} | {words} | {predicted / sizes['peak']:.3f} |", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["jobs"]:
        show_jobs()
        return
    print("| plan | rank | predicted MB | of it base | measured MB | predicted / measured |\n|---|---|---|---|---|---|")
    for name, plan in (STRESS if sys.argv[1:] == ["stress"] else PLANS).items():
        for rank in verify_job(plan, steps=STEPS).ranks:
            sizes = (rank.predicted_bytes, rank.base_bytes, rank.peak_bytes)
            words = " | ".join(f"{size / MB:.1f}" for size in sizes)
            print(f"| {name} | {rank.rank} | {words} | {rank.predicted_bytes / rank.peak_bytes:.3f} |", flush=True)


if __name__ == "__main__":
    main()
