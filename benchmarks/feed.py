"""What a feed brings where transforms are heavy, and what it survives (docs/feed.md has the tables).

    python benchmarks/feed.py stalls              # how long a trainer waits, read by its thread and by processes
    python benchmarks/feed.py scaling             # how many workers `auto` has, on simulated cores
    python benchmarks/feed.py engines             # samples a second of a feed's engines, measured in alternation
    python benchmarks/feed.py kills               # kill -9 of a worker, twenty times in an epoch: each sample once
    python benchmarks/feed.py kills --engine ray  # the same of Ray actors, and every other time of their whole node
    python benchmarks/feed.py trainer             # kill -9 of the trainer, twenty times: it goes on, each sample once
    python benchmarks/feed.py memory --minutes 2  # of a trainer that stops asking, and of one that asks on and on
    python benchmarks/feed.py memory --light --samples 200000000    # as many samples as that, of two features

--quick rehearses a part in under a minute. --engine ray needs Ray (docs/feed.md).

The trainer is simulated: it takes a batch, then sleeps for the seconds of a step, as one does whose work is on a GPU.
Reading, transforms and processes are real.
"""

import argparse
import itertools
import math
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any

from feed_data import BATCH, WINDOW, light, settings
from feed_losses import kills, life, trainer

from recsmith._process import proc_bytes
from recsmith.data import Batch, Dataset
from recsmith.feeding import Feed, FeedSettings, engine_of
from recsmith.feeding.worker import Worker

MIB = 2**20
SIMULATED_BATCH_S, SIMULATED_START_S = 0.1, 1.0  # of a core, whose processes are not there; until a worker runs


def main() -> None:
    parser = argparse.ArgumentParser(description="What a feed brings, and what it survives.")
    parser.add_argument("part", choices=["stalls", "scaling", "engines", "kills", "trainer", "life", "memory"])
    parser.add_argument("--engine", choices=["local", "ray"], default="local")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--load", type=float, default=1.5, help="CPU seconds of reading for a second of a step")
    parser.add_argument("--loads", type=float, nargs="+", default=[1.6, 3.6, 7.2], help="the same of `scaling`")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--light", action="store_true", help="two features of one id, without transforms")
    parser.add_argument("--samples", type=int, default=10**9, help="after which `memory` ends, if not before")
    parser.add_argument("--folder", help="of `life`, which is the trainer that `trainer` starts")
    parser.add_argument("--quick", action="store_true")
    words = parser.parse_args()
    if words.quick:
        words.steps, words.kills, words.minutes = min(words.steps, 80), min(words.kills, 3), 0.2
    parts = {
        "stalls": stalls,
        "scaling": scaling,
        "engines": engines,
        "kills": kills,
        "trainer": trainer,
        "life": life,
        "memory": memory,
    }
    parts[words.part](words)


def local(dataset: Dataset) -> Any:
    return dataset.batches(rank=0, world_size=1, batch_size=BATCH, seed=0, window=WINDOW)


def stalls(words: Any) -> None:
    """The share of the time that a trainer waits; of the second half of the steps, and when it last waited long."""
    made, dataset = settings(words.steps * BATCH)
    begun = time.process_time()
    with local(dataset) as batches:
        count = sum(1 for _ in itertools.islice(batches, 48))
    step_s = (time.process_time() - begun) / count / words.load
    print(f"a batch takes {step_s * words.load * 1e3:.0f} ms of a core, a step {step_s * 1e3:.0f} ms\n")
    print("| read by | waiting, second half | steady after | workers at the end |\n|---|---|---|---|")
    for name, feed in (("a thread of the trainer", None), ("feed: 1", 1), ("feed: 2", 2), ("feed: auto", "auto")):
        with local(dataset) if feed is None else Feed(made, feed) as batches:  # type: ignore[arg-type]
            waits = list(waiting(batches, step_s))
            workers = batches.figures.workers if isinstance(batches, Feed) else "-"
        half = waits[len(waits) // 2 :]
        share = sum(half) / (sum(half) + step_s * len(half))
        steady = steady_after(waits, step_s)
        print(f"| {name} | {share:.1%} | {'never' if steady is None else f'{steady:.0f} s'} | {workers} |", flush=True)


class SimulatedWorker:
    """A worker on a core of its own that is simulated: real batches, at the times of heavy ones."""

    def __init__(self, made: FeedSettings) -> None:
        self.worker, self.place, self.ended = Worker(made), "", threading.Event()
        self.ready = time.perf_counter() + SIMULATED_START_S

    def answers(self, window: int) -> Iterator[Any]:
        """The parts of a window, each once its time is over."""
        at = max(self.ready, time.perf_counter())
        self.ended.wait(at - time.perf_counter())
        for arrays in self.worker.answers(window):
            at += 0.0 if "window" in arrays else SIMULATED_BATCH_S
            if self.ended.wait(max(0.0, at - time.perf_counter())):
                return
            yield arrays

    def end(self) -> None:
        """End the worker, also while it sleeps."""
        self.ended.set()


class SimulatedCores:
    """An engine with sixteen cores that are simulated."""

    name, most = "simulated", 16

    def __init__(self, made: FeedSettings) -> None:
        self.made = made

    def start(self) -> SimulatedWorker:
        """A worker on one of the cores."""
        return SimulatedWorker(self.made)

    def close(self) -> None:
        """Nothing is held."""


def scaling(words: Any) -> None:
    """What `auto` makes of loads that need several workers: the second half of a minute of steps."""
    print(f"a batch takes {SIMULATED_BATCH_S * 1e3:.0f} ms of a simulated core\n")
    print("| load | fewest workers that suffice | waiting, second half | steady after | workers at the end |")
    print("|---|---|---|---|---|")
    for load in words.loads:
        step_s = SIMULATED_BATCH_S / load
        steps = int((8 if words.quick else 60) / step_s)
        made, _ = settings(steps * BATCH, raw=light(steps * BATCH))
        with Feed(made, "auto", engine=SimulatedCores(made)) as feed:
            waits = list(waiting(feed, step_s))
            workers = feed.figures.workers
        half = waits[len(waits) // 2 :]
        share, steady = sum(half) / (sum(half) + step_s * len(half)), steady_after(waits, step_s)
        when = "never" if steady is None else f"{steady:.0f} s"
        print(f"| {load} | {math.ceil(load)} | {share:.1%} | {when} | {workers} |", flush=True)


def engines(words: Any) -> None:
    """Samples a second that one worker brings, of each engine in turn, to a trainer that takes all there is."""
    made, _ = settings((words.steps + 64) * BATCH)
    names = ("local", "ray") if find_spec("ray") else ("local",)
    rates: dict[str, list[float]] = {name: [] for name in names}
    with ExitStack() as open_feeds:
        feeds = {name: open_feeds.enter_context(Feed(made, 1, engine=engine_of(name, made))) for name in names}
        for feed in feeds.values():
            for _ in range(2 * WINDOW // BATCH):  # begin alike: nothing is ready
                next(feed)
        for turn in range(words.steps // 16 // len(names)):
            name = names[turn % len(names)]
            begun = time.perf_counter()
            samples = sum(len(next(feeds[name])) for _ in range(16))
            rates[name].append(samples / (time.perf_counter() - begun))
    for name, found in rates.items():
        print(f"{name}: {statistics.median(found):,.0f} samples/s (median of {len(found)} turns of 16 batches)")


def waiting(batches: Iterator[Batch], step_s: float) -> Iterator[float]:
    """Seconds that each step waited for its batch."""
    while True:
        begun = time.perf_counter()
        if next(batches, None) is None:
            return
        yield time.perf_counter() - begun
        time.sleep(step_s)


def steady_after(waits: list[float], step_s: float, run: int = 32) -> float | None:
    """Seconds after which no run of steps waited 2 % of its time or more."""
    late = [
        i for i in range(len(waits) - run) if sum(waits[i : i + run]) > 0.02 * (sum(waits[i : i + run]) + run * step_s)
    ]
    if late and late[-1] + run >= len(waits) - 1:
        return None
    last = late[-1] + run if late else 0
    return sum(waits[:last]) + last * step_s


def memory(words: Any) -> None:
    """Resident memory of all processes: while nobody asks, and after many samples."""
    made, _ = settings(10**9, 8 * WINDOW, raw=light(10**9)) if words.light else settings(10**9)
    with Feed(made, 2, engine=engine_of(words.engine, made)) as feed:
        next(feed)
        for _ in range(10):
            time.sleep(3)
            print(f"nobody asks: {_resident(feed)}", flush=True)
        ends, samples, shown = time.perf_counter() + words.minutes * 60, 0, 0.0
        while time.perf_counter() < ends and samples < words.samples:
            samples += len(next(feed))
            if time.perf_counter() > shown:
                shown = time.perf_counter() + words.minutes * 6
                print(f"{samples:,} samples: {_resident(feed)}", flush=True)
        print(f"{samples:,} samples at the end: {_resident(feed)}")


def _resident(feed: Feed) -> str:
    mine = proc_bytes("self/status", "VmRSS")
    pids = [thread.worker.place.rpartition(":")[2] for thread in feed.threads.values()]
    others = [proc_bytes(f"{pid}/status", "VmRSS") for pid in pids if pid]
    return f"trainer's side {mine / MIB:.0f} MiB, workers {', '.join(f'{each / MIB:.0f} MiB' for each in others)}"


if __name__ == "__main__":
    main()
