"""What a job knows before its first step: its plan, the same on every rank, and what it will train, in words."""

import torch.distributed as dist
from torch import nn

from recsmith.adapters.rank_0 import from_rank_0
from recsmith.data import Dataset
from recsmith.errors import UsageError
from recsmith.plans import Plan, plan_from_raw, plan_to_raw
from recsmith.training.planned import MADE_HERE, make_plan
from recsmith.training.run import Run
from recsmith.units import format_size


def agreed_plan(run: Run, task: nn.Module, dataset: Dataset, before: Plan | None, ranks_per_host: int) -> Plan:
    """The plan of this job, made or read by rank 0. before: the plan of its checkpoint, kept where it still fits."""
    ranks = dist.get_world_size()

    def make() -> Plan:
        if before is not None and run.plan in MADE_HERE and before.cluster.world_size == ranks:
            return before
        return plan_here(run, task, dataset, ranks, ranks_per_host, before)

    return plan_from_raw(from_rank_0(lambda: plan_to_raw(make())), "rank 0's plan")


def plan_here(
    run: Run, task: nn.Module, dataset: Dataset, ranks: int, ranks_per_host: int, before: Plan | None = None
) -> Plan:
    """The plan of a run for so many ranks, made or read in this process. before: the plan of its checkpoint."""
    with dataset.batches(rank=0, world_size=1, batch_size=1024, seed=run.seed, shuffle=False) as batches:
        sample = next(batches, None)
    if sample is None or not len(sample):
        raise UsageError("data.train holds no samples; name data that has some")
    return make_plan(run, task, dataset.schema, sample, ranks=ranks, ranks_per_host=ranks_per_host, before=before)


def starting_words(run: Run, task: nn.Module, plan: Plan, dataset: Dataset) -> list[str]:
    """Lines about model, data and plan, for people."""
    tables = plan.workload.tables
    weights = sum(table.num_embeddings * table.embedding_dim for table in tables)
    dense = sum(parameter.numel() for parameter in task.parameters()) - weights
    sizes = [table.num_embeddings for table in tables]
    types: dict[str, int] = {}
    for placement in plan.placements:
        types[placement.sharding_type] = types.get(placement.sharding_type, 0) + 1
    ranks = plan.cluster.world_size
    batches = run.data.batch_sizes(ranks).changes
    local = ", then ".join(f"{size:,}" for _, size in batches)
    known = dataset.num_samples
    return [
        f"model {run.model.name}: {dense:,} dense parameters, and {weights:,} in {len(tables)} tables of "
        f"{min(sizes):,} to {max(sizes):,} rows ({format_size(weights * 4)})",
        f"data: {'unknown number of' if known is None else f'{known:,}'} samples; {local} a rank and step on {ranks} "
        f"ranks, {run.optimizers.sparse.name} for tables, {run.optimizers.dense.name} for the rest",
        f"plan {plan.digest[:12]} ({run.plan if run.plan not in MADE_HERE else f'made now, by {plan.planner}'}): "
        + ", ".join(f"{count} {kind}" for kind, count in sorted(types.items())),
    ]
