"""Variable batches (VBE): jobs of two CPU ranks whose features have fewer bags than samples, and what they are priced.

    python benchmarks/variable_batches.py      # docs/benchmarks/sharding.md; two minutes

A KeyedJaggedTensor with stride_per_key_per_rank has a part of the samples' bags, and inverse_indices say which bag each
sample has, as TorchRec's jobs on deduplicated batches do. The models of all parts take turns in one job; a step is CPU
seconds of the busiest rank until embeddings have their gradients, in the median.
"""

import statistics
import sys
from dataclasses import replace
from typing import Any

from dedup import cpu_seconds

from recsmith import Feature, Plan, Table, Workload, load_cluster, plan
from recsmith.plans import plan_from_raw, plan_to_raw
from recsmith.problems import Space

PARTS = (1.0, 0.5, 0.25)  # bags of a feature over samples
KINDS = ("table_wise", "row_wise", "column_wise")
TABLES, ROWS, DIM, BATCH, LENGTH, STEPS, WARM_UP = 4, 100_000, 64, 4096, 16, 7, 2


def planned(kind: str, part: float) -> Plan:
    """The plan of tables with so many poolings a sample."""
    tables = tuple(
        Table(name=f"t{i}", num_embeddings=ROWS, embedding_dim=DIM,
              features=(Feature(name=f"t{i}", pooling_factor=float(LENGTH), num_poolings=part),))
        for i in range(TABLES)
    )  # fmt: skip
    space = Space(types=(kind,), kernels=("fused",))
    work = Workload(batch_size=BATCH, optimizer="sgd", tables=tables)
    return plan(work, load_cluster("cpu:2"), space=space, cost_model="neural:cpu", iterations=5).plan


def steps(plans: list[dict[str, Any]]) -> list[list[float]]:
    """CPU seconds of a rank's steps of each plan, which take turns. Runs on every rank."""
    import torch
    from torchrec import KeyedJaggedTensor

    from recsmith.jobs.sharded_model import sharded_model
    from recsmith.jobs.workload_model import CollectionBatch, feature_key

    torch.set_num_threads(1)
    made = [plan_from_raw(raw, "job") for raw in plans]
    models = [sharded_model(each, each.workload.optimizer)[0] for each in made]
    seconds: list[list[float]] = [[] for _ in made]
    for step in range(WARM_UP + STEPS):
        for number, (each, model) in enumerate(zip(made, models, strict=True)):
            keys = [feature_key(table, table.features[0]) for table in each.workload.tables]
            bags = round(BATCH * each.workload.tables[0].features[0].num_poolings)
            features = KeyedJaggedTensor(
                keys=keys, values=torch.randint(0, ROWS, (len(keys) * bags * LENGTH,)),
                lengths=torch.full((len(keys) * bags,), LENGTH), stride_per_key_per_rank=[[bags]] * len(keys),
                inverse_indices=(keys, torch.randint(0, bags, (len(keys), BATCH))),
            )  # fmt: skip
            spent = cpu_seconds(model, CollectionBatch([features]))
            if step >= WARM_UP:
                seconds[number].append(spent)
            else:
                assert all(len(one) == BATCH for one in model(CollectionBatch([features])).values()), "bags of samples"
    return seconds


def main() -> None:
    """Prints the table of the page."""
    from recsmith.jobs.launch import launch

    print("| sharding type | bags over samples | kernels, predicted | step, measured | predicted | measured |")
    print("|---|---|---|---|---|---|")
    for kind in KINDS:
        plans = [planned(kind, part) for part in PARTS]
        raw = [plan_to_raw(replace(each, digest="")) for each in plans]
        found = launch("variable_batches:steps", {"plans": raw}, ranks=2)
        measured = [max(statistics.median(rank[i]) for rank in found) for i in range(len(plans))]
        kernels = [max(d.forward_compute_s + d.backward_compute_s for d in each.cost.per_device) for each in plans]
        for part, own, predicted in zip(PARTS, measured, kernels, strict=True):
            ratios = f"{predicted / kernels[0]:.2f} | {own / measured[0]:.2f}"
            print(f"| {kind} | {part:g} | {predicted * 1e3:.1f} ms | {own * 1e3:.1f} ms | {ratios} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
