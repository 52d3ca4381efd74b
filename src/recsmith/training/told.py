"""Which systems of a run are on, and what each does to its bytes, its memory and its step, before it starts.

A system that decides something for itself says so where it decides (preparing.py); here is what the others bring.
Without torch.
"""

from collections.abc import Sequence
from typing import Any

from recsmith._components import parsed
from recsmith._types import noun
from recsmith.costs.fetches import AHEAD, disk_fetches
from recsmith.plans import Plan
from recsmith.prediction.job_step import NUMBER_BYTES, JobStep, numbers_of
from recsmith.training.collectives import RunComms, collectives_of
from recsmith.training.parts.rows import cached_tables, least_slots, predicted_hits
from recsmith.training.parts.run import COPIED
from recsmith.training.run import Run
from recsmith.training.run_step import (
    BF16_PRODUCTS,
    HALVED,
    HALVES_UPDATES,
    SPLIT_LOOKUPS,
    RankMemory,
    rows_s,
    waits_ahead,
)
from recsmith.units import counted, format_size, format_time

TOWERS, DEDUPLICATE, COMMS = "model.table_module", "data.deduplicate", "comms"
DENSE, NARROW = "optimizers.dense", "model.narrow"


@noun
class SystemTold:
    """A system of a run. key: of the run. on: whether the run has it. said: what it brings or costs, in a sentence."""

    key: str
    on: bool
    said: str


def told_of(
    run: Run, plan: Plan, step: JobStep | None, memory: Sequence[RankMemory], shapes: Sequence[Sequence[int]],
    decided: Sequence[SystemTold],
) -> list[SystemTold]:  # fmt: skip
    """All systems that a run asks for. plan: as `planned_as_run` makes it. decided: those that said so already."""
    said = {each.key for each in decided}
    numbers = numbers_of(shapes)
    others = [
        *_compression(run), *_rows(run, plan, step, memory), *_comms(run, plan), *_precision(run, step),
        *_dense(run, step, numbers), *_periods(run), *_pipeline(run),
    ]  # fmt: skip
    return [*decided, *(each for each in others if each.key not in said)]


def _compression(run: Run) -> list[SystemTold]:
    if not run.model.compression:
        return []
    rules = ", ".join(f"{each.tables} by {each.method}" for each in run.model.compression)
    return [SystemTold(key="model.compression", on=True, said=f"compression: tables are stored smaller: {rules}")]


def _rows(run: Run, plan: Plan, step: JobStep | None, memory: Sequence[RankMemory]) -> list[SystemTold]:
    name, settings = parsed(run.rows, "rows")
    if name == "device":
        return []
    if name == "split":
        weights = sum(table.weight_bytes for table in plan.workload.tables)
        time = f"; lookups and updates take {SPLIT_LOOKUPS:g} times those of rows: device"
        said = (
            f"rows: split: lookups read {format_size(weights // 2)} of bf16, and halves keep {format_size(weights)} in "
            f"memory, as fp32 does{time if step is None else f'{time}, {format_time(step.embeddings_s)} of a step'}"
        )
    elif name == "tiered":
        said = _tiered(run, plan, memory, str(settings.get("folder", "")))
    else:
        said = f"rows: {name}: a store of yours, whose memory and time are not predicted"
    return [SystemTold(key="rows", on=True, said=said)]


def _tiered(run: Run, plan: Plan, memory: Sequence[RankMemory], folder: str) -> str:
    cached, hits, least = cached_tables(run, plan), predicted_hits(run, plan), least_slots(run, plan)
    whole = sum(each.share >= 1 for each in cached)
    raised = sum(each.share * each.table.num_embeddings <= least[each.table.name] for each in cached) - whole
    more = [f"{counted(whole, 'table')} whole, for two batches may read all of their rows"] if whole else []
    more += [f"{counted(raised, 'table')} with the rows of two batches"] if raised > 0 else []
    slots = sum(each.share * each.table.weight_bytes for each in cached)
    wait = rows_s(run, plan)
    found = None if plan.cluster.disk is None else disk_fetches(plan)
    ahead = f", beside the step before (pipeline {AHEAD})" if waits_ahead(run) else ""
    by = "a disk as the plan knows it" if found is not None else "a file that the system's memory holds"
    return (
        f"rows: tiered: {counted(len(cached), 'table')} in files in '{folder}', "
        f"{format_size(max(each.file for each in memory))} on the rank that has most; in memory are "
        f"{format_size(round(slots))} of their weights{''.join(f', {each}' for each in more)}; "
        f"{hits or 0.0:.1%} of lookups find a row there, and rows take {format_time(wait)} of a step{ahead}, from {by}"
    )


def _comms(run: Run, plan: Plan) -> list[SystemTold]:
    """Pooled embeddings in another form than fp32; of dense gradients, `decided` tells."""
    if run.comms == RunComms():
        return []
    comms: Any = collectives_of(run.comms)
    ranks, batch = plan.cluster.world_size, plan.workload.batch_size
    placed = {each.table: each.sharding_type for each in plan.placements}
    crossing = [table for table in plan.workload.tables if placed[table.name] != COPIED]
    columns = sum(table.embedding_dim * len(table.features) for table in crossing)
    numbers = batch * columns * (ranks - 1) / ranks
    forward, backward = (NUMBER_BYTES if each is None else each for each in comms.bytes_per_value())
    return [SystemTold(key="comms", on=True, said=(
        f"comms: of pooled embeddings a rank sends {format_size(round(numbers * forward))} forward and "
        f"{format_size(round(numbers * backward))} backward in a step, instead of "
        f"{format_size(round(numbers * NUMBER_BYTES))} each; their time is part of the plan's"))]  # fmt: skip


def _precision(run: Run, step: JobStep | None) -> list[SystemTold]:
    if run.model.precision == "fp32":
        return []
    time = "" if step is None else f"; they take {format_time(step.layers_s)} of a step, {BF16_PRODUCTS:g} times fp32"
    said = f"model.precision: {run.model.precision}: products of dense layers are of bf16, by autocast{time}"
    return [SystemTold(key="model.precision", on=True, said=said)]


def _dense(run: Run, step: JobStep | None, numbers: int) -> list[SystemTold]:
    dense = run.optimizers.dense
    if dense.name not in HALVED:
        return []
    kept = 2 + (2 if dense.name == "split" else 4)
    time = "" if step is None else (
        f"; their update takes {format_time(step.optimizer_s)} of a step, {HALVES_UPDATES:g} times fp32")  # fmt: skip
    said = (
        f"optimizers.dense: {dense.name}: {format_size(kept * numbers)} of weights of dense layers, of which products "
        f"read {format_size(2 * numbers)} and ranks send {format_size(2 * numbers)} of gradients{time}"
    )
    return [SystemTold(key="optimizers.dense", on=True, said=said)]


def _periods(run: Run) -> list[SystemTold]:
    periods = run.data.periods
    if periods is None:
        return []
    update = parsed(periods.update, "data.periods.update")[0]
    batches = f"; a step takes {periods.mixed} batches" if periods.mixed > 1 else ""
    said = f"periods: each is scored by the model before it, then trained on ({update}){batches}"
    return [SystemTold(key="data.periods", on=True, said=said)]


def _pipeline(run: Run) -> list[SystemTold]:
    name = parsed(run.pipeline, "pipeline")[0]
    if name in ("auto", "base"):
        return []
    return [SystemTold(key="pipeline", on=True, said=f"pipeline: {name}")]
