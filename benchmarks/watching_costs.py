"""What `watch: auto` costs a job, and what planning anew brings back after its hot tables changed.

python benchmarks/watching_costs.py speed --jobs 2 -o measured      # with and without it, in turn within a job
python benchmarks/watching_costs.py looks                           # its own CPU in jobs of other shapes, and its price
python benchmarks/watching_costs.py replan -o measured              # balance before, after a change, and planned anew

Seconds of CPU are those of the thread that trains, in which the watch works, too; reading ahead is another thread's.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from watching_jobs import on_the_path, run_of, seconds, stretches, told

import recsmith
from recsmith.files import encode
from recsmith.planning.simulate import price
from recsmith.plans import load_plan
from recsmith.streaming import live_workload
from recsmith.streaming.sketch_files import read_sketches
from recsmith.training import Checkpointing, RunMetrics, RunModel, train
from recsmith.training.systems.watch.cost import watch_s
from recsmith.training.systems.watch.settings import WatchSettings

KNOWN = 544  # steps after which all that the watch learns first is known, hot sets too
SHAPES = ((4, 3, 128), (4, 3, 2048), (26, 13, 128), (26, 13, 512), (26, 13, 2048), (80, 13, 256), (26, 200, 512))
"""Features, dense columns and samples of the jobs of `looks`."""
FIRST, LAST, BLOCK = 64, 1088, 32  # steps that are timed, and of a stretch with or without the watch
CHANGE, STEPS, BATCH = 384, 720, 1024  # of the job that plans anew: step after which lengths rotate, steps, samples
LENGTHS = (240, 80, 80, 80, 4, 4, 4, 4)  # ids a sample of its features, which move on by one feature then
BEFORE, AFTER = [150, 350], [520, 700]  # steps that are measured


def speed(folder: Path, jobs: int) -> None:
    """Seconds of steps with watch: auto over those without: stretches of one job that follow each other."""
    folder.mkdir(parents=True, exist_ok=True)
    more: dict[str, list[float]] = {part: [] for part in ("cpu_s", "clock_s", "look_s")}
    for job in range(jobs):
        file = folder / f"speed-{job}.json"
        if not file.exists():
            file.write_text(json.dumps(_stretches(job)))
        found = json.loads(file.read_text())
        pairs = list(zip(found[::2], found[1::2], strict=False))
        for pair in pairs:
            with_, without = sorted(pair, key=lambda each: not each["watched"])
            for part in ("cpu_s", "clock_s"):
                more[part].append(with_[part] / without[part] - 1)
            more["look_s"].append(with_["look_s"] / without["cpu_s"])
        step = statistics.median(each["cpu_s"] for each in found if not each["watched"])
        print(f"job {job}: a step without takes {step * 1e3:.1f} ms of CPU", flush=True)
    for part, name in (("look_s", "CPU of the looks themselves"), ("cpu_s", "CPU"), ("clock_s", "the clock")):
        low, middle, high = median_interval(more[part])
        print(f"{name}: median {middle:+.2%}, 95 % interval {low:+.2%} to {high:+.2%}, {len(more[part])} pairs")


def median_interval(values: list[float]) -> tuple[float, float, float]:
    """(low, median, high): the 95 % interval is of the order statistics, by the binomial law of one half."""
    ordered = sorted(values)
    count = len(ordered)
    reach = round(0.98 * count**0.5)
    low, high = max(0, count // 2 - reach), min(count - 1, (count - 1) // 2 + reach)
    return ordered[low], statistics.median(ordered), ordered[high]


def _stretches(seed: int) -> list[dict[str, float]]:
    """Of a job of one rank as large as a small DLRM."""
    features = [{"name": f"f{i}", "num_embeddings": 100_000} for i in range(26)]
    spec = {"num_samples": 2048 * (LAST + 10), "features": features, "dense": 13, "seed": seed}
    model = RunModel(embedding_dim=32, bottom=(256, 128), top=(512, 256))
    timer = {"name": "watching_jobs:Alternates", "block": BLOCK, "first": FIRST, "last": LAST}
    with tempfile.TemporaryDirectory() as place:
        output = Path(place) / "run"
        train(run_of(output, seed, LAST, ranks=1, spec=spec, batch=2048, watch="auto", model=model, watchers=(timer,),
                     metrics=RunMetrics(every=64)))  # fmt: skip
        return stretches(output)


def looks() -> None:
    """Microseconds of CPU that the watch takes of a step, and what a dry run says of it."""
    print("| features | dense columns | samples a step | sketches | measured | priced | share of a step |")
    print("|---|---|---|---|---|---|---|")
    for features, dense, batch in SHAPES:
        for sketch_every in (1000, 0):
            settings = WatchSettings(sketch_every=sketch_every)
            measured, step = _looks(features, dense, batch, settings)
            priced = watch_s(settings, features, batch, 1)
            print(f"| {features} | {dense} | {batch:,} | {'yes' if sketch_every else 'no'} | {measured * 1e6:.0f} µs "
                  f"| {priced * 1e6:.0f} µs | {measured / step:.1%} |", flush=True)  # fmt: skip


def _looks(features: int, dense: int, batch: int, settings: WatchSettings) -> tuple[float, float]:
    """Seconds of CPU of the watch in a step, and of a step without it: medians of stretches of a job of one rank."""
    named = [{"name": f"f{i}", "num_embeddings": 50_000} for i in range(features)]
    spec = {"num_samples": batch * (KNOWN + 330), "features": named, "dense": dense, "seed": 0}
    timer = {"name": "watching_jobs:Alternates", "block": BLOCK, "first": KNOWN, "last": KNOWN + 320}
    with tempfile.TemporaryDirectory() as place:
        train(run_of(Path(place) / "run", 0, KNOWN + 320, ranks=1, spec=spec, batch=batch, watchers=(timer,),
                     watch=dict(encode(settings)), metrics=RunMetrics(every=64)))  # fmt: skip
        found = stretches(Path(place) / "run")
    watched, without = ([each for each in found if each["watched"] is awake] for awake in (True, False))
    return statistics.median(each["look_s"] for each in watched), statistics.median(each["cpu_s"] for each in without)


def replan(folder: Path) -> None:
    """Balance that planning anew regains after pooling factors changed: predicted, and steps of a job of two ranks."""
    features = [{"name": f"f{i}", "num_embeddings": 20_000, "zipf": 1.05, "lengths": "poisson",
                 "pooling_factor": mean} for i, mean in enumerate(LENGTHS)]  # fmt: skip
    spec = {"num_samples": BATCH * (STEPS + 10), "features": features, "dense": 3, "seed": 0,
            "swap": {"samples": BATCH * CHANGE, "lengths": "rotate"}}  # fmt: skip
    timer = {"name": "watching_jobs:Seconds", "ranges": {"before": BEFORE, "after": AFTER}}
    folder.mkdir(parents=True, exist_ok=True)
    found = dict[str | None, dict[str, list[float]]]()
    for action in (None, "replan"):
        output = folder / f"replan-{action}"
        watch = {
            "actions": {} if action is None else {"hot_set": action, "imbalance": action},
            "sketch_every": 200,
            "every": 4,
        }
        if not (output / "model").exists():
            train(run_of(output, 0, STEPS, ranks=2, spec=spec, batch=BATCH, watch=watch, metrics=RunMetrics(every=50),
                         model=RunModel(embedding_dim=128, bottom=(16,), top=(32, 16)), watchers=(timer,),
                         checkpoint=Checkpointing(every=100_000)))  # fmt: skip
        found[action] = _balance(output, str(action))
    for part in ("rows", "CPU"):
        before, stayed, moved = found[None][part][0], found[None][part][1], found["replan"][part][1]
        print(f"regained of the balance of {part}: {(stayed - moved) / (stayed - before):.0%}")
    stayed, moved = (load_plan(folder / f"replan-{action}" / "plan.json") for action in found)
    now = live_workload(stayed.workload, read_sketches(folder / "replan-None")[1])
    best = recsmith.plan(now, stayed.cluster, cost_model=stayed.cost_model).plan
    costs = {name: price(now, stayed.cluster, plan.placements, cost_model=stayed.cost_model).cost.total_s
             for name, plan in (("stayed", stayed), ("planned anew", moved), ("best", best))}  # fmt: skip
    lost = costs["stayed"] - costs["best"]
    print(f"predicted steps after the change: {({name: f'{cost * 1e3:.3f} ms' for name, cost in costs.items()})}; "
          f"regained {(costs['stayed'] - costs['planned anew']) / lost:.0%} of what was lost")  # fmt: skip


def _balance(output: Path, action: str) -> dict[str, list[float]]:
    """Most of a rank over the mean of all, before and after the change: rows that are looked up, CPU of a step."""
    signals, ranks = told(output, "watch"), seconds(output)
    found: dict[str, list[float]] = {"rows": [], "CPU": []}
    for name, (low, high) in (("before", BEFORE), ("after", AFTER)):
        found["rows"].append(statistics.median(each["imbalance"] for each in signals if low < each["step"] <= high))
        cpu, clock = ([rank[name][part] * 1e3 for rank in ranks] for part in ("cpu_s", "clock_s"))
        found["CPU"].append(max(cpu) / statistics.fmean(cpu))
        print(f"{action}, {name} the change: rows {found['rows'][-1]:.3f}, CPU {found['CPU'][-1]:.3f} (of a step "
              f"{' and '.join(f'{each:.1f}' for each in cpu)} ms; by the clock {clock[0]:.1f} ms)")  # fmt: skip
    print(f"  alarms {[(each['step'], each['kind'], each['of']) for each in told(output)]}")
    print(f"  done {[(each['step'], each['what'], each['done']) for each in told(output, 'watcher')]}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("speed", "looks", "replan"))
    parser.add_argument("-o", "--output", type=Path, default=Path("measured"))
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    on_the_path()
    if given.part == "speed":
        speed(given.output, given.jobs)
    elif given.part == "looks":
        looks()
    else:
        replan(given.output)


if __name__ == "__main__":
    main()
