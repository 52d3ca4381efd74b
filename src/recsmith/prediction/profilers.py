# pyright: basic
"""PyTorch's profiler as a capture uses it: what it records, what it costs, and the memory that it takes.

Imports torch.
"""

import gzip
import json
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

POOL_BYTES, POOL_BLOCK = 256 * 2**20, 2**16  # memory that is touched before the profiler takes some
PROBES = 200  # small steps that are run with and without the profiler to see what an operator costs


def profiler(*, shapes: bool, gpu: bool = True) -> Any:
    """A profiler that records every step. shapes: also those of inputs. gpu: also its kernels, where there is one."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if gpu and torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    return torch.profiler.profile(activities=activities, record_shapes=shapes, acc_events=True,
                                  schedule=lambda _: torch.profiler.ProfilerAction.RECORD)  # fmt: skip


def write_trace(path: Path, profilers: Sequence[Any]) -> None:
    """Write one trace, gzipped, of what several profilers recorded one after the other."""
    traces: list[dict[str, Any]] = []
    for each in profilers:
        each.export_chrome_trace(str(path))
        traces.append(json.loads(gzip.decompress(path.read_bytes())))
    events = [event for trace in traces for event in trace["traceEvents"]]
    path.write_bytes(gzip.compress(json.dumps(traces[0] | {"traceEvents": events}).encode()))


def profiler_costs() -> tuple[float, float]:
    """Seconds that the profiler adds to an operator and to an annotation: small ones with it and without it.

    Medians of this thread's own time, which other processes disturb least. Optimizers annotate their steps.
    """
    left, right, bias = (torch.zeros(4, 4, requires_grad=True) for _ in range(3))

    def operate() -> None:
        torch.nn.functional.linear(left, right, bias[0]).sum().backward()

    def annotate() -> None:
        with torch.profiler.record_function("recsmith"):
            pass

    plain = [_usual(operate), _usual(annotate)]
    with profiler(shapes=False, gpu=False) as watching:
        watched = [_usual(operate), _usual(annotate)]
    operators = sum(event.name != "recsmith" for event in watching.events()) / PROBES
    added = [max(0.0, slow - fast) for slow, fast in zip(watched, plain, strict=True)]
    return added[0] / operators, added[1]


def touched_pool() -> Any:
    """Memory of the heap that is mapped and free, for as long as what is returned is kept.

    The profiler's records cut up the blocks that tensors are freed to. Tensors would then get fresh memory, whose first
    touch takes longer than most kernels; with the pool they get some that was touched before.
    """
    blocks = [torch.zeros(POOL_BLOCK, dtype=torch.uint8) for _ in range(POOL_BYTES // POOL_BLOCK)]
    last = torch.zeros(POOL_BLOCK, dtype=torch.uint8)  # above the others: freed memory below it stays the process's
    del blocks
    return last


def mapped_pages() -> int:
    """Pages that this thread has mapped so far."""
    who = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)  # threads are counted on Linux alone
    return resource.getrusage(who).ru_minflt


def _usual(call: Callable[[], object]) -> float:
    """Seconds of a call: the median."""
    spent: list[float] = []
    for _ in range(PROBES):
        begun = time.thread_time()
        call()
        spent.append(time.thread_time() - begun)
    return statistics.median(spent)
