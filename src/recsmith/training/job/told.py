"""Which systems of a run are on, and what each does to its bytes, its memory and its step, before it starts.

A system that decides something for itself says so where it decides (preparing.py). Here is what seams of the core
bring; systems tell the rest. Without torch.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from recsmith._components import parsed
from recsmith.plans import Plan
from recsmith.prediction.job_step import NUMBER_BYTES
from recsmith.training.collectives import RunComms, collectives_of
from recsmith.training.job.run_step import BF16_PRODUCTS
from recsmith.training.run import Run
from recsmith.training.run.parts import COPIED
from recsmith.training.seams.system import RunFacts, SystemTold, systems
from recsmith.units import format_size, format_time


def told_of(run: Run, facts: RunFacts, decided: Sequence[SystemTold]) -> list[SystemTold]:
    """All systems that a run asks for. decided: those that said so already."""
    said = {each.key for each in decided}
    of_systems = [told for each in systems() for told in each.told(run, facts)]
    of_core = [SystemTold(key=key, on=True, said=line) for key, line in _of_core(run, facts)]
    return [*decided, *(each for each in (*of_systems, *of_core) if each.key not in said)]


def _of_core(run: Run, facts: RunFacts) -> Iterator[tuple[str, str]]:
    """(key, line) of rows, messages, products and pipelines that are not those of a plain run."""
    rows, pipeline = parsed(run.rows, "rows")[0], parsed(run.pipeline, "pipeline")[0]
    if ":" in rows:
        yield "rows", f"rows: {rows}: a store of yours, whose memory and time are not predicted"
    if run.comms != RunComms():
        yield "comms", _comms(run, facts.plan)
    if (kind := run.model.precision) != "fp32":
        step = facts.step
        time = f"; they take {format_time(step.layers_s)} of a step, {BF16_PRODUCTS:g} times fp32" if step else ""
        yield "model.precision", f"model.precision: {kind}: products of dense layers are of bf16, by autocast{time}"
    if pipeline not in ("auto", "base"):
        yield "pipeline", f"pipeline: {pipeline}"


def _comms(run: Run, plan: Plan) -> str:
    """Pooled embeddings in another form than fp32; of dense gradients, `decided` tells."""
    comms: Any = collectives_of(run.comms)
    ranks, batch = plan.cluster.world_size, plan.workload.batch_size
    placed = {each.table: each.sharding_type for each in plan.placements}
    crossing = [table for table in plan.workload.tables if placed[table.name] != COPIED]
    columns = sum(table.embedding_dim * len(table.features) for table in crossing)
    numbers = batch * columns * (ranks - 1) / ranks
    forward, backward = (NUMBER_BYTES if each is None else each for each in comms.bytes_per_value())
    return (
        f"comms: of pooled embeddings a rank sends {format_size(round(numbers * forward))} forward and "
        f"{format_size(round(numbers * backward))} backward in a step, instead of "
        f"{format_size(round(numbers * NUMBER_BYTES))} each; their time is part of the plan's"
    )
