"""Sequence tables whose ids are deduplicated: what a job of two CPU ranks gains, beside what planning predicts.

    python benchmarks/dedup.py      # docs/benchmarks/sharding.md

A job holds both models, with use_index_dedup and without, and trains them in turns on the same batches, so that a busy
machine disturbs both alike; a step is counted in CPU seconds of a rank, in the median, and ends with the gradients of
embeddings. Rows are read evenly, and as many of them as make 50, 90 or 98 % of a rank's ids repeat one of its batch.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from recsmith import AccessProfile, Feature, Plan, Table, Workload, load_cluster, plan
from recsmith.plans import plan_from_raw, plan_to_raw
from recsmith.problems import Space
from recsmith.workloads.reuse import Reuse

TABLES, DIM, BATCH, LENGTH = 4, 64, 1024, 32.0
REPEATED = (0.5, 0.9, 0.98)
KINDS = (("table_wise", "sgd"), ("row_wise", "sgd"), ("table_wise", "rowwise_adagrad"), ("column_wise", "adagrad"))
RANKS = 2
WARM_UP = 2
GOOD = 1.3  # times that a predicted gain may be off


def rows_for(repeated: float) -> int:
    """Rows of a table of which so many ids of a batch are repeated, by halving."""
    low, high = 1.0, 1e7
    for _ in range(60):
        middle = (low * high) ** 0.5
        share = 1 - different(int(middle)) / (BATCH * LENGTH)
        low, high = (middle, high) if share > repeated else (low, middle)
    return round(high)


def different(rows: int) -> float:
    """Different rows of a rank's batch of a table."""
    return float(Reuse.of((table_of(rows, 0),)).unique_rows(np.zeros(1, dtype=np.int64), np.array([BATCH * LENGTH]))[0])


def table_of(rows: int, number: int) -> Table:
    """A sequence table that is read evenly."""
    return Table(
        name=f"t{number}", num_embeddings=rows, embedding_dim=DIM, pooling="none", access=AccessProfile(zipf=0.0),
        features=(Feature(name=f"t{number}", pooling_factor=LENGTH),),
    )  # fmt: skip


def planned(rows: int, kind: str, optimizer: Any) -> tuple[Plan, Plan]:
    """Plans without and with deduplication."""
    tables = tuple(table_of(rows, i) for i in range(TABLES))
    work = Workload(batch_size=BATCH, optimizer=optimizer, tables=tables)
    space = Space(types=(kind,), kernels=("fused",))
    off, on = (
        plan(replace(work, index_dedup=choice), load_cluster(f"cpu:{RANKS}"), space=space, cost_model="neural:cpu").plan
        for choice in ("off", "on")
    )
    return off, on


def cpu_seconds(model: Any, batch: Any) -> float:
    """CPU seconds of one step of sharded tables, until embeddings have their gradients, which are ones."""
    import torch
    import torch.distributed as dist

    dist.barrier()
    begun = time.process_time()
    outputs = list(model(batch).values())
    ended = time.process_time()
    gradients = [torch.ones_like(each) for each in outputs]
    again = time.process_time()
    torch.autograd.backward(outputs, gradients)
    return time.process_time() - again + ended - begun


def steps(plans: list[dict[str, Any]], count: int) -> list[list[float]]:
    """CPU seconds of a rank's steps of each plan, which take turns. Runs on every rank."""
    import torch
    import torch.distributed as dist

    from recsmith.jobs.sharded_model import sharded_model
    from recsmith.jobs.workload_model import random_batch

    torch.set_num_threads(1)
    made = [plan_from_raw(raw, "job") for raw in plans]
    models = [sharded_model(each, each.workload.optimizer)[0] for each in made]
    generator = torch.Generator().manual_seed(dist.get_rank())
    seconds: list[list[float]] = [[] for _ in made]
    for step in range(WARM_UP + count):
        batch = random_batch(made[0].workload, made[0].workload.batch_size, generator)
        for number, model in enumerate(models):
            spent = cpu_seconds(model, batch)
            if step >= WARM_UP:
                seconds[number].append(spent)
    return seconds


def gain(count: int, kinds: Sequence[tuple[str, Any]]) -> bool:
    """Prints the table of the page; whether all gains are predicted within GOOD."""
    from recsmith.jobs.launch import launch

    good = True
    print("| repeated | rows | sharding type, optimizer | step: off, on | measured gain | predicted gain | off by |")
    print("|---|---|---|---|---|---|---|")
    for kind, optimizer in kinds:
        for repeated in REPEATED:
            rows = rows_for(repeated)
            pair = planned(rows, kind, optimizer)
            raw = [plan_to_raw(replace(each, digest="")) for each in pair]
            found = launch("dedup:steps", {"plans": raw, "count": count}, ranks=RANKS)
            off, on = (max(statistics.median(rank[i]) for rank in found) for i in (0, 1))
            expected = pair[0].cost.step_s / pair[1].cost.step_s
            ratio = expected / (off / on)
            good &= 1 / GOOD <= ratio <= GOOD
            print(
                f"| {repeated:.0%} | {rows:,} | {kind}, {optimizer} | {off * 1e3:.0f}, {on * 1e3:.0f} ms | "
                f"{off / on:.2f} | {expected:.2f} | {ratio:.2f} |",
                flush=True,
            )
    return good


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--small", action="store_true", help="one job, for a look")
    given = parser.parse_args()
    sys.exit(0 if gain(given.steps, KINDS[:1] if given.small else KINDS) or given.small else 1)
