"""Verifies a plan by a job: trains it on this machine's ranks, beside what was predicted of time and memory.

Here, in the calling process, nothing needs torch. What runs on every rank is in job_ranks.py.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recsmith._process import proc_bytes
from recsmith.adapters.installed import require_torchrec
from recsmith.clusters import group_and_rank, whole_job
from recsmith.errors import UsageError
from recsmith.jobs.launch import launch
from recsmith.planning.simulate import simulate
from recsmith.plans import Placement, Plan, plan_to_raw
from recsmith.problems.memory import local_batch_bytes
from recsmith.problems.modes import Demand
from recsmith.sharding import DEVICE_KERNELS, KERNEL_NAMES, KEY_VALUE, Shard
from recsmith.sharding.memory import Pieces, real_bytes, real_parts
from recsmith.units import format_size
from recsmith.verifying.job_ranks import WARM_UP
from recsmith.verifying.verification import JobProgress, JobVerification, RankMeasure
from recsmith.workloads import Table
from recsmith.workloads.optimizers import CPU_OPTIMIZERS

ALL_TO_ALL = ("table_wise", "column_wise")  # pooled outputs arrive as columns, which backward sorts by rank


def predicted_bytes(plan: Plan) -> list[tuple[int, int]]:
    """(bytes of its shards in the `real` accounting on CPU, bytes of its batch and outputs) of each rank.

    Of tables that the plan keeps on disk, what is in memory counts.
    """
    shards = plan.shards()
    pieces, optimizer, pipeline = _pieces_of(plan, shards), plan.workload.optimizer, plan.workload.pipeline
    parts, whole = real_parts(pieces, optimizer, pipeline), real_bytes(pieces, optimizer, pipeline).device
    ranks = np.array([shard.rank for shard in shards])
    return [
        (int(whole[ranks == rank].sum()), _batch_bytes(plan, int(parts.sort[ranks == rank].sum())))
        for rank in range(plan.cluster.world_size)
    ]


def bytes_on_disk(plan: Plan) -> list[int]:
    """Bytes of the file of each rank, of tables that the plan keeps on disk, with their optimizer state."""
    shards = plan.shards()
    stored = real_bytes(_pieces_of(plan, shards), plan.workload.optimizer, plan.workload.pipeline).host
    ranks = np.array([shard.rank for shard in shards])
    return [int(stored[ranks == rank].sum()) for rank in range(plan.cluster.world_size)]


def _pieces_of(plan: Plan, shards: tuple[Shard, ...]) -> Pieces:
    """Every shard on its own rank, with what is looked up in it."""
    tables = {table.name: table for table in plan.workload.tables}
    kinds = {placement.table: placement.kind for placement in plan.placements}
    kernels = {placement.table: KERNEL_NAMES.index(placement.compute_kernel) for placement in plan.placements}
    factors = {placement.table: placement.load_factor for placement in plan.placements}
    policies = {placement.table: placement.cache_policy for placement in plan.placements}
    mine = [tables[shard.table] for shard in shards]
    types = [kinds[shard.table] for shard in shards]
    demand = Demand.of(plan.workload, tuple(mine))
    times = np.array([kind.samples_share(plan.cluster) for kind in types])
    spreads = [
        kind.spread(table, shard.rows, plan.cluster, plan.workload.hot_rows)
        for kind, table, shard in zip(types, mine, shards, strict=True)
    ]
    ids = demand.ids / np.array(spreads) * times
    return Pieces(
        rows=np.array([shard.rows[1] - shard.rows[0] for shard in shards]),
        width=np.array([shard.columns[1] - shard.columns[0] for shard in shards]),
        table_rows=demand.rows, table_dim=demand.dim, element_bytes=demand.element_bytes,
        ids=ids, bags=np.where(demand.pooled, demand.bags * times, ids),
        outputs=np.where(demand.pooled, demand.outputs * times, ids),
        weighted=demand.weighted, int8=demand.int8,
        data_parallel=np.array([kind.name == "data_parallel" for kind in types]),
        kernel=np.array([kernels[shard.table] for shard in shards]),
        cache_load_factor=np.array([factors[shard.table] for shard in shards]),
        on_cpu=True, counted=np.array([policies[shard.table] == "static" for shard in shards]),
        sequence=~demand.pooled, mean=np.array([table.pooling == "mean" for table in mine]),
        gathered=np.array([kind.splits_rows for kind in types]) & demand.pooled,
    )  # fmt: skip


def _batch_bytes(plan: Plan, sort: int) -> int:
    """Bytes of the local batch, its outputs and their gradients at the peak of a step; every rank has the same batch.

    Gradients of outputs (and, where they leave by an all-to-all, their copy in order of ranks) are freed before FBGEMM
    sorts ids, so they count only as far as they exceed the sort. One rank sends nothing: its lookups are its outputs.
    """
    workload, types = plan.workload, {placement.table: placement.sharding_type for placement in plan.placements}
    alone = plan.cluster.world_size == 1
    batch, outputs, gradients = 0.0, 0.0, 0.0
    for table in workload.tables:
        ids, given = local_batch_bytes(table, workload)
        outputs += given
        if not alone and types[table.name] != "data_parallel":  # which looks up in the local batch itself
            batch += ids
            gradients += given * (2 if types[table.name] in ALL_TO_ALL or not table.pooled else 1)
    return int(batch + outputs + max(0.0, gradients - sort))


MOST_RANKS = 16  # processes of one machine; trade-off: more could run, but share its cores
RANK_BYTES = 450 << 20  # resident in a rank before it has tables: torch, FBGEMM, TorchRec
DATA_TYPES = ("fp32", "fp16")  # that FBGEMM trains on CPU


def runnable(plan: Plan, batch_size: int | None) -> Plan:
    """The plan as the local job trains it: one batch size, one bag per sample and feature, no pipeline."""
    workload = plan.workload
    workload = replace(
        workload,
        batch_size=batch_size or workload.batch_size,
        pipeline="none",
        tables=tuple(_one_bag(table) for table in workload.tables),
    )
    return replace(plan, workload=workload)


def _one_bag(table: Table) -> Table:
    features = tuple(
        replace(f, pooling_factor=f.pooling_factor * f.num_poolings, num_poolings=1.0, batch_size=None)
        for f in table.features
    )
    return replace(table, features=features)


def check_plan(plan: Plan) -> None:
    """UsageError where the plan's ranks, optimizer, data types or kernels cannot be trained here."""
    world = plan.cluster.job_world_size
    if world > MOST_RANKS:
        raise UsageError(
            f"the plan has {world} ranks; this machine runs at most {MOST_RANKS}: plan for a smaller cluster, such as "
            f"{plan.cluster.device.name}:{min(MOST_RANKS, plan.cluster.local_world_size)}"
        )
    if plan.workload.optimizer not in CPU_OPTIMIZERS:
        trained = ", ".join(CPU_OPTIMIZERS)
        raise UsageError(f"the plan's optimizer is {plan.workload.optimizer}; verify trains {trained}")
    tables = {table.name: table for table in plan.workload.tables}
    for placement in plan.placements:
        _check_placement(tables[placement.table], placement)
    if not Path("/proc/self/clear_refs").exists():
        raise UsageError("verify reads peak memory from /proc/self, which this system does not have; run it on Linux")


def _check_placement(table: Table, placement: Placement) -> None:
    where = f"table '{table.name}'"
    if table.data_type not in DATA_TYPES:
        raise UsageError(f"{where} is {table.data_type}; FBGEMM trains {', '.join(DATA_TYPES)} on CPU: plan with those")
    if placement.compute_kernel not in DEVICE_KERNELS:
        need = "a run's folder" if placement.compute_kernel == KEY_VALUE.name else "a GPU"
        raise UsageError(
            f"{where} uses {placement.compute_kernel}, which needs {need}; plan with --kernels fused,dense"
        )
    if placement.sharding_type == "data_parallel" and not table.pooled:
        raise UsageError(
            f"{where} is a data_parallel sequence, which FBGEMM pools on CPU; plan without data_parallel (--types)"
        )


def check_memory(predicted: list[int]) -> None:
    """UsageError where ranks that need so many bytes each for embeddings do not fit into this machine's memory."""
    needed = sum(predicted) + RANK_BYTES * len(predicted)
    free = proc_bytes("meminfo", "MemAvailable")
    if needed > free:
        raise UsageError(
            f"the plan's {len(predicted)} ranks need {format_size(needed)} on this machine, which has "
            f"{format_size(free)} available; lower --batch-size, or verify a plan of smaller tables"
        )


STEPS = 5  # that are timed: medians of fewer would hang on one; trade-off, more take longer


def verify_job(
    plan: Plan, *, steps: int = STEPS, batch_size: int | None = None,
    on_progress: Callable[[JobProgress], object] | None = None,
) -> JobVerification:  # fmt: skip
    """Train a plan under TorchRec's DistributedModelParallel on this machine's CPU, one process per rank.

    A plan for a sharding group trains in all groups of its 2D job, synchronised after every step; ranks are the job's.
    steps: that are timed. batch_size: samples per rank and step, instead of the plan's. on_progress(progress): hears
    what is under way.

    Raises:
        UsageError: this machine cannot run the plan: ranks, memory, data types, kernels or optimizer.
        MissingExtra: torch is not installed.
    """
    plan = runnable(plan, batch_size)
    check_plan(plan)
    require_torchrec()
    predicted = predicted_bytes(plan)
    replicas = plan.cluster.job_world_size // plan.cluster.world_size
    check_memory([shards + base for shards, base in predicted] * replicas)
    times = simulate(plan).cost.per_device
    measured = _measured(plan, steps, on_progress or (lambda _: None))
    ranks = tuple(
        RankMeasure(
            rank=rank, forward_s=found["forward_s"], backward_s=found["backward_s"], step_s=found["step_s"],
            predicted_s=times[planned].busy_s + times[planned].wait_s,
            shards_bytes=predicted[planned][0], base_bytes=predicted[planned][1], peak_bytes=found["peak"],
        )
        for rank, found in enumerate(measured)
        for planned in (group_and_rank(plan.cluster, rank)[1],)
    )  # fmt: skip
    return JobVerification(plan=plan, steps=steps, ranks=ranks)


def _measured(plan: Plan, steps: int, on_progress: Callable[[JobProgress], object]) -> list[Any]:
    """What each rank of the plan's job measured; says what is under way."""
    job = whole_job(plan.cluster)
    on_progress(JobProgress(stage="starting", ranks=job.world_size))
    with without_gpu():
        measured = launch(
            "recsmith.verifying.job_ranks:measure",
            {"plan": plan_to_raw(replace(plan, digest="")), "steps": steps},
            ranks=job.world_size,
            hosts=job.hosts,
            on_message=lambda number: on_progress(_training(number, steps, job.world_size)),
        )
    on_progress(JobProgress(stage="comparing", ranks=job.world_size))
    return measured


def _training(number: int, steps: int, ranks: int) -> JobProgress:
    """The progress of a step; number: from 0, the first ones warm up."""
    if number < WARM_UP:
        return JobProgress(stage="warming up", ranks=ranks, step=1 + number, steps=WARM_UP)
    return JobProgress(stage="training", ranks=ranks, step=1 + number - WARM_UP, steps=steps)


@contextmanager
def without_gpu() -> Generator[None]:
    """Ranks started within see no GPU: what is measured is the CPU's memory."""
    name = "CUDA_VISIBLE_DEVICES"
    before = os.environ.get(name)
    os.environ[name] = ""
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before
