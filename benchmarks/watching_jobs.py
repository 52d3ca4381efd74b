"""Jobs that something happens to, for benchmarks/watching*.py: a source that breaks, and watchers that break and time.

A run names them as `data.train: {source: "watching_jobs:Disturbed", ...}` and `watchers: ["watching_jobs:Disturbs"]`.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist

from recsmith._random import mixed
from recsmith.data import Batch, Dataset, Position, open_dataset, spec_from_raw
from recsmith.files import decode, encode
from recsmith.training import Run, RunData, RunModel
from recsmith.training.systems.watch.anomalies import AnomalyWatcher
from recsmith.training.systems.watch.looking import DenseTimer
from recsmith.training.watchers.protocol import Seen, Watcher, Wish

BATCH = 512  # of all ranks
WINDOW = 24  # batches of the window that a worker repeats


class Disturbed:
    """Samples of the generator in their order, broken in some ranges of steps.

    generator: its spec. faults: by name [first, last] steps: zeros (one feature's ids), flipped (labels), repeats (a
    rank's last batches come again), slow_reader (rank 1 waits so many seconds), and those of COLUMNS.
    """

    length = None

    def __init__(self, *, generator: dict[str, Any], faults: dict[str, list[int]] | None = None, seconds: float = 0.03):
        self.dataset: Dataset = open_dataset(spec_from_raw({"format": "generator", **generator}, "generator"))
        self.schema, self.faults, self.seconds = self.dataset.schema, faults or {}, seconds

    def batches(self, rank: int, world: int, size: int, state: Any) -> Iterator[tuple[Batch, Any]]:
        """In order, as many as the generator has."""
        step, kept = (state["step"] if state else 0), list[Batch]()
        position = decode(Position, state["position"], "the state") if state else None
        with self.dataset.batches(
            rank=rank, world_size=world, batch_size=size, seed=0, shuffle=False, position=position,
        ) as source:  # fmt: skip
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
        for fault, broken in COLUMNS.items():
            if now(fault):
                batch = broken(batch)
        return batch

    def steps(self, sizes: Any, world: int) -> int | None:
        """Not said; the run says its steps."""

    def notes(self, sizes: Any, world: int, state: Any) -> list[str]:
        """None."""
        return []


def _chosen(batch: Batch, share: float) -> np.ndarray:
    """Which samples (B,) are among so large a share, on any rank."""
    return mixed(mixed(batch.sample_ids.astype(np.uint64))) < np.uint64(share * 2**64)


def _dense(batch: Batch, column: int, change: Callable[[np.ndarray], Any]) -> Batch:
    dense = batch.dense.copy()
    dense[:, column] = change(dense[:, column])
    return replace(batch, dense=dense)


def _one_id(batch: Batch) -> Batch:
    name, bags = list(batch.ids.items())[1]
    taken = np.repeat(_chosen(batch, 0.3), bags.lengths)
    return replace(batch, ids={**batch.ids, name: replace(bags, values=np.where(taken, 7, bags.values))})


def _no_ids(batch: Batch) -> Batch:
    name, bags = list(batch.ids.items())[2]
    kept = ~_chosen(batch, 0.5)
    values = bags.values[np.repeat(kept, bags.lengths)]
    return replace(batch, ids={**batch.ids, name: replace(bags, values=values, lengths=bags.lengths * kept)})


COLUMNS: dict[str, Callable[[Batch], Batch]] = {
    "no_labels": lambda batch: replace(batch, labels=np.zeros_like(batch.labels)),
    "half_labels": lambda batch: replace(batch, labels=batch.labels * ~_chosen(batch, 0.5)[:, None]),
    "shifted": lambda batch: _dense(batch, 0, lambda values: values + 3),
    "scaled": lambda batch: _dense(batch, 1, lambda values: values * 100),
    "missing": lambda batch: _dense(batch, 2, lambda values: np.where(_chosen(batch, 0.4), 0, values)),
    "one_id": _one_id,
    "no_ids": _no_ids,
}
"""Faults of single columns, by name: of labels, of the dense columns 0, 1 and 2, of the features 1 and 2."""


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


class Seconds(Watcher):
    """Writes the seconds of a step of some ranges, by rank: CPU of the thread that trains, and by the clock."""

    def __init__(self, *, ranges: dict[str, list[int]]) -> None:
        self.ranges, self.begun, self.found = ranges, dict[str, tuple[float, float]](), dict[str, Any]()

    def look(self, seen: Seen) -> Wish | None:
        """Begin at the first step of a range, write at the last."""
        now = time.thread_time(), time.perf_counter()
        for name, (first, last) in self.ranges.items():
            if seen.step == first:
                self.begun[name] = now
            if seen.step == last:
                cpu_s, clock_s = (
                    (end - begin) / (last - first) for begin, end in zip(self.begun[name], now, strict=True)
                )
                self.found[name] = {"cpu_s": cpu_s, "clock_s": clock_s}
                (seen.job.output / f"seconds-{dist.get_rank()}.json").write_text(json.dumps(self.found))


class Alternates(Watcher):
    """Lets the watch rest in every second stretch of steps, and writes the seconds of a step with and without it.

    block: steps of a stretch, a multiple of those between two looks. first, last: steps that are timed.
    """

    def __init__(self, *, block: int = 32, first: int = 64, last: int = 1088) -> None:
        self.block, self.first, self.last, self.look_s = block, first, last, 0.0
        self.begun, self.found = (0.0, 0.0), list[dict[str, Any]]()
        watched, here = AnomalyWatcher.look, self
        self.timers = list[tuple[Any, Any, Any]]()  # hooks of each module, and the watch's among them

        def look(self: AnomalyWatcher, seen: Seen) -> Wish | None:
            begun = time.thread_time()
            wish = watched(self, seen) if here._awake(seen.step) else None
            here.look_s += time.thread_time() - begun
            return wish

        AnomalyWatcher.look = look

    def _awake(self, step: int) -> bool:
        return step <= self.first or (step - 1) // self.block % 2 == 0

    def look(self, seen: Seen) -> Wish | None:
        """At the end of a stretch write what it took, and begin the next."""
        if seen.step % self.block or not self.first <= seen.step <= self.last:
            return
        now = time.thread_time(), time.perf_counter()
        if seen.step > self.first:
            cpu_s, clock_s = ((end - begin) / self.block for begin, end in zip(self.begun, now, strict=True))
            self.found.append({"watched": self._awake(seen.step), "cpu_s": cpu_s, "clock_s": clock_s,
                               "look_s": self.look_s / self.block})  # fmt: skip
        self._hooks(seen, awake=self._awake(seen.step + 1))
        self.look_s, self.begun = 0.0, (time.thread_time(), time.perf_counter())
        if seen.step == self.last:
            (seen.job.output / f"stretches-{dist.get_rank()}.json").write_text(json.dumps(self.found))

    def _hooks(self, seen: Seen, *, awake: bool) -> None:
        """Take the watch's timers off the dense layers, or put them back."""
        for module in seen.job.sharded.model.modules():
            for hooks in (module._forward_pre_hooks, module._forward_hooks):
                for number, hook in list(hooks.items()):
                    if isinstance(getattr(hook, "__self__", None), DenseTimer):
                        self.timers.append((hooks, number, hook))
                        del hooks[number]
        for hooks, number, hook in self.timers if awake else ():
            hooks[number] = hook
        if awake:
            self.timers = []


def generator(seed: int, *, samples: int, features: int = 6, rows: int = 2000, **more: Any) -> Mapping[str, Any]:
    """A spec of small tables."""
    named = [{"name": f"f{i}", "num_embeddings": rows, "zipf": 1.05} for i in range(features)]
    return {"num_samples": samples, "features": named, "dense": 3, "seed": seed, **more}


def run_of(output: Path, seed: int, steps: int, *, ranks: int, faults: Any = None, disturbs: Any = None,
           spec: Any = None, batch: int = BATCH, **fields: Any) -> Run:  # fmt: skip
    """A job of small tables."""
    made = spec or dict(generator(seed, samples=batch * (steps + 10)))
    train_data = {"source": "watching_jobs:Disturbed", "generator": made, "faults": faults or {}}
    values: dict[str, Any] = {
        "data": RunData(train=train_data, global_batch_size=batch), "output": str(output), "steps": steps,
        "ranks": ranks,
        "model": RunModel(embedding_dim=8, bottom=(16,), top=(32, 16)), "checkpoint": None, "watch": "auto",
        "watchers": ({"name": "watching_jobs:Disturbs", **disturbs},) if disturbs else (),
    }  # fmt: skip
    return Run(**{**values, **fields})


def seconds(folder: Path) -> list[dict[str, dict[str, float]]]:
    """What `Seconds` wrote of each rank."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob("seconds-*.json"))]


def stretches(folder: Path) -> list[dict[str, Any]]:
    """What `Alternates` wrote of rank 0."""
    return json.loads((folder / "stretches-0.json").read_text())


def told(folder: Path, event: str = "alarm") -> list[dict[str, Any]]:
    """Lines of a job's log."""
    lines = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == event]


def on_the_path() -> None:
    """Let ranks find this module."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
