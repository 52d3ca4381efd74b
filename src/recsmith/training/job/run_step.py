"""The step and the memory of a run: those of the plain job, and what each system of the run changes of them.

Every price of a run stands on this: the dry run, and all that is `auto`. What a system takes was measured on other jobs
than those that the whole is checked on (docs/benchmarks/train.md). Without torch.
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

COPIED_UPDATES = 2  # times its weights that the update of a copied table has beside them
Repeats = Mapping[str, tuple[float, float]]


@noun
class RankMemory:
    """Bytes that a rank holds at the peak of a step beside the program and its libraries.

    tables: their weights and optimizer state, or what is in memory of them. batch: ids, outputs and gradients of a
    step. layers: weights, gradients and state of dense layers, and what they keep of a batch. file: on disk. freed:
    that these would take more, were all there at once.
    """

    tables: int
    batch: int
    layers: int
    file: int = 0
    freed: int = 0

    @property
    def total(self) -> int:
        """All but the file."""
        return self.tables + self.batch + self.layers


def planned_as_run(run: Run, plan: Plan, repeats: Repeats | None = None) -> Plan:
    """The plan of what the run will do: with its own batch, optimizer and messages, priced by the plan's cost model.

    A plan of servers has the batches of trainers already. repeats: of deduplicated features, samples for each row of
    its part's batch, and of its own (tables/features.py).
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
    """With the bytes of the run's messages, where its plan was made without saying any."""
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
    """A feature that is looked up for distinct rows alone, where its plan does not say so yet."""
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

    plan: as `planned_as_run` makes it. shapes: of dense parameters. numbers: of gradients that cross ranks. lengths: of
    some histories, where they are known. reading: None: of generated samples.
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
    """What the layers of a model of histories compute for a sample; None of other models.

    lengths: of some histories; None: all are as long as the mean that the workload knows.
    """
    settings = sequence_settings(run.model.name, run.model.arguments)
    if settings is None:
        return None
    history, width = settings.history[0], run.model.embedding_dim
    features = {each.name: (each, table.embedding_dim) for table in plan.workload.tables for each in table.features}
    if history in features:
        events, width = features[history]
    else:  # of a table that is stored smaller, each lookup has a feature
        events = next(each for name, (each, _) in features.items() if name.startswith(physical(history, "")))
    pooled = [each for each in plan.workload.tables if each.pooled]
    others = sum(each.embedding_dim * len(each.features) for each in pooled)
    known = np.array([events.pooling_factor]) if lengths is None or not len(lengths) else lengths
    work = layer_work(settings, width, lengths=known, others=others, labels=1)
    return work if lengths is None else replace(work, different=_different(lengths, plan.workload.batch_size))


def _different(lengths: Ints, batch: int) -> float:
    """How many lengths a batch has, where each of its samples is one of these; where it has all of them, how many."""
    _, counts = np.unique(lengths, return_counts=True)
    if len(lengths) == batch:
        return float(len(counts))
    return float((1 - (1 - counts / len(lengths)) ** batch).sum())


def memory_of(
    run: Run, plan: Plan, shapes: Shapes, state: DenseState, lengths: Ints | None = None
) -> list[RankMemory]:  # fmt: skip
    """What each rank holds, and has on disk.

    plan: as `planned_as_run` makes it. shapes: of dense parameters. state: that their optimizer keeps. lengths: of some
    histories, where they are known.
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
    """UsageError where ranks of this machine hold more than it has, or than its cgroup allows. here: how many they are.

    device: 'cuda' of ranks on GPUs, which hold it there.
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
    """What to do against what takes most of the fullest rank."""
    most = max(memory, key=lambda each: each.total)
    if most.tables >= max(most.batch, most.layers):
        return "use more machines, or keep rows on disk (docs/tiers.md)"
    what, bytes_ = ("dense layers", most.layers) if most.layers > most.batch else ("ids and outputs", most.batch)
    return f"{format_size(bytes_)} of a rank are for {what}: take smaller batches, or shorter histories"


def dense_bytes(run: Run, plan: Plan, shapes: Shapes, state: int, lengths: Ints | None) -> DenseBytes:
    """Weights, gradients and DDP's buckets of them, state of dense layers; outputs of layers and their gradients.

    state: bytes of a rank. Others as of `memory_of`.
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
    """Of a checkpoint: all weights and the state of their optimizers. state: of dense layers."""
    tables, total = {table.name: table for table in plan.workload.tables}, 0.0
    for placement in plan.placements:
        table, pieces = tables[placement.table], max(1, len(placement.widths))
        kept = OPTIMIZERS[plan.workload.optimizer_of(table)]
        numbers = table.num_embeddings * (table.embedding_dim * kept.element_states + pieces * kept.row_states)
        total += table.weight_bytes + STATE_BYTES * numbers
    return round(total + numbers_of(shapes) * NUMBER_BYTES + state.saved)
