"""Whether the layers of a described model of histories fit into memory in addition to a plan's tables."""

from dataclasses import replace

from recsmith.planning.simulate import price_plan
from recsmith.plans import Plan
from recsmith.prediction.models import HISTORIES, Model
from recsmith.problems.history_layers import HistoryLayers
from recsmith.problems.plain_reserve import plain_reserve
from recsmith.units import format_size


def memory_notes(model: Model, plan: Plan, batch: int | None) -> tuple[str, ...]:
    """A note on the memory that the layers need and that tables leave; none on CPUs, nor for other models.

    batch: samples per rank, instead of the plan's.
    """
    workload = replace(plan.workload, batch_size=batch or plan.workload.batch_size)
    layers = HistoryLayers(
        blocks=model.blocks, keys=model.heads * model.attention_dim, values=model.heads * model.linear_dim,
        streams=model.output_streams, positions=model.history, sequences=len(model.joined) or 1,
    )  # fmt: skip
    found = plain_reserve(workload, plan.cluster, layers) if model.kind in HISTORIES else None
    if found is None:
        return ()
    cost = price_plan(replace(plan, workload=workload, digest=""), plan.cost_model).per_device
    left = min(size - each.hbm_bytes for size, each in zip(plan.cluster.hbm_per_rank, cost, strict=True))
    needed = format_size(found.needed)
    text = f"memory: the layers need about {needed} of each device by a formula (docs/memory.md), and tables leave"
    if left >= found.needed:
        return (f"{text} {format_size(left)}",)
    return (
        f"{text} only {format_size(max(0, left))}: by this estimate the job runs out of memory; plan it with --reserve "
        f"{needed.replace(' ', '')}, or with fewer samples (--batch-size)",
    )
