# pyright: basic
"""What each local rank runs while collectives are measured (imports torch)."""

import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

SMALLEST, LARGEST = 2**6, 2**24  # bytes; what one machine's ranks pass to each other in a step
REPETITIONS = 9


def measure_collectives(seed: int, sizes: int) -> list[dict[str, Any]]:
    """Seconds of all-to-alls and all-reduces of some sizes: what the last rank to come sees, by the lower quartile."""
    from recsmith.prediction.extraction import usual

    draws, found = np.random.default_rng(seed), []
    for place in range(sizes):
        share = (place + float(draws.random())) / sizes
        count = max(dist.get_world_size(), round(SMALLEST * (LARGEST / SMALLEST) ** share / 4))
        count -= count % dist.get_world_size()
        one, other = torch.ones(count), torch.empty(count)
        for name, call in (("all_to_all", lambda a=one, b=other: dist.all_to_all_single(b, a)),
                           ("all_reduce", lambda a=one: dist.all_reduce(a, dist.ReduceOp.MAX))):  # fmt: skip
            seconds = usual([_once(call) for _ in range(REPETITIONS)][1:])
            found.append({"name": name, "ranks": dist.get_world_size(), "bytes": 4.0 * count, "seconds": seconds})
    return found


def _once(call: Any) -> float:
    dist.barrier()
    begun = time.perf_counter()
    call()
    seen: list[Any] = [None] * dist.get_world_size()
    mine = time.perf_counter() - begun
    dist.all_gather_object(seen, mine)
    return min(seen)
