"""What `watch: auto` finds in jobs, how soon, how often for nothing, and what it costs.

python benchmarks/watching.py faults --seeds 20 -o measured     # five faults one after the other in jobs of two ranks
python benchmarks/watching.py swap --seeds 20 -o measured       # another hot set, in jobs of one rank
python benchmarks/watching.py false --batches 100000            # a stream of ids without a change, without a job
python benchmarks/watching.py speed --pairs 6 -o measured       # samples/s with and without it, interleaved
python benchmarks/watching.py replan -o measured                # what planning anew regains after lengths changed

Jobs train on generated samples whose feed breaks in some steps (watching_jobs.py). `faults` and `swap` go on in their
folder, a file a seed. Delays are steps from the first broken one to the step at which all ranks tell it.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from watching_jobs import generator

from recsmith.streaming.hot_sets import HotSet
from recsmith.training import Checkpointing, Run, RunData, RunMetrics, RunModel, train

BATCH = 512  # of all ranks
FAULTS = {"zeros": [500, 560], "repeats": [700, 760], "slow_reader": [900, 960], "flipped": [1500, 1560]}
SLOW, RATE, STEPS = [1200, 1260], 1800, 1920
NAMED = {  # fault: the kind by which it is to be named, and its first step
    "a feature all zeros": ("constant_feature", 500), "a worker that repeats its window": ("repeated_samples", 700),
    "a slow reader": ("slow_rank", 900), "a slow rank": ("slow_rank", 1200), "labels flipped": ("flipped_labels", 1500),
    "rates 10 times too high": ("learning_rate", 1801),
}  # fmt: skip
WITHIN = 100


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


def told(folder: Path, event: str = "alarm") -> list[dict[str, Any]]:
    """Lines of a job's log."""
    lines = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == event]


def kept(folder: Path, name: str, seeds: int, job: Any) -> Iterator[list[dict[str, Any]]]:
    """The alarms of a job of each seed, trained where no file has them."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(seeds):
        file = folder / f"{name}-{seed}.json"
        if not file.exists():
            with tempfile.TemporaryDirectory() as place:
                train(job(Path(place) / "run", seed))
                file.write_text(json.dumps(told(Path(place) / "run")))
            print(
                f"{name}, seed {seed}: {[(each['step'], each['kind'], each['of']) for each in told_of(file)]}",
                flush=True,
            )
        yield told_of(file)


def told_of(file: Path) -> list[dict[str, Any]]:
    """Alarms of a file."""
    return json.loads(file.read_text())


def faults(folder: Path, seeds: int) -> None:
    """How many seeds have each fault named, and how soon."""
    found = list(
        kept(folder, "faults", seeds,
             lambda place, seed: run_of(place, seed, STEPS, ranks=2, faults=FAULTS,
                                        disturbs={"slow": SLOW, "rate_at": RATE}))
    )  # fmt: skip
    print("| fault | named as | within 100 steps | steps until then | alarms of other kinds in those steps |")
    print("|---|---|---|---|---|")
    for fault, (kind, first) in NAMED.items():
        delays, others = [], 0
        for alarms in found:
            within = [each for each in alarms if first <= each["step"] <= first + WITHIN]
            delays += [each["step"] - first for each in within if each["kind"] == kind][:1]
            others += sum(each["kind"] != kind for each in within)
        span = f"{min(delays)} to {max(delays)}, median {statistics.median(delays):g}" if delays else "-"
        print(f"| {fault} | `{kind}` | {len(delays)} of {seeds} | {span} | {others} |")
    ranges = [(first, first + 250) for _, first in NAMED.values()]
    free = [each for alarms in found for each in alarms if not any(a <= each["step"] <= b for a, b in ranges)]
    print(
        f"\nalarms beside faults, in {seeds} jobs of {STEPS:,} steps: {[(each['kind'], each['step']) for each in free]}"
    )


def swap(folder: Path, seeds: int) -> None:
    """Steps until another hot set is told."""
    after, steps = 1024, 1280  # a multiple of the generator's blocks

    def job(place: Path, seed: int) -> Run:
        spec = dict(
            generator(seed, samples=BATCH * (steps + 10), features=4, rows=100_000, swap={"samples": BATCH * after})
        )
        return run_of(place, seed, steps, ranks=1, spec=spec)

    found = list(kept(folder, "swap", seeds, job))
    first = [next((each["step"] - after for each in alarms if each["kind"] == "hot_set" and each["step"] > after), None)
             for alarms in found]  # fmt: skip
    before = sum(each["kind"] == "hot_set" and each["step"] <= after for alarms in found for each in alarms)
    seen = [delay for delay in first if delay is not None]
    print(f"swap after step {after}: told in {sum(d <= 200 for d in seen)} of {seeds} jobs within 200 batches "
          f"({min(seen)} to {max(seen)} steps); {before} alarms of hot sets before it")  # fmt: skip


def false(batches: int, features: int) -> None:
    """Alarms of hot sets over streams of ids that do not change, looked at as a job does."""
    chance, rows, alarms, seconds = np.random.default_rng(0), 1_000_000, 0, 0.0
    law = np.cumsum(np.arange(1, rows + 1) ** -1.05)
    law /= law[-1]
    for _ in range(features):
        hot, order = HotSet(), chance.permutation(rows)
        for _ in range(0, batches, 8):
            ids = order[np.minimum(np.searchsorted(law, chance.random(256)), rows - 1)]
            begun = time.process_time()
            alarms += hot.add(ids) is not None
            seconds += time.process_time() - begun
    looks = features * batches // 8
    print(f"{alarms} alarms of {features} features in {batches:,} batches each; {seconds / looks * 1e6:.0f} µs a look")


def speed(pairs: int) -> None:
    """Samples/s with watch: auto over those without, pair by pair."""
    ratios: list[float] = []
    for pair in range(pairs):
        speeds = {}
        for watch in ("auto", "none") if pair % 2 else ("none", "auto"):
            with tempfile.TemporaryDirectory() as place:
                features = [{"name": f"f{i}", "num_embeddings": 100_000} for i in range(26)]
                spec = {"num_samples": 2048 * 330, "features": features, "dense": 13, "seed": pair}
                model = RunModel(embedding_dim=32, bottom=(256, 128), top=(512, 256))
                train(run_of(Path(place) / "run", pair, 320, ranks=1, spec=spec, batch=2048, watch=watch, model=model,
                             metrics=RunMetrics(every=20)))  # fmt: skip
                lines = told(Path(place) / "run", "train")[4:]
                speeds[watch] = statistics.median(each["samples_per_s"] for each in lines)
        ratios.append(speeds["auto"] / speeds["none"])
        print(
            f"pair {pair}: {speeds['none']:,.0f} without, {speeds['auto']:,.0f} with, ratio {ratios[-1]:.3f}",
            flush=True,
        )
    print(f"median ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


def replan(folder: Path) -> None:
    """Balance that planning anew regains after pooling factors changed: predicted, and steps of a job of two ranks."""
    after, steps, batch = 1024, 2400, 1024
    features = [{"name": f"f{i}", "num_embeddings": 20_000, "zipf": 1.05, "lengths": "poisson",
                 "pooling_factor": mean} for i, mean in enumerate((40, 1, 40, 1, 1, 40))]  # fmt: skip
    spec = {"num_samples": batch * (steps + 10), "features": features, "dense": 3, "seed": 0,
            "swap": {"samples": batch * after, "lengths": "rotate"}}  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    for action in (None, "replan"):
        output = folder / f"replan-{action}"
        watch = {"actions": {} if action is None else {"hot_set": action, "imbalance": action}}
        run = run_of(output, 0, steps, ranks=2, spec=spec, batch=batch, watch=watch, metrics=RunMetrics(every=50),
                     model=RunModel(embedding_dim=64, bottom=(16,), top=(32, 16)),
                     checkpoint=Checkpointing(every=100_000))  # fmt: skip
        train(run, on_progress=lambda message: print(message["note"]) if "ALARM" in message.get("note", "") else None)
        lines = told(output, "train")
        mean = {name: statistics.median(each["step_s"] for each in lines if low < each["step"] <= high) * 1e3
                for name, low, high in (("before", 300, after), ("after", 1600, steps))}  # fmt: skip
        print(f"{action}: step {mean['before']:.1f} ms before, {mean['after']:.1f} ms after the change; "
              f"{[(each['step'], each['what'], each['done']) for each in told(output, 'watcher')]}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("faults", "swap", "false", "speed", "replan"))
    parser.add_argument("-o", "--output", type=Path, default=Path("measured"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--batches", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=4)
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    parts = {
        "faults": lambda: faults(given.output, given.seeds), "swap": lambda: swap(given.output, given.seeds),
        "false": lambda: false(given.batches, given.features), "speed": lambda: speed(given.pairs),
        "replan": lambda: replan(given.output),
    }  # fmt: skip
    parts[given.part]()


if __name__ == "__main__":
    main()
