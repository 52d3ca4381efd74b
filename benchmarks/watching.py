"""What `watch: auto` finds in jobs, how soon, how often for nothing, and whether ranks and restarts agree.

python benchmarks/watching.py faults --seeds 20 -o measured     # six faults one after the other in jobs of two ranks
python benchmarks/watching.py swap --seeds 20 -o measured       # another hot set, in jobs of one rank
python benchmarks/watching.py calm --seeds 10 -o measured       # jobs of 10,000 batches in which nothing happens
python benchmarks/watching.py alike -o measured                 # the same job on 1 and 2 ranks, and after a restart
python benchmarks/watching.py ids --batches 100000              # streams of ids without a change, without a job

Jobs train on generated samples whose feed breaks in some steps (watching_jobs.py). Those with seeds go on in their
folder, a file a seed. Delays are steps from the first broken one to the step at which all ranks tell it.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from watching_jobs import BATCH, generator, on_the_path, run_of, told

from recsmith.streaming.hot_sets import HotSet
from recsmith.streaming.sketch_files import read_sketches
from recsmith.training import Checkpointing, Run, train

FAULTS = {"zeros": [300, 360], "slow_reader": [450, 510], "repeats": [600, 660], "flipped": [900, 960]}
SLOW, RATE, STEPS = [750, 810], 1050, 1160  # long after the slow reader: both are slow_rank, once an episode
NAMED = {  # fault: the kind by which it is to be named, and its first step
    "a feature all zeros": ("constant_feature", 300), "a worker that repeats its window": ("repeated_samples", 600),
    "a slow reader": ("slow_rank", 450), "a slow rank": ("slow_rank", 750), "labels flipped": ("flipped_labels", 900),
    "rates 10 times too high": ("learning_rate", 1051),
}  # fmt: skip
WITHIN, AFTER = 100, 150  # steps in which a fault is to be named, and in which alarms follow from it
SWAP, SWAP_STEPS, SWAP_WITHIN = 1024, 1280, 200  # a multiple of the generator's blocks
CALM_STEPS, CALM_BATCH = 10_000, 256


def kept(folder: Path, name: str, seeds: int, job: Callable[[Path, int], Run]) -> Iterator[list[dict[str, Any]]]:
    """The alarms of a job of each seed, trained where no file has them."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(seeds):
        file = folder / f"{name}-{seed}.json"
        if not file.exists():
            with tempfile.TemporaryDirectory() as place:
                if not train(job(Path(place) / "run", seed))["complete"]:
                    raise SystemExit(f"{name}, seed {seed}: the job was asked to end; nothing is kept of it")
                file.write_text(json.dumps(told(Path(place) / "run")))
        found = json.loads(file.read_text())
        print(f"{name}, seed {seed}: {[(each['step'], each['kind'], each['of']) for each in found]}", flush=True)
        yield found


def faults(folder: Path, seeds: int) -> None:
    """How many seeds have each fault named, and how soon."""

    def job(place: Path, seed: int) -> Run:
        return run_of(place, seed, STEPS, ranks=2, faults=FAULTS, disturbs={"slow": SLOW, "rate_at": RATE})

    found = list(kept(folder, "faults", seeds, job))
    print("| fault | reported as | within 100 steps | steps until then | alarms of other kinds in those steps |")
    print("|---|---|---|---|---|")
    for fault, (kind, first) in NAMED.items():
        delays, others = [], 0
        for alarms in found:
            within = [each for each in alarms if first <= each["step"] <= first + WITHIN]
            delays += [each["step"] - first for each in within if each["kind"] == kind][:1]
            others += sum(each["kind"] != kind for each in within)
        span = f"{min(delays)} to {max(delays)}, median {statistics.median(delays):g}" if delays else "-"
        print(f"| {fault} | `{kind}` | {len(delays)} of {seeds} | {span} | {others} |")
    ranges = [(first, first + AFTER) for _, first in NAMED.values()]
    free = [each for alarms in found for each in alarms if not any(a <= each["step"] <= b for a, b in ranges)]
    print(f"\nalarms beside faults, in {seeds} jobs of {STEPS:,} steps: "
          f"{[(each['kind'], each['step']) for each in free]}")  # fmt: skip


def swap(folder: Path, seeds: int) -> None:
    """Steps until another hot set is reported."""

    def job(place: Path, seed: int) -> Run:
        spec = dict(generator(seed, samples=BATCH * (SWAP_STEPS + 10), features=4, rows=100_000,
                              swap={"samples": BATCH * SWAP}))  # fmt: skip
        return run_of(place, seed, SWAP_STEPS, ranks=1, spec=spec)

    found = [[each for each in alarms if each["kind"] == "hot_set"] for alarms in kept(folder, "swap", seeds, job)]
    first = [next((each["step"] - SWAP for each in alarms if each["step"] > SWAP), None) for alarms in found]
    before = sum(each["step"] <= SWAP for alarms in found for each in alarms)
    seen = [delay for delay in first if delay is not None]
    soon = sum(delay <= SWAP_WITHIN for delay in seen)
    print(f"swap after step {SWAP:,}: reported in {soon} of {seeds} jobs within {SWAP_WITHIN} batches "
          f"({min(seen)} to {max(seen)} steps); {before} alarms of hot sets before it")  # fmt: skip


def calm(folder: Path, seeds: int) -> None:
    """Alarms of jobs in which nothing happens."""
    kinds = list[str]()

    def job(place: Path, seed: int) -> Run:
        return run_of(place, seed, CALM_STEPS, ranks=1, batch=CALM_BATCH)

    for alarms in kept(folder, "calm", seeds, job):
        kinds += [each["kind"] for each in alarms]
    print(f"{len(kinds)} alarms in {seeds * CALM_STEPS:,} batches of {seeds} jobs: {kinds}")


def alike(folder: Path) -> None:
    """The alarms and sketches of one job on one rank, on two, and on two with a restart."""
    cuts = {"one rank": ((1, STEPS),), "two ranks": ((2, STEPS),), "two ranks, restarted": ((2, 603), (2, STEPS)),
            "one rank, then two": ((1, 603), (2, STEPS))}  # fmt: skip
    spec = dict(generator(0, samples=BATCH * (STEPS + 10)))
    faults = {fault: at for fault, at in FAULTS.items() if fault != "slow_reader"}
    found = dict[str, list[tuple[int, str, str]]]()
    for name, parts in cuts.items():
        place = folder / f"alike-{name.replace(' ', '-').replace(',', '')}"
        for ranks, steps in parts:
            train(run_of(place, 0, steps, ranks=ranks, faults=faults, spec=spec, disturbs={"rate_at": RATE},
                         watch={"sketch_every": 480}, checkpoint=Checkpointing(every=100_000)))  # fmt: skip
        found[name] = [(each["step"], each["kind"], each["of"]) for each in told(place)]
        print(f"{name}: {found[name]}", flush=True)
    whole = read_sketches(folder / "alike-one-rank")[1]
    for name, sketch in read_sketches(folder / "alike-two-ranks")[1].items():
        one, top = whole[name], [item for item, _ in sketch.frequent(20)]
        share = max(abs(dict(one.frequent(256)).get(item, 0) - part) for item, part in sketch.frequent(20))
        print(f"{name}: {one.bags:,} and {sketch.bags:,} bags, {one.sketched:,} and {sketch.sketched:,} ids sketched, "
              f"{one.distinct:.0f} and {sketch.distinct:.0f} different; of the 20 most read "
              f"{len({item for item, _ in one.frequent(20)} & set(top))} are the same, shares differ by up to "
              f"{share:.4f}; median lengths {one.length(0.5)} and {sketch.length(0.5)}")  # fmt: skip


def ids(batches: int, features: int) -> None:
    """Alarms of hot sets over streams of ids that do not change, looked at as a job does."""
    chance, rows, alarms, seconds = np.random.default_rng(0), 1_000_000, 0, 0.0
    law = np.cumsum(np.arange(1, rows + 1) ** -1.05)
    law /= law[-1]
    for _ in range(features):
        hot, order = HotSet(), chance.permutation(rows)
        for _ in range(0, batches, 8):
            drawn = order[np.minimum(np.searchsorted(law, chance.random(256)), rows - 1)]
            begun = time.process_time()
            alarms += hot.add(drawn) is not None
            seconds += time.process_time() - begun
    looks = features * batches // 8
    print(f"{alarms} alarms of {features} features in {batches:,} batches each; {seconds / looks * 1e6:.0f} µs a look")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("faults", "swap", "calm", "alike", "ids"))
    parser.add_argument("-o", "--output", type=Path, default=Path("measured"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--batches", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=26)
    given = parser.parse_args()
    on_the_path()
    parts = {
        "faults": lambda: faults(given.output, given.seeds),
        "swap": lambda: swap(given.output, given.seeds),
        "calm": lambda: calm(given.output, given.seeds), "alike": lambda: alike(given.output),
        "ids": lambda: ids(given.batches, given.features),
    }  # fmt: skip
    parts[given.part]()


if __name__ == "__main__":
    main()
