"""Runs a plan for real, on this machine's ranks, and holds what it takes against what was predicted.

`measure` runs on every rank of a local job (see launch.py); everything else in the calling process, without torch.

What a rank allocates for embeddings is its peak resident memory during a step less what it had before tables and
batches existed. Two things keep that honest: a small copy of the plan trains first, so that libraries, threads and
sockets count as there before; and every page of weights and optimizer state is written before the first step.
"""

import ctypes
import gc
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsmith.plans import Plan, plan_from_raw

WARM_UP = 2  # steps that are not timed
SMALL_ROWS, SMALL_BATCH = 256, 8  # of the copy that trains first
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # mallopt(3)
MMAP_THRESHOLD = 65_536  # larger blocks go back to the system when they are freed


def measure(plan: dict[str, Any], steps: int, seed: int = 0) -> dict[str, Any]:
    """Train a plan on this rank: medians of the steps' seconds, and the bytes that embeddings take at their peak."""
    import torch

    made = plan_from_raw(plan, "job")
    _return_freed_memory()
    _train(shrunk(made), 1, seed)
    gc.collect()
    _libc().malloc_trim(0)
    before = _resident("VmRSS")
    done = _train(made, WARM_UP + steps, seed)
    timed = done[WARM_UP:]
    return {
        "threads": torch.get_num_threads(),
        "before": before,
        "peak": max(step["peak"] for step in done) - before,
        "held": done[-1]["held"] - before,
        "fpeak": done[-1]["fpeak"] - before,
        "bpeak": done[-1]["bpeak"] - before,
        **{f"{part}_s": statistics.median(step[part] for step in timed) for part in ("forward", "backward", "step")},
    }


def shrunk(plan: Plan) -> Plan:
    """The same placements over tables of a few rows."""
    tables = [replace(table, num_embeddings=min(table.num_embeddings, SMALL_ROWS)) for table in plan.workload.tables]
    return replace(plan, workload=replace(plan.workload, tables=tuple(tables), batch_size=SMALL_BATCH))


def _train(plan: Plan, steps: int, seed: int) -> list[dict[str, float]]:
    import torch
    import torch.distributed as dist

    from recsmith.bridge.model import random_batch
    from recsmith.bridge.train import device, sharded_model

    sharded, dense = sharded_model(plan, plan.workload.optimizer)
    _write_pages(sharded)
    generator = torch.Generator().manual_seed(seed * dist.get_world_size() + dist.get_rank())
    done: list[dict[str, float]] = []
    for _ in range(steps):
        batch = random_batch(plan.workload, plan.workload.batch_size, generator).to(device())
        gc.collect()
        _libc().malloc_trim(0)
        dist.barrier()
        done.append(_step(sharded, dense, batch))
        del batch
    return done


def _step(sharded: Any, dense: Any, batch: Any) -> dict[str, float]:
    _forget_peak()
    held = _resident("VmRSS")
    begun = time.perf_counter()
    if dense is not None:
        dense.zero_grad()
    outputs = sharded(batch)
    total = sum(values.sum() for values in outputs.values())
    forward = time.perf_counter()
    forward_peak = _resident("VmHWM")
    _forget_peak()
    total.backward()  # type: ignore[union-attr]
    if dense is not None:
        dense.step()
    ended = time.perf_counter()
    return {
        "forward": forward - begun,
        "backward": ended - forward,
        "step": ended - begun,
        "peak": max(forward_peak, _resident("VmHWM")),
        "fpeak": forward_peak,
        "bpeak": _resident("VmHWM"),
        "held": held,
    }


def _write_pages(sharded: Any) -> None:
    """Write all weights and all state of fused optimizers: fresh zeros take no memory until they are written."""
    import torch

    with torch.no_grad():
        for tensor in [*sharded.parameters(), *sharded.buffers()]:
            tensor.mul_(1)


def _libc() -> Any:
    return ctypes.CDLL(None)


def _return_freed_memory() -> None:
    """Have glibc give freed blocks back at once, so that resident memory is allocated memory."""
    for option, value in ((M_MMAP_THRESHOLD, MMAP_THRESHOLD), (M_TRIM_THRESHOLD, MMAP_THRESHOLD), (M_ARENA_MAX, 1)):
        _libc().mallopt(option, value)


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _resident(field: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024
