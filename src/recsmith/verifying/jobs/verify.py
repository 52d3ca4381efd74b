"""Runs a plan for real, on this machine's ranks, and holds what it takes against what was predicted.

Here, in the calling process, nothing needs torch: what a plan may be, and what it is measured against
(verify_memory.py). What runs on every rank is verify_ranks.py.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from recsmith._process import proc_bytes
from recsmith._types import noun
from recsmith.adapters.doctor import require_torch
from recsmith.errors import UsageError
from recsmith.jobs.launch import launch
from recsmith.planning.simulate import simulate
from recsmith.plans import Placement, Plan, plan_to_raw
from recsmith.sharding import HOST_KERNELS
from recsmith.units import format_size
from recsmith.verifying.jobs.memory import predicted_bytes
from recsmith.workloads import Table
from recsmith.workloads.optimizers import CPU_OPTIMIZERS

MOST_RANKS = 16
RANK_BYTES = 450 << 20  # resident in a rank before it has tables: torch, FBGEMM, TorchRec
STEPS = 5
DATA_TYPES = ("fp32", "fp16")  # that FBGEMM trains on CPU


@noun
class RankMeasure:
    """A rank's step, measured (medians) beside predicted, and the memory of embeddings at its peak.

    shards_bytes: the plan's `real` accounting; base_bytes: its batch, outputs and gradients. The sum is
    predicted_bytes.
    """

    rank: int
    forward_s: float
    backward_s: float
    step_s: float
    predicted_s: float
    shards_bytes: int
    base_bytes: int
    peak_bytes: int

    @property
    def predicted_bytes(self) -> int:
        """What the rank should allocate for embeddings at the peak of a step."""
        return self.shards_bytes + self.base_bytes


@noun
class JobVerification:
    """What a plan took when it ran."""

    plan: Plan
    steps: int
    ranks: tuple[RankMeasure, ...]

    @property
    def worst_memory(self) -> float:
        """The largest difference of measured from predicted memory, as a share of the measured."""
        return max(abs(rank.predicted_bytes / max(rank.peak_bytes, 1) - 1) for rank in self.ranks)


def verify(plan: Plan, *, steps: int = STEPS, batch_size: int | None = None) -> JobVerification:
    """Train a plan under TorchRec's DistributedModelParallel on this machine's CPU, one process per rank.

    batch_size: samples per rank and step, instead of the plan's.

    Raises:
        UsageError: this machine cannot run the plan: ranks, memory, data types, kernels or optimizer.
        MissingExtra: torch is not installed.
    """
    plan = runnable(plan, batch_size)
    _check(plan)
    require_torch()
    predicted = predicted_bytes(plan)
    _check_memory([shards + base for shards, base in predicted])
    times = simulate(plan).cost.per_device
    cluster = plan.cluster
    with _without_gpu():
        measured = launch(
            "recsmith.verifying.jobs.ranks:measure",
            {"plan": plan_to_raw(replace(plan, digest="")), "steps": steps},
            ranks=cluster.world_size,
            hosts=cluster.hosts,
        )
    ranks = tuple(
        RankMeasure(
            rank=rank, forward_s=found["forward_s"], backward_s=found["backward_s"], step_s=found["step_s"],
            predicted_s=times[rank].busy_s + times[rank].wait_s,
            shards_bytes=predicted[rank][0], base_bytes=predicted[rank][1], peak_bytes=found["peak"],
        )
        for rank, found in enumerate(measured)
    )  # fmt: skip
    return JobVerification(plan=plan, steps=steps, ranks=ranks)


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


# --- what this machine can run ------------------------------------------------------------------------------------


def _check(plan: Plan) -> None:
    world = plan.cluster.world_size
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
    if placement.compute_kernel in HOST_KERNELS:
        raise UsageError(f"{where} uses {placement.compute_kernel}, which needs a GPU; plan with --kernels fused,dense")
    if placement.sharding_type == "data_parallel" and not table.pooled:
        raise UsageError(
            f"{where} is a data_parallel sequence, which FBGEMM pools on CPU; plan without data_parallel (--types)"
        )


def _check_memory(predicted: list[int]) -> None:
    needed = sum(predicted) + RANK_BYTES * len(predicted)
    free = proc_bytes("meminfo", "MemAvailable")
    if needed > free:
        raise UsageError(
            f"the plan's {len(predicted)} ranks need {format_size(needed)} on this machine, which has "
            f"{format_size(free)} available; lower --batch-size, or verify a plan of smaller tables"
        )


@contextmanager
def _without_gpu() -> Generator[None]:
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
