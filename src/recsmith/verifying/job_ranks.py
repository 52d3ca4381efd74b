"""Code of every rank of a verification (see jobs/launch.py): trains a plan and measures its seconds and memory.

The memory that a rank allocates for embeddings is its peak resident memory during a step minus that before tables and
batches existed. Three steps keep this accurate: a small copy of the plan trains first, so that libraries, threads and
sockets count as memory from before; freed memory is returned to the system at once; and every page of weights and
optimizer state is written before the first step. Peaks are of forward and backward, over all steps including the first.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from recsmith._process import proc_bytes, return_freed_memory, settle
from recsmith.jobs.log import write_message
from recsmith.plans import Plan, plan_from_raw

WARM_UP = 2  # untimed steps; trade-off: more of them leave out more of the start, and take longer
SMALL_ROWS, SMALL_BATCH = 256, 8  # rows of a table, samples of a rank, in the copy that trains first; any small ones do


def measure(plan: dict[str, Any], steps: int, seed: int = 0) -> dict[str, float]:
    """Train a plan on this rank: medians of the steps' seconds, and the peak bytes of embeddings."""
    made = plan_from_raw(plan, "job")
    return_freed_memory()
    _train(_shrunk(made), 1, seed, lambda _: None)
    settle()
    before = proc_bytes("self/status", "VmRSS")
    done = _train(made, WARM_UP + steps, seed, write_message)
    timed = done[WARM_UP:]
    return {
        "peak": max(step["peak"] for step in done) - before,
        **{f"{part}_s": statistics.median(step[part] for step in timed) for part in ("forward", "backward", "step")},
    }


def _shrunk(plan: Plan) -> Plan:
    """The same placements over tables of a few rows."""
    tables = [replace(table, num_embeddings=min(table.num_embeddings, SMALL_ROWS)) for table in plan.workload.tables]
    return replace(plan, workload=replace(plan.workload, tables=tuple(tables), batch_size=SMALL_BATCH))


def _train(plan: Plan, steps: int, seed: int, on_step: Callable[[int], object]) -> list[dict[str, float]]:
    """Seconds and peak of each step; batches differ by step and rank. on_step: called before each, with its number."""
    import torch
    import torch.distributed as dist

    from recsmith.jobs.sharded_model import sharded_model
    from recsmith.jobs.workload_model import random_batch

    sharded, dense = sharded_model(plan, plan.workload.optimizer)
    with torch.no_grad():  # fresh zeros take no memory until they are written
        for tensor in [*sharded.parameters(), *sharded.buffers()]:
            tensor.mul_(1)
    generator = torch.Generator().manual_seed(seed * dist.get_world_size() + dist.get_rank())
    done: list[dict[str, float]] = []
    for number in range(steps):
        on_step(number)
        batch = random_batch(plan.workload, plan.workload.batch_size, generator)
        settle()
        dist.barrier()
        done.append(_step(sharded, dense, batch))
        del batch
    return done


def _step(sharded: Any, dense: Any, batch: Any) -> dict[str, float]:
    """One step whose loss takes no memory of its own; outputs are kept until backward is over, as in a model."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak to what is resident now
    begun = time.perf_counter()
    if dense is not None:
        dense.zero_grad()
    outputs = sharded(batch)
    total = cast(Any, sum(values.sum() for values in outputs.values()))
    forward = time.perf_counter()
    total.backward()
    if dense is not None:
        dense.step()
    if hasattr(sharded, "sync"):  # DMPCollection
        sharded.sync()
    ended = time.perf_counter()
    peak = proc_bytes("self/status", "VmHWM")
    return {"forward": forward - begun, "backward": ended - forward, "step": ended - begun, "peak": peak}
