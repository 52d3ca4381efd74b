"""Verifies a plan by a job: trains it on this machine's ranks, and compares time and memory with the predictions.

The code here, in the calling process, does not need torch. job_ranks.py holds the code of every rank.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsmith._process import proc_bytes
from recsmith.adapters.installed import require_torchrec
from recsmith.clusters import group_and_rank, whole_job
from recsmith.errors import UsageError
from recsmith.jobs.launch import launch
from recsmith.planning.simulate import price_plan
from recsmith.plans import Placement, Plan, plan_to_raw
from recsmith.problems.rank_bytes import predicted_bytes
from recsmith.sharding import DEVICE_KERNELS, KEY_VALUE
from recsmith.units import format_size
from recsmith.verifying.job_ranks import WARM_UP
from recsmith.verifying.verification import JobProgress, JobVerification, RankMeasure
from recsmith.workloads import Table
from recsmith.workloads.optimizers import CPU_OPTIMIZERS

MOST_RANKS = 16  # processes of one machine; trade-off: more could run, but share its cores
RANK_BYTES = 450 << 20  # resident in a rank before it has tables: torch, FBGEMM, TorchRec
DATA_TYPES = ("fp32", "fp16")  # data types that FBGEMM trains on CPU


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
    """Raise UsageError if the plan's ranks, optimizer, data types or kernels cannot be trained here."""
    world = plan.cluster.job_world_size
    if world > MOST_RANKS:
        raise UsageError(
            f"the plan has {world} ranks; this machine runs at most {MOST_RANKS}: plan for a smaller cluster, such as "
            f"{plan.cluster.device.name}:{min(MOST_RANKS, plan.cluster.local_world_size)}"
        )
    odd = next((each for each in plan.workload.optimizers if each not in CPU_OPTIMIZERS), None)
    if odd is not None:
        raise UsageError(f"the plan's optimizer is {odd}; verify trains {', '.join(CPU_OPTIMIZERS)}")
    tables = {table.name: table for table in plan.workload.tables}
    for placement in plan.placements:
        _check_placement(tables[placement.table], placement, plan.workload.optimizer)
    if not Path("/proc/self/clear_refs").exists():
        raise UsageError("verify reads peak memory from /proc/self, which this system does not have; run it on Linux")


def _check_placement(table: Table, placement: Placement, optimizer: str) -> None:
    where = f"table '{table.name}'"
    if table.data_type not in DATA_TYPES:
        raise UsageError(f"{where} is {table.data_type}; FBGEMM trains {', '.join(DATA_TYPES)} on CPU: plan with those")
    if placement.compute_kernel not in DEVICE_KERNELS:
        need = "a run's folder" if placement.compute_kernel == KEY_VALUE.name else "a GPU"
        raise UsageError(
            f"{where} uses {placement.compute_kernel}, which needs {need}; plan with --kernels fused,dense"
        )
    if placement.sharding_type == "data_parallel" and table.optimizer not in (None, optimizer):
        raise UsageError(
            f"{where} is data_parallel and has optimizer {table.optimizer}; verify steps all such tables by one, that "
            f"of the workload ({optimizer}): plan without data_parallel (--types)"
        )
    if placement.sharding_type == "data_parallel" and not table.pooled:
        raise UsageError(
            f"{where} is a data_parallel sequence, which FBGEMM pools on CPU; plan without data_parallel (--types)"
        )


def check_memory(predicted: list[int]) -> None:
    """Raise UsageError if ranks that need these bytes each for embeddings exceed this machine's memory."""
    needed = sum(predicted) + RANK_BYTES * len(predicted)
    free = proc_bytes("meminfo", "MemAvailable")
    if needed > free:
        raise UsageError(
            f"the plan's {len(predicted)} ranks need {format_size(needed)} on this machine, which has "
            f"{format_size(free)} available; lower --batch-size, or verify a plan of smaller tables"
        )


STEPS = 5  # timed steps: medians of fewer would depend on one; trade-off, more take longer


def verify_job(
    plan: Plan, *, steps: int = STEPS, batch_size: int | None = None,
    on_progress: Callable[[JobProgress], object] | None = None,
) -> JobVerification:  # fmt: skip
    """Train a plan under TorchRec's DistributedModelParallel on this machine's CPU, one process per rank.

    A plan for a sharding group trains in all groups of its 2D job, synchronised after every step; ranks are the job's.

    Args:
        plan: the plan.
        steps: number of timed steps.
        batch_size: samples per rank and step, instead of the plan's.
        on_progress: called with the current stage and step.

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
    times = price_plan(plan).per_device
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
    """The measurements of each rank of the plan's job; reports progress."""
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
    """Ranks that start inside the context see no GPU, so that only the CPU's memory is measured."""
    name = "CUDA_VISIBLE_DEVICES"
    before = os.environ.get(name)
    os.environ[name] = ""
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before
