"""Verifies a plan by a job: trains it on this machine's ranks, beside what was predicted of time and memory.

Here, in the calling process, nothing needs torch. What the machine can run is in refusals.py, what memory is compared
with in predicted_memory.py, and what runs on every rank in ranks.py.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from recsmith.adapters.installed import require_torchrec
from recsmith.clusters import group_and_rank, whole_job
from recsmith.jobs.launch import launch
from recsmith.planning.simulate import simulate
from recsmith.plans import Plan, plan_to_raw
from recsmith.verifying.jobs.predicted_memory import predicted_bytes
from recsmith.verifying.jobs.ranks import WARM_UP
from recsmith.verifying.jobs.refusals import check_memory, check_plan, runnable
from recsmith.verifying.jobs.verification import JobProgress, JobVerification, RankMeasure

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
            "recsmith.verifying.jobs.ranks:measure",
            {"plan": plan_to_raw(replace(plan, digest="")), "steps": steps},
            ranks=job.world_size,
            hosts=job.hosts,
            on_told=lambda number: on_progress(_training(number, steps, job.world_size)),
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
    word = "CUDA_VISIBLE_DEVICES"
    before = os.environ.get(word)
    os.environ[word] = ""
    try:
        yield
    finally:
        os.environ.pop(word)
        if before is not None:
            os.environ[word] = before
