# pyright: basic
"""What each local rank runs while collectives are measured (imports torch)."""

import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

SMALLEST, LARGEST = 2**6, 2**24  # bytes; what one machine's ranks pass to each other in a step
REPETITIONS = 15  # turns of all sizes; a disturbance hits many sizes once, not one size often


def measure_collectives(seed: int, sizes: int) -> list[dict[str, Any]]:
    """Seconds of all-to-alls and all-reduces of some sizes: what the last rank to come sees, by the lower quartile."""
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
    """Seconds of a collective on the rank that came last, which is the one that sees least of it."""
    dist.barrier()
    begun = time.perf_counter()
    call()
    mine = torch.tensor([time.perf_counter() - begun], dtype=torch.float64)
    dist.all_reduce(mine, dist.ReduceOp.MIN)
    return float(mine)
