"""The predicted step and memory of a run: those of a plain job, with the changes by each system of the run.

Every price of a run builds on this: the dry run, and all `auto` decisions. The effects of systems were measured on
other jobs than those on which the whole prediction is checked (docs/benchmarks/train.md). Without torch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from recsmith._process import memory_limit
from recsmith._types import Ints, noun
from recsmith.embeddings.transforms import physical
from recsmith.errors import RecSmithError, UsageError
from recsmith.jobs.machine import PROGRAM_BYTES, memory_bytes
from recsmith.planning.simulate import simulate
from recsmith.plans import Plan
from recsmith.prediction.dense_shapes import NUMBER_BYTES, Shapes, numbers_of
from recsmith.prediction.histories import HistoryWork, history_layers_s
from recsmith.prediction.job_step import JobStep, copied_numbers, job_step
from recsmith.prediction.reading import Reading
from recsmith.prediction.speeds import bf16_layers_s
from recsmith.problems.dense_bytes import DenseBytes
from recsmith.problems.rank_bytes import bytes_on_disk, predicted_bytes
from recsmith.sharding.memory import STATE_BYTES
from recsmith.training.collectives import collectives_of
from recsmith.training.job.layer_shapes import PAIRS
from recsmith.training.models import sequence_settings
from recsmith.training.models.work import layer_work
from recsmith.training.optimizers.settings import DenseState
from recsmith.training.run import Run, RunComms
from recsmith.training.seams.registry import batches_of_a_step, first_of, systems
from recsmith.units import format_size
from recsmith.workloads import Feature, Workload
from recsmith.workloads.optimizers import OPTIMIZERS

COPIED_UPDATES = 2  # extra memory of a copied table's update, as a multiple of its weights
Repeats = Mapping[str, tuple[float, float]]


@noun
class RankMemory:
    """Bytes that a rank holds at the peak of a step, in addition to the program and its libraries.

    tables: their weights and optimizer state, or the part of them in memory. batch: ids, outputs and gradients of a
    step. layers: weights, gradients and state of dense layers, and activations of a batch. file: bytes on disk. freed:
    bytes by which the sum would be larger if everything were held at the same time.
    """

    tables: int
    batch: int
    layers: int
    file: int = 0
    freed: int = 0

    @property
    def total(self) -> int:
        """Bytes in memory: everything but the file."""
        return self.tables + self.batch + self.layers


def planned_as_run(run: Run, plan: Plan, repeats: Repeats | None = None) -> Plan:
    """The plan as the run will use it: with its batch, optimizer and messages, priced by the plan's cost model.

    A plan of table servers already has the batches of trainers. repeats: of deduplicated features, samples for each row
    of its part's batch, and of its own (tables/features.py).
    """
    if any(system.run_of_plan(run, 1) for system in systems()):
        return simulate(plan, bound=False)
    batch = run.data.local_batch_size(plan.cluster.job_world_size) * batches_of_a_step(run)
    optimizer = run.optimizers.sparse.name
    tables = tuple(
        replace(
            table,
            features=tuple(_distinct(each, batch, repeats or {}) for each in table.features),
            optimizer=None if (own := run.optimizers.sparse.of(table.name).name) == optimizer else own,
        )
        for table in plan.workload.tables
    )
    workload = replace(plan.workload, batch_size=batch, optimizer=optimizer, tables=tables)
    workload = _with_messages(workload, run)
    made = plan if workload == plan.workload else replace(plan, workload=workload, digest="")
    try:
        return simulate(made, bound=False)
    except RecSmithError:  # the cost model does not know the run's optimizer
        planned = {table.name: table.optimizer for table in plan.workload.tables}
        tables = tuple(replace(table, optimizer=planned[table.name]) for table in workload.tables)
        known = replace(workload, optimizer=plan.workload.optimizer, tables=tables)
        return simulate(replace(made, workload=known), bound=False)


def _with_messages(workload: Workload, run: Run) -> Workload:
    """The workload with the bytes of the run's messages, if its plan was made without any."""
    if workload.bytes_per_value != (None, None):
        return workload
    if isinstance(run.comms, RunComms):
        kinds = (None, None) if run.comms == RunComms() else (run.comms.forward, run.comms.backward)
        return replace(workload, comm_dtype=kinds[0], backward_comm_dtype=kinds[1])
    sent = collectives_of(run.comms).bytes_per_value()
    if sent == (None, None):
        return workload
    forward, backward = (NUMBER_BYTES if each is None else each for each in sent)
    return replace(workload, comm_bytes=(float(forward), float(backward)))


def _distinct(feature: Feature, batch: int, repeats: Repeats) -> Feature:
    """A feature that is looked up only for distinct rows, if its plan does not account for that yet."""
    if feature.batch_size is not None or feature.name not in repeats:
        return feature
    part, own = repeats[feature.name]
    return replace(
        feature, batch_size=math.ceil(batch / part), pooling_factor=feature.pooling_factor * part / own
    )  # fmt: skip


def plain_step(
    run: Run, plan: Plan, shapes: Shapes, numbers: int, lengths: Ints | None = None, *,
    reading: Reading | None = None,
) -> JobStep | None:  # fmt: skip
    """The step of a run before systems decide what it leaves open; None on GPUs.

    Args:
        run: the run.
        plan: as `planned_as_run` makes it.
        shapes: shapes of the dense parameters.
        numbers: count of gradient values that are sent between ranks.
        lengths: lengths of some histories, if they are known.
        reading: time to read samples; None: samples are generated.
    """
    made = job_step(plan, shapes, pairs=run.model.name == PAIRS, reading=reading)
    if made is None:
        return None
    if (work := history_work(run, plan, lengths)) is not None:
        made = replace(made, layers_s=history_layers_s(work, plan.workload.batch_size))
    if run.model.precision == "bf16":
        made = replace(made, layers_s=bf16_layers_s(made.layers_s, shapes))
    for system in systems():
        made = system.change_step(run, plan, made, numbers)
    return made


def history_work(run: Run, plan: Plan, lengths: Ints | None = None) -> HistoryWork | None:
    """The work of the layers of a history model for one sample; None for other models.

    lengths: lengths of some histories; None: all have the workload's mean length.
    """
    settings = sequence_settings(run.model.name, run.model.arguments)
    if settings is None:
        return None
    history, width = settings.history[0], run.model.embedding_dim
    features = {each.name: (each, table.embedding_dim) for table in plan.workload.tables for each in table.features}
    if history in features:
        events, width = features[history]
    else:  # in a compressed table, each lookup has a feature of its own
        events = next(each for name, (each, _) in features.items() if name.startswith(physical(history, "")))
    pooled = [each for each in plan.workload.tables if each.pooled]
    others = sum(each.embedding_dim * len(each.features) for each in pooled)
    known = np.array([events.pooling_factor]) if lengths is None or not len(lengths) else lengths
    work = layer_work(settings, width, lengths=known, others=others, labels=1)
    return work if lengths is None else replace(work, different=_different(lengths, plan.workload.batch_size))


def _different(lengths: Ints, batch: int) -> float:
    """Expected number of distinct lengths in a batch drawn from these lengths; exact if these are one batch."""
    _, counts = np.unique(lengths, return_counts=True)
    if len(lengths) == batch:
        return float(len(counts))
    return float((1 - (1 - counts / len(lengths)) ** batch).sum())


def memory_of(
    run: Run, plan: Plan, shapes: Shapes, state: DenseState, lengths: Ints | None = None
) -> list[RankMemory]:  # fmt: skip
    """The memory of each rank, and its bytes on disk.

    Args:
        run: the run.
        plan: as `planned_as_run` makes it.
        shapes: shapes of the dense parameters.
        state: state of the dense optimizer.
        lengths: lengths of some histories, if they are known.
    """
    stored, dense = plan, dense_bytes(run, plan, shapes, 0, lengths)
    layers = dense.fixed + dense.gradients + dense.activations
    for system in systems():
        stored = system.kept_plan(run, stored)
    more = NUMBER_BYTES * COPIED_UPDATES * copied_numbers(plan) + sum(each.more_bytes(run, plan) for each in systems())
    group: Sequence[RankMemory] = [
        RankMemory(tables=tables, batch=batch + more, layers=layers + kept, file=file)
        for (tables, batch), file, kept in zip(
            predicted_bytes(stored), bytes_on_disk(stored), state.ranks[: plan.cluster.world_size], strict=True
        )
    ]
    for system in systems():
        group = system.change_memory(run, plan, group, dense.activations)
    cluster = plan.cluster
    return [group[cluster.rank_in_group(rank)] for rank in range(cluster.job_world_size)]


def check_memory(memory: Sequence[RankMemory], here: int, device: str) -> None:
    """UsageError if ranks of this machine need more memory than it has, or than its cgroup allows. here: their number.

    device: 'cpu', or 'cuda' for ranks on GPUs, whose memory is not checked.
    """
    if device != "cpu":
        return
    most = sum(sorted((each.total for each in memory), reverse=True)[:here])
    for limit, what, cure in (
        (memory_limit(), "the memory limit of this process is", "raise the limit, "),
        (memory_bytes(), "this machine has", ""),
    ):
        if limit is not None and limit < most + (1 + here) * PROGRAM_BYTES:
            raise UsageError(
                f"{what} {format_size(limit)}, and the ranks of this job hold {format_size(most)} at the peak of a "
                f"step, beside {1 + here} processes of at least {format_size(PROGRAM_BYTES)}; {cure}"
                f"{_less_memory(memory)}"
            )


def _less_memory(memory: Sequence[RankMemory]) -> str:
    """Advice against what takes most memory of the fullest rank."""
    most = max(memory, key=lambda each: each.total)
    if most.tables >= max(most.batch, most.layers):
        return "use more machines, or keep rows on disk (docs/tiers.md)"
    what, bytes_ = ("dense layers", most.layers) if most.layers > most.batch else ("ids and outputs", most.batch)
    return f"{format_size(bytes_)} of a rank are for {what}: take smaller batches, or shorter histories"


def dense_bytes(run: Run, plan: Plan, shapes: Shapes, state: int, lengths: Ints | None) -> DenseBytes:
    """Bytes of dense layers: weights, gradients, DDP's buckets, optimizer state, outputs, and gradients of outputs.

    state: optimizer state of a rank in bytes. The other arguments are those of `memory_of`.
    """
    wide = first_of(each.bytes_of_number(run) for each in systems()) or NUMBER_BYTES
    buckets = wide * (plan.cluster.job_world_size > 1)
    work = history_work(run, plan, lengths)
    kept = work.kept_numbers if work else 2 * sum(shape[0] for shape in shapes if len(shape) > 1)
    numbers = numbers_of(shapes)
    return DenseBytes(
        fixed=numbers * (wide + buckets) + state, gradients=numbers * wide,
        activations=round(NUMBER_BYTES * kept * plan.workload.batch_size),
    )  # fmt: skip


def checkpoint_bytes(plan: Plan, shapes: Shapes, state: DenseState) -> int:
    """Bytes of a checkpoint: all weights and the state of their optimizers. state: of dense layers."""
    tables, total = {table.name: table for table in plan.workload.tables}, 0.0
    for placement in plan.placements:
        table, pieces = tables[placement.table], max(1, len(placement.widths))
        kept = OPTIMIZERS[plan.workload.optimizer_of(table)]
        numbers = table.num_embeddings * (table.embedding_dim * kept.element_states + pieces * kept.row_states)
        total += table.weight_bytes + STATE_BYTES * numbers
    return round(total + numbers_of(shapes) * NUMBER_BYTES + state.saved)
