"""Jobs that something happens to, for benchmarks/watching.py: a source that breaks, and a watcher that breaks a job.

A run names them as `data.train: {source: "watching_jobs:Disturbed", ...}` and `watchers: ["watching_jobs:Disturbs"]`.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch.distributed as dist

from recsmith.data import Batch, Dataset, Position, open_dataset, spec_from_raw
from recsmith.files import decode, encode
from recsmith.training.watchers.protocol import Seen, Watcher, Wish

WINDOW = 24  # batches of the window that a worker repeats


class Disturbed:
    """Samples of the generator in their order, broken in some ranges of steps.

    generator: its spec. faults: by name [first, last] steps: zeros (one feature's ids), flipped (labels), repeats (a
    rank's last batches come again), slow_reader (rank 1 waits so many seconds).
    """

    length = None

    def __init__(self, *, generator: dict[str, Any], faults: dict[str, list[int]] | None = None, seconds: float = 0.03):
        self.dataset: Dataset = open_dataset(spec_from_raw({"format": "generator", **generator}, "generator"))
        self.schema, self.faults, self.seconds = self.dataset.schema, faults or {}, seconds

    def batches(self, rank: int, world: int, size: int, state: Any) -> Iterator[tuple[Batch, Any]]:
        """In order, as many as the generator has."""
        step, kept = (state["step"] if state else 0), list[Batch]()
        with self.dataset.batches(
            rank=rank,
            world_size=world,
            batch_size=size,
            seed=0,
            shuffle=False,
            position=state and decode(Position, state["position"], "the state"),
        ) as source:
            for batch in source:
                step += 1
                made = self._broken(batch, step, rank, kept)
                kept = [*kept, batch][-WINDOW:]
                yield made, {"step": step, "position": encode(source.position)}

    def _broken(self, batch: Batch, step: int, rank: int, kept: list[Batch]) -> Batch:
        def now(fault: str) -> bool:
            first, last = self.faults.get(fault, [1, 0])
            return first <= step <= last

        if now("zeros"):
            name = self.schema.features[0].name
            bags = batch.ids[name]
            batch = replace(batch, ids={**batch.ids, name: replace(bags, values=np.zeros_like(bags.values))})
        if now("flipped"):
            batch = replace(batch, labels=1 - batch.labels)
        if now("repeats") and rank == 0 and kept:
            batch = kept[0]
        if now("slow_reader") and rank == 1:
            time.sleep(self.seconds)
        return batch

    def steps(self, sizes: Any, world: int) -> int | None:
        """Not said; the run says its steps."""

    def notes(self, sizes: Any, world: int, state: Any) -> list[str]:
        """None."""
        return []


class Disturbs(Watcher):
    """Breaks a job from a step on: learning rates grow at `rate_at`; rank 1 is slow in a range of steps."""

    def __init__(
        self, *, rate_at: int = 0, factor: float = 10.0, slow: tuple[int, ...] = (), seconds: float = 0.03
    ) -> None:
        self.rate_at, self.factor, self.slow, self.seconds = rate_at, factor, slow, seconds
        self.hooked, self.step = False, 0

    def look(self, seen: Seen) -> Wish | None:
        """After a step, for the next one."""
        self.step = seen.step
        if self.slow and not self.hooked and dist.get_rank() == 1:
            self.hooked = True
            linear = next(each for each in seen.job.sharded.model.modules() if type(each).__name__ == "Linear")
            forward = linear.forward
            linear.forward = lambda *given: (self._sleep(), forward(*given))[1]
        if seen.step == self.rate_at:
            groups: Any = seen.job.sharded.optimizer.param_groups
            for group in groups:
                group["lr"] *= self.factor

    def _sleep(self) -> None:
        if self.slow[0] <= self.step <= self.slow[1]:
            time.sleep(self.seconds)


def generator(seed: int, *, samples: int, features: int = 6, rows: int = 2000, **more: Any) -> Mapping[str, Any]:
    """A spec of small tables."""
    named = [{"name": f"f{i}", "num_embeddings": rows, "zipf": 1.05} for i in range(features)]
    return {"num_samples": samples, "features": named, "dense": 3, "seed": seed, **more}
