"""Runs a plan for real, on this machine's ranks, and holds what it takes against what was predicted.

`measure` runs on every rank of a local job (see launch.py); everything else in the calling process, without torch.

What a rank allocates for embeddings is its peak resident memory during a step less what it had before tables and
batches existed. Three things keep that honest: a small copy of the plan trains first, so that libraries, threads and
sockets count as there before; freed memory goes back to the system at once; and every page of weights and optimizer
state is written before the first step. Peaks are of forward and backward, over all steps, the first one included.
"""

import ctypes
import gc
import os
import statistics
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from recsmith._types import noun
from recsmith.bridge.doctor import require_torch
from recsmith.bridge.launch import launch
from recsmith.costs.simulate import simulate
from recsmith.errors import UsageError
from recsmith.plans import Placement, Plan, plan_from_raw, plan_to_raw
from recsmith.problems.demand import Demand
from recsmith.sharding import KERNELS, Shard
from recsmith.sharding.memory import Parts, Pieces, real_parts
from recsmith.units import format_size
from recsmith.workloads import Table, Workload

MOST_RANKS = 16
RANK_BYTES = 450 << 20  # resident in a rank before it has tables: torch, FBGEMM, TorchRec
STEPS = 5
WARM_UP = 2  # steps that are not timed
SMALL_ROWS, SMALL_BATCH = 256, 8  # of the copy that trains first
DATA_TYPES = ("fp32", "fp16")  # that FBGEMM trains on CPU
OPTIMIZERS = ("sgd", "adagrad", "rowwise_adagrad")
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # mallopt(3)
MMAP_THRESHOLD = 65_536  # larger blocks go back to the system when they are freed
ALL_TO_ALL = ("table_wise", "column_wise")  # pooled outputs arrive as columns, which backward sorts by rank


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
class Verification:
    """What a plan took when it ran."""

    plan: Plan
    steps: int
    ranks: tuple[RankMeasure, ...]

    @property
    def worst_memory(self) -> float:
        """The largest difference of measured from predicted memory, as a share of the measured."""
        return max(abs(rank.predicted_bytes / max(rank.peak_bytes, 1) - 1) for rank in self.ranks)


def verify(plan: Plan, *, steps: int = STEPS, batch_size: int | None = None) -> Verification:
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
            "recsmith.bridge.verify:measure",
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
    return Verification(plan=plan, steps=steps, ranks=ranks)


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
    if plan.workload.optimizer not in OPTIMIZERS:
        raise UsageError(f"the plan's optimizer is {plan.workload.optimizer}; verify trains {', '.join(OPTIMIZERS)}")
    tables = {table.name: table for table in plan.workload.tables}
    for placement in plan.placements:
        _check_placement(tables[placement.table], placement)
    if not Path("/proc/self/clear_refs").exists():
        raise UsageError("verify reads peak memory from /proc/self, which this system does not have; run it on Linux")


def _check_placement(table: Table, placement: Placement) -> None:
    where = f"table '{table.name}'"
    if table.data_type not in DATA_TYPES:
        raise UsageError(f"{where} is {table.data_type}; FBGEMM trains {', '.join(DATA_TYPES)} on CPU: plan with those")
    if placement.compute_kernel.startswith("fused_uvm"):
        raise UsageError(f"{where} uses {placement.compute_kernel}, which needs a GPU; plan with --kernels fused,dense")
    if placement.sharding_type == "data_parallel" and not table.pooled:
        raise UsageError(
            f"{where} is a data_parallel sequence, which FBGEMM pools on CPU; plan without data_parallel (--types)"
        )


def _check_memory(predicted: list[int]) -> None:
    needed = sum(predicted) + RANK_BYTES * len(predicted)
    free = _proc("meminfo", "MemAvailable")
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


# --- prediction ---------------------------------------------------------------------------------------------------


def predicted_bytes(plan: Plan) -> list[tuple[int, int]]:
    """(bytes of its shards in the `real` accounting on CPU, bytes of its batch and outputs) of each rank."""
    shards = plan.shards()
    parts = real_parts(_pieces(plan, shards), plan.workload.optimizer, plan.workload.pipeline)
    whole = np.sum([getattr(parts, name) for name in Parts.__dataclass_fields__], axis=0)
    ranks = np.array([shard.rank for shard in shards])
    return [
        (int(whole[ranks == rank].sum()), _base(plan, int(parts.sort[ranks == rank].sum())))
        for rank in range(plan.cluster.world_size)
    ]


def _pieces(plan: Plan, shards: tuple[Shard, ...]) -> Pieces:
    """Every shard on its own rank, with what is looked up in it."""
    tables = {table.name: table for table in plan.workload.tables}
    kinds = {placement.table: placement.kind for placement in plan.placements}
    kernels = {placement.table: KERNELS.index(placement.compute_kernel) for placement in plan.placements}
    factors = {placement.table: placement.load_factor for placement in plan.placements}
    mine = [tables[shard.table] for shard in shards]
    types = [kinds[shard.table] for shard in shards]
    asked = Demand.of(plan.workload, tuple(mine))
    divisor, times = np.array([kind.lookup_share(plan.cluster) for kind in types]).T
    ids = asked.ids / divisor * times
    return Pieces(
        rows=np.array([shard.rows[1] - shard.rows[0] for shard in shards]),
        width=np.array([shard.columns[1] - shard.columns[0] for shard in shards]),
        table_rows=asked.rows, table_dim=asked.dim, element_bytes=asked.element_bytes,
        ids=ids, bags=np.where(asked.pooled, asked.bags * times, ids),
        outputs=np.where(asked.pooled, asked.outputs * times, ids),
        weighted=asked.weighted, int8=asked.int8,
        data_parallel=np.array([kind.name == "data_parallel" for kind in types]),
        kernel=np.array([kernels[shard.table] for shard in shards]),
        cache_load_factor=np.array([factors[shard.table] for shard in shards]),
        on_cpu=True, sequence=~asked.pooled, mean=np.array([table.pooling == "mean" for table in mine]),
        gathered=np.array([kind.splits_rows for kind in types]) & asked.pooled,
    )  # fmt: skip


def _base(plan: Plan, sort: int) -> int:
    """Bytes of the local batch, its outputs and their gradients at the peak of a step; every rank has the same batch.

    Gradients of outputs (and, where they leave by an all-to-all, their copy in order of ranks) are freed before FBGEMM
    sorts ids, so they count only as far as they exceed the sort. One rank sends nothing: its lookups are its outputs.
    """
    workload, types = plan.workload, {placement.table: placement.sharding_type for placement in plan.placements}
    alone = plan.cluster.world_size == 1
    batch, outputs, gradients = 0.0, 0.0, 0.0
    for table in workload.tables:
        ids, given = _local(table, workload)
        outputs += given
        if not alone and types[table.name] != "data_parallel":  # which looks up in the local batch itself
            batch += ids
            gradients += given * (2 if types[table.name] in ALL_TO_ALL or not table.pooled else 1)
    return int(batch + outputs + max(0.0, gradients - sort))


def _local(table: Table, workload: Workload) -> tuple[float, float]:
    """(bytes of ids, lengths and offsets, bytes of outputs) of the local batch."""
    asked = Demand.of(workload, (table,))
    ids, bags = float(asked.ids[0]), float(workload.batch_size * len(table.features))
    given = float(asked.bags[0]) * table.embedding_dim * 4
    return ids * (12 if table.weighted else 8) + bags * 16, given


# --- on every rank ------------------------------------------------------------------------------------------------


def measure(plan: dict[str, Any], steps: int, seed: int = 0) -> dict[str, float]:
    """Train a plan on this rank: medians of the steps' seconds, and the bytes that embeddings take at their peak."""
    made = plan_from_raw(plan, "job")
    _return_freed_memory()
    _train(_shrunk(made), 1, seed)
    _settle()
    before = _proc("self/status", "VmRSS")
    done = _train(made, WARM_UP + steps, seed)
    timed = done[WARM_UP:]
    return {
        "peak": max(step["peak"] for step in done) - before,
        **{f"{part}_s": statistics.median(step[part] for step in timed) for part in ("forward", "backward", "step")},
    }


def _shrunk(plan: Plan) -> Plan:
    """The same placements over tables of a few rows."""
    tables = [replace(table, num_embeddings=min(table.num_embeddings, SMALL_ROWS)) for table in plan.workload.tables]
    return replace(plan, workload=replace(plan.workload, tables=tuple(tables), batch_size=SMALL_BATCH))


def _train(plan: Plan, steps: int, seed: int) -> list[dict[str, float]]:
    """Seconds and peak of each step; batches differ from step to step and rank to rank."""
    import torch
    import torch.distributed as dist

    from recsmith.bridge.model import random_batch
    from recsmith.bridge.train import sharded_model

    sharded, dense = sharded_model(plan, plan.workload.optimizer)
    with torch.no_grad():  # fresh zeros take no memory until they are written
        for tensor in [*sharded.parameters(), *sharded.buffers()]:
            tensor.mul_(1)
    generator = torch.Generator().manual_seed(seed * dist.get_world_size() + dist.get_rank())
    done: list[dict[str, float]] = []
    for _ in range(steps):
        batch = random_batch(plan.workload, plan.workload.batch_size, generator)
        _settle()
        dist.barrier()
        done.append(_step(sharded, dense, batch))
        del batch
    return done


def _step(sharded: Any, dense: Any, batch: Any) -> dict[str, float]:
    """One step whose loss takes no memory of its own; outputs live until backward is over, as a model keeps them."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is resident
    begun = time.perf_counter()
    if dense is not None:
        dense.zero_grad()
    outputs = sharded(batch)
    total = cast(Any, sum(values.sum() for values in outputs.values()))
    forward = time.perf_counter()
    total.backward()
    if dense is not None:
        dense.step()
    ended = time.perf_counter()
    peak = _proc("self/status", "VmHWM")
    return {"forward": forward - begun, "backward": ended - forward, "step": ended - begun, "peak": peak}


def _return_freed_memory() -> None:
    """Have glibc give freed blocks back at once, so that resident memory is allocated memory."""
    for option, value in ((M_MMAP_THRESHOLD, MMAP_THRESHOLD), (M_TRIM_THRESHOLD, MMAP_THRESHOLD), (M_ARENA_MAX, 1)):
        ctypes.CDLL(None).mallopt(option, value)


def _settle() -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _proc(file: str, field: str) -> int:
    """Bytes that a file of /proc states in kB."""
    lines = (Path("/proc") / file).read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1]) * 1024
