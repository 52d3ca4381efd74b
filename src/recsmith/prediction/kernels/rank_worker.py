# pyright: basic
"""Code that each local rank runs while collectives are measured (imports torch)."""

import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

SMALLEST, LARGEST = 2**6, 2**24  # bytes that one machine's ranks send to each other in a step
REPETITIONS = 15  # turns through all sizes, so that a disturbance hits many sizes once, and not one size often


def measure_collectives(seed: int, sizes: int) -> list[dict[str, Any]]:
    """Seconds of all-to-alls and all-reduces of some sizes: as the last rank sees them, lower quartile of the turns."""
    from recsmith.prediction.kernels.times import usual

    draws, ranks = np.random.default_rng(seed), dist.get_world_size()
    cases: list[tuple[str, float, Any]] = []
    for place in range(sizes):
        share = (place + float(draws.random())) / sizes
        count = max(ranks, round(SMALLEST * (LARGEST / SMALLEST) ** share / 4))
        count -= count % ranks
        one, other = torch.ones(count), torch.empty(count)
        cases.append(("all_to_all", 4.0 * count, lambda a=one, b=other: dist.all_to_all_single(b, a)))
        cases.append(("all_reduce", 4.0 * count, lambda a=one: dist.all_reduce(a, dist.ReduceOp.MAX)))
    turns = [[_once(call) for _, _, call in cases] for _ in range(1 + REPETITIONS)][1:]
    return [{"name": name, "ranks": ranks, "bytes": size, "seconds": usual([turn[place] for turn in turns])}
            for place, (name, size, _) in enumerate(cases)]  # fmt: skip


def _once(call: Any) -> float:
    """Seconds of a collective on the rank that arrived last, which sees the shortest time."""
    dist.barrier()
    begun = time.perf_counter()
    call()
    mine = torch.tensor([time.perf_counter() - begun], dtype=torch.float64)
    dist.all_reduce(mine, dist.ReduceOp.MIN)
    return float(mine)
