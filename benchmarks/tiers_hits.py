"""Hit rates of caches in front of tables on disk: as predicted from access profiles, and as jobs count them.

    python benchmarks/tiers_hits.py --movielens ml-latest-small
    python benchmarks/tiers_hits.py --policy static --movielens ml-latest-small    # rows that are read most stay

Each job trains under a plan whose tables are on disk with a share of their rows cached. Its log has the share of
lookups whose row was in the cache when their batch was fetched; what is told is the mean of the second half, when
caches are full, and, of policy static, reads were counted. Ids are drawn by Zipf's law, whose exponent the prediction
is given, and those of MovieLens in random order, whose accesses are counted before.
"""

import argparse
import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from recsmith.clusters import Disk, load_cluster
from recsmith.data import counted_workload, open_dataset, schema_workload, spec_from_raw
from recsmith.planning.simulate import price
from recsmith.plans import Cache, Placement, save_plan
from recsmith.plans.plan import CachePolicy
from recsmith.training import run_from_raw, train
from recsmith.workloads import Workload

DIM = 8


@dataclass(frozen=True)
class Job:
    """What is trained. shares: of rows that are cached, by table; other tables are in memory."""

    name: str
    data: dict[str, Any]
    batch: int
    steps: int
    shares: dict[str, float]
    counted: bool = False


def jobs(movielens: str | None, steps: int) -> list[Job]:
    """Zipf's law with four exponents and three shares, and MovieLens."""
    found: list[Job] = []
    for zipf, share in ((1.05, 0.075), (1.05, 0.02), (1.05, 0.3), (0.8, 0.075), (1.3, 0.02), (0.0, 0.3)):
        rows = 200_000
        feature = {"name": "item", "num_embeddings": rows, "zipf": zipf, "pooling_factor": 2.0}
        data = {"format": "generator", "num_samples": 1024 * steps, "dense": 2, "features": [feature]}
        found.append(Job(f"Zipf {zipf:g}, {rows:,} rows", data, 1024, steps, {"item": share}))
    if movielens:
        data = {"format": "movielens", "path": movielens, "split": "train"}
        found += [
            Job("MovieLens, 9,724 movies and 610 users", data, 32, 5000, {"movie": share, "user": 0.25}, counted=True)
            for share in (0.05, 0.1, 0.2, 0.5)
        ]
    return found


def workload_of(job: Job) -> Workload:
    """With Zipf exponents, or with accesses counted in all of the data."""
    dataset = open_dataset(spec_from_raw({"schema": "recsmith/dataset/1", **job.data}, job.name))
    if job.counted:
        samples = dataset.num_samples or 0
        return counted_workload(dataset, batch_size=job.batch, samples=samples, embedding_dim=DIM)
    return schema_workload(dataset.schema, batch_size=job.batch, embedding_dim=DIM)


def trained(job: Job, folder: Path, policy: CachePolicy) -> list[dict[str, Any]]:
    """The log of a job under its plan, whose caches have a policy."""
    workload = workload_of(job)
    cluster = load_cluster("cpu:1").with_memory(hbm_bytes=2**34)
    cluster = replace(cluster, ssd_bytes_per_host=2**40, disk=Disk(bandwidth=1e9, reads_per_s=1e5))
    placed = [
        Placement(
            table=table.name, sharding_type="table_wise", ranks=(0,),
            compute_kernel="key_value" if table.name in job.shares else "fused",
            cache=Cache(load_factor=job.shares[table.name], policy=policy) if table.name in job.shares else None,
        )
        for table in workload.tables
    ]  # fmt: skip
    save_plan(price(workload, cluster, placed), folder / "plan.json")
    run = {
        "schema": "recsmith/run/1", "data": {"train": job.data, "batch_size": job.batch, "epochs": 100}, "ranks": 1,
        "model": {"embedding_dim": DIM, "bottom": [8, DIM], "top": [8]}, "plan": str(folder / "plan.json"),
        "output": str(folder / "out"), "metrics": {"every": 50}, "checkpoint": None, "steps": job.steps,
        "rows": {"name": "tiered", "folder": str(folder / "rows"), "profile": job.steps // 2},
        "pipeline": "prefetch_sparse_dist",
    }  # fmt: skip
    train(run_from_raw(run, job.name))
    return [json.loads(line) for line in (folder / "out" / "log.jsonl").read_text().splitlines()]


def main() -> None:
    """Train all jobs, one line of a table each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--movielens", metavar="FOLDER")
    parser.add_argument("--steps", type=int, default=600, help="of jobs with generated ids")
    parser.add_argument("--policy", choices=("lru", "static"), default="lru")
    parser.add_argument("--only", help="jobs whose name holds this")
    asked = parser.parse_args()
    print("| ids | cached | hits predicted | counted | points apart |\n|---|---|---|---|---|", flush=True)
    worst = 0.0
    for job in jobs(asked.movielens, asked.steps):
        if asked.only and asked.only not in job.name:
            continue
        with tempfile.TemporaryDirectory() as name:
            log = trained(job, Path(name), asked.policy)
        predicted = next(line["predicted_hit_share"] for line in log if line["event"] == "start")
        shares = [line["hit_share"] for line in log if line["event"] == "train"]
        counted = float(np.mean(shares[len(shares) // 2 :]))
        worst = max(worst, abs(predicted - counted))
        cached = ", ".join(f"{share:.1%} of {table}" for table, share in job.shares.items())
        print(f"| {job.name} | {cached} | {predicted:.1%} | {counted:.1%} | {100 * (counted - predicted):+.1f} |",
              flush=True)  # fmt: skip
    print(f"\nat most {100 * worst:.1f} points apart")


if __name__ == "__main__":
    main()
