"""The step and the memory of a run: those of the plain job, and what each system of the run changes of them.

Every price of a run stands on this: the dry run, and all that is `auto`. What a system takes was measured on other jobs
than those that the whole is checked on (docs/benchmarks/dry-run.md). Without torch.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from recsmith._components import parsed
from recsmith._types import noun
from recsmith.costs.fetches import AHEAD, disk_fetches
from recsmith.errors import RecSmithError
from recsmith.planning.simulate import simulate
from recsmith.plans import Plan
from recsmith.prediction.dedup import DISTINCT_ID_S
from recsmith.prediction.job_step import NUMBER_BYTES, JobStep, copied_numbers, job_step, numbers_of
from recsmith.prediction.speeds import Shapes
from recsmith.sharding.memory import STATE_BYTES
from recsmith.training.collectives import collectives_of
from recsmith.training.layer_shapes import PAIRS
from recsmith.training.parts.rows import cached_tables, predicted_hits, stored_plan
from recsmith.training.run import Run
from recsmith.verifying.jobs import bytes_on_disk, predicted_bytes
from recsmith.workloads import Feature
from recsmith.workloads.optimizers import OPTIMIZERS

# Times what FBGEMM and PyTorch take in fp32 (benchmarks/precision.py): lookups of tables in halves, updates of dense
# layers in halves or with a copy in fp32, products of dense layers in bf16 with casts of what goes in and comes out.
SPLIT_LOOKUPS, HALVES_UPDATES, BF16_PRODUCTS = 7.0, 4.0, 1.3
FETCH_S = (
    4e-6  # of a row that a cache lacks, from a file that the operating system has in memory (benchmarks/dry_run.py)
)
CACHED_ID_S = 4e-7  # of an id of a table with a cache: its slot
SPLIT_BLOCK, SPLIT_COPIES = 2**20, 32  # numbers of a table that are split at once, and bytes for each meanwhile
COPIED_UPDATES = 2  # times its weights that the update of a copied table has beside them
ARRAY_COPIES = 4  # times its pooled numbers that the update of an array has at once
Repeats = Mapping[str, tuple[float, float]]
HALVED = ("split", "master")  # optimizers under which dense layers lie in bf16


@noun
class RankMemory:
    """Bytes that a rank holds at the peak of a step beside the program and its libraries.

    tables: their weights and optimizer state, or what is in memory of them. batch: ids, outputs and gradients of a
    step. layers: weights, gradients and state of dense layers, and what they keep of a batch. file: on disk.
    """

    tables: int
    batch: int
    layers: int
    file: int = 0

    @property
    def total(self) -> int:
        """All but the file."""
        return self.tables + self.batch + self.layers


def planned_as_run(run: Run, plan: Plan, repeats: Repeats | None = None) -> Plan:
    """The plan of what the run will do: with its own batch and optimizer, priced by the plan's cost model.

    A plan of servers has the batches of trainers already. repeats: of deduplicated features, samples for each row of
    its part's batch, and of its own (tables/features.py).
    """
    if run.remote is not None:
        return simulate(plan)
    mixed = 1 if run.data.periods is None else run.data.periods.mixed
    batch, optimizer = run.data.local_batch_size(plan.cluster.world_size) * mixed, run.optimizers.sparse.name
    tables = tuple(
        replace(table, features=tuple(_distinct(each, batch, repeats or {}) for each in table.features))
        for table in plan.workload.tables
    )
    workload = replace(plan.workload, batch_size=batch, optimizer=optimizer, tables=tables)
    made = plan if workload == plan.workload else replace(plan, workload=workload, digest="")
    try:
        return simulate(made)
    except RecSmithError:  # the cost model does not know the run's optimizer
        return simulate(replace(made, workload=replace(workload, optimizer=plan.workload.optimizer)))


def _distinct(feature: Feature, batch: int, repeats: Repeats) -> Feature:
    """A feature that is looked up for distinct rows alone, where its plan does not say so yet."""
    if feature.batch_size is not None or feature.name not in repeats:
        return feature
    part, own = repeats[feature.name]
    return replace(
        feature, batch_size=math.ceil(batch / part), pooling_factor=feature.pooling_factor * part / own
    )  # fmt: skip


def plain_step(run: Run, plan: Plan, shapes: Shapes, numbers: int) -> JobStep | None:
    """The step of a run before its optimizer and narrow layers are decided; None on GPUs.

    plan: as `planned_as_run` makes it. shapes: of dense parameters. numbers: of gradients that cross ranks.
    """
    made = job_step(plan, shapes, pairs=run.model.name == PAIRS)
    if made is None:
        return None
    comms: Any = collectives_of(run.comms)
    if getattr(comms, "dense", None) not in (None, "auto") and plan.cluster.world_size > 1:
        _, sent, work = comms.step_seconds(plan.cluster, numbers)
        made = replace(made, gradients_s=sent + work)
    return _updates(run, _lookups(run, plan, made))


def _lookups(run: Run, plan: Plan, step: JobStep) -> JobStep:
    """The step with tables as the run keeps and feeds them."""
    name = parsed(run.rows, "rows")[0]
    ids = plan.workload.batch_size * sum(
        each.pooling_factor * each.num_poolings for table in plan.workload.tables for each in table.features
    )
    if run.data.deduplicate != "off":
        step = replace(step, reading_s=step.reading_s + DISTINCT_ID_S * ids)
    if name == "split":
        return replace(step, embeddings_s=SPLIT_LOOKUPS * step.embeddings_s)
    if name == "tiered":
        return replace(step, embeddings_s=step.embeddings_s + rows_s(run, plan))
    return step


def rows_s(run: Run, plan: Plan) -> float:
    """Seconds in which lookups of a step wait for rows that no cache has, by the plan's disk or the system's memory."""
    cached, hits = cached_tables(run, plan), predicted_hits(run, plan)
    if not cached or hits is None:
        return 0.0
    ids = plan.workload.batch_size * sum(
        each.pooling_factor * each.num_poolings for one in cached for each in one.table.features
    )
    if "cache" not in parsed(run.rows, "rows")[1]:
        return ids * CACHED_ID_S  # the plan has the tables on disk, and its cost what they wait for
    if plan.cluster.disk is None:
        return ids * (CACHED_ID_S + (1 - hits) * FETCH_S)
    found = disk_fetches(stored_plan(run, plan))
    return ids * CACHED_ID_S + (0.0 if found is None else found.longest_s)


def _updates(run: Run, step: JobStep) -> JobStep:
    """The step with dense layers of the run's precision."""
    if run.model.precision == "bf16":
        step = replace(step, layers_s=BF16_PRODUCTS * step.layers_s)
    if run.optimizers.dense.name in HALVED:
        step = replace(step, optimizer_s=HALVES_UPDATES * step.optimizer_s)
    return step


def memory_of(run: Run, plan: Plan, shapes: Shapes, state: float) -> list[RankMemory]:
    """What each rank holds, and has on disk.

    plan: as `planned_as_run` makes it. shapes: of dense parameters. state: bytes that their optimizer keeps of each.
    """
    stored, layers = stored_plan(run, plan), layers_bytes(run, plan, shapes, state)
    more = _update_bytes(run, plan)
    return [
        RankMemory(tables=tables, batch=batch + more, layers=layers, file=file)
        for (tables, batch), file in zip(predicted_bytes(stored), bytes_on_disk(stored), strict=True)
    ]


def _update_bytes(run: Run, plan: Plan) -> int:
    """What updates of tables that are not FBGEMM's own hold at their peak."""
    workload, ranks = plan.workload, plan.cluster.world_size
    more = NUMBER_BYTES * COPIED_UPDATES * copied_numbers(plan)
    if parsed(run.rows, "rows")[0] == "split":
        largest = max(table.num_embeddings * table.embedding_dim for table in workload.tables)
        more += SPLIT_COPIES * min(SPLIT_BLOCK, largest)
    if run.array is not None:
        columns = sum(table.embedding_dim * len(table.features) for table in workload.tables)
        more += NUMBER_BYTES * ARRAY_COPIES * workload.batch_size * ranks * columns // ranks
    return more


def layers_bytes(run: Run, plan: Plan, shapes: Shapes, state: float) -> int:
    """Weights, gradients and DDP's buckets of them, state of dense layers; outputs of layers and their gradients."""
    wide = 2 if run.optimizers.dense.name in HALVED else NUMBER_BYTES
    copies = 2 + (plan.cluster.world_size > 1)
    outputs = sum(shape[0] for shape in shapes if len(shape) > 1)
    return round(numbers_of(shapes) * (copies * wide + state) + NUMBER_BYTES * 2 * outputs * plan.workload.batch_size)


def checkpoint_bytes(plan: Plan, shapes: Shapes, state: float) -> int:
    """Of a checkpoint: all weights and the state of their optimizers. state: bytes of a number of dense layers."""
    kept = OPTIMIZERS[plan.workload.optimizer]
    tables, total = {table.name: table for table in plan.workload.tables}, 0.0
    for placement in plan.placements:
        table, pieces = tables[placement.table], max(1, len(placement.widths))
        numbers = table.num_embeddings * (table.embedding_dim * kept.element_states + pieces * kept.row_states)
        total += table.weight_bytes + STATE_BYTES * numbers
    return round(total + numbers_of(shapes) * (NUMBER_BYTES + state))


def waits_ahead(run: Run) -> bool:
    """Whether rows of the next batch come while this one trains."""
    return run.pipeline != "auto" and parsed(run.pipeline, "pipeline")[0] == AHEAD
