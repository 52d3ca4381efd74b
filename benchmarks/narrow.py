"""Narrow dense layers and sparse copies: what they save, and what they cost in AUC.

    python benchmarks/narrow.py rates                 # seconds of what is predicted, for each number: seconds
    python benchmarks/narrow.py steps                 # narrow and dense steps in turns, on two ranks: minutes
    python benchmarks/narrow.py auc -o narrow.json --data ml-latest-small     # five seeds: minutes, goes on
    python benchmarks/narrow.py drift -o narrow.json  # a drift, and the same models trained on: minutes, goes on
    python benchmarks/narrow.py sparse -o narrow.json # sparse copies of a model that lives: half an hour, goes on

Tables of docs/narrow.md. What was measured stays in the file, and the same command goes on.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from recsmith.scoring.scores import mean_within
from recsmith.training import DenseOptimizer, Run, RunData, RunMetrics, RunModel, RunOptimizers, SparseOptimizer, train
from recsmith.training.run import Checkpointing
from recsmith.training.systems.narrow.layers import NarrowedLayers
from recsmith.training.systems.narrow.settings import NarrowSettings
from recsmith.training.systems.narrow.units import units_of
from recsmith.training.systems.periods.settings import Periods

SEEDS = 5
FEATURES = [{"name": name, "num_embeddings": rows} for name, rows in (("a", 1000), ("b", 400), ("c", 100), ("d", 30))]
ARMS = {  # the dense model, the defaults, and units that are left out for good
    "dense": None,
    "narrow": NarrowSettings(),
    "static prune": NarrowSettings(cycles=1, dense_at_end=0.0),
}
BATCH, BEFORE, AFTER = 256, 600, 150  # of the drift: steps before it and after it

PERIODS, SAMPLES, FIRST, TURN = (
    24,
    4096,
    8,
    16,
)  # of the stream; period of the first copy, periods of a turn of the truth
STREAMS = {  # rows of a table, columns of dense values, their share of the truth, what drifts
    "dense weights": (300, 16, 0.7, ["dense"]),
    "ids, 30 rows": (30, 4, 0.1, ["ids"]),
    "ids, 300 rows": (300, 4, 0.1, ["ids"]),
}
COPIES: dict[str, dict[str, Any]] = {
    "static": {"periods": None},
    "frozen": {"periods": None, "steps": 0},
    "each 4 periods": {"periods": 4},
    "each 8 periods": {"periods": 8},
    "each 4, same share of each layer": {"periods": 4, "per_layer": True},
    "each 4, without the mask": {"periods": 4, "masks": 0},
}


def main() -> int:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["rates", "steps", "auc", "drift", "sparse"])
    parser.add_argument("--quick", action="store_true", help="little, to see that it runs")
    parser.add_argument("--wall", action="store_true", help="of steps: seconds of the clock, on an idle machine")
    parser.add_argument("--passes", type=int, default=1, help="of sparse: over a period, in which a copy is tuned")
    parser.add_argument("--data", default="ml-latest-small", help="folder of MovieLens")
    parser.add_argument("-o", "--output", default="bench/narrow.json", help="what auc and drift keep, and go on from")
    arguments = parser.parse_args()
    output = Path(arguments.output)
    if arguments.table == "rates":
        rates(arguments.quick)
    elif arguments.table == "steps":
        steps(arguments.quick, wall=arguments.wall)
    elif arguments.table == "auc":
        auc(arguments.quick, output, arguments.data)
    elif arguments.table == "drift":
        drift(arguments.quick, output)
    else:
        sparse(arguments.quick, output, arguments.passes)
    return 0


def rates(quick: bool) -> None:
    """CPU nanoseconds for each number of a layer of 1,024 by 1,024, on one core."""
    torch.set_num_threads(1)
    layer, rounds = torch.nn.Linear(1024, 1024), 3 if quick else 100
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-3)
    layer.weight.grad, layer.bias.grad = torch.randn(1024, 1024), torch.randn(1024)
    model = torch.nn.Sequential(torch.nn.Linear(64, 1024), layer, torch.nn.Linear(1024, 64))
    narrow = NarrowedLayers(model, NarrowSettings(), units_of(model))
    narrow._put(narrow._chosen())
    middle: Any = narrow.layers["1"]
    taken, given = middle._places.numel(), torch.randn(middle._places.shape)
    print("| what | for each | ns |")
    print("|---|---|---|")
    for name, what, count, work in (
        ("Adam's step", "weight", layer.weight.numel(), optimizer.step),
        ("zeros of a gradient", "weight", layer.weight.numel(), lambda: torch.zeros(1024, 1024).add_(0)),
        ("weights taken", "kept weight", taken, lambda: middle.weight.detach().take(middle._places)),
        ("gradient put back", "kept weight", taken, lambda: given.new_empty(1024, 1024).put_(middle._places, given)),
    ):
        print(f"| {name} | {what} | {1e9 * seconds(work, rounds) / count:.2f} |")


def seconds(work: Callable[[], Any], rounds: int) -> float:
    """CPU seconds of one call, after one that is not counted."""
    work()
    begun = time.process_time()
    for _ in range(rounds):
        work()
    return (time.process_time() - begun) / rounds


def steps(quick: bool, *, wall: bool) -> None:
    """Narrow steps beside dense ones of the same job, in turns, on two ranks."""
    print(f"| batch of a rank | keep | dense step, {'' if wall else 'CPU '}ms | narrow step | narrow / dense |")
    print("|---|---|---|---|---|")
    for batch in (256, 1024):
        for keep in (0.35, 0.5):
            narrow, dense = times_of(batch, keep, 120 if quick else 150, wall=wall)
            ratio = statistics.median(a / b for a, b in zip(narrow, dense, strict=False))
            middle = [1e3 * statistics.median(each) for each in (dense, narrow)]
            print(f"| {batch:,} | {keep} | {middle[0]:.1f} | {middle[1]:.1f} | {ratio:.2f} |", flush=True)


def times_of(batch: int, keep: float, count: int, *, wall: bool) -> tuple[list[float], list[float]]:
    """Seconds of narrow and of dense steps, of the slower rank."""
    with tempfile.TemporaryDirectory() as folder:
        data = {"format": "generator", "dense": 13, "features": FEATURES, "num_samples": 2 * batch * count}
        run = Run(
            data=RunData(train=data, batch_size=batch),
            model=RunModel(
                embedding_dim=64, bottom=(512,), top=(1024, 1024, 1024), narrow=NarrowSettings(keep=keep, cycles=1)
            ),
            output=f"{folder}/run", ranks=2, steps=count, checkpoint=None, metrics=RunMetrics(every=count),
            watchers=({"name": "narrow_parts:EveryOther", "folder": folder},),
        )  # fmt: skip
        train(run)
        ranks = [json.loads(Path(folder, f"times-{rank}.json").read_text()) for rank in (0, 1)]
    slower = [(one[0], max(one[1 + wall], other[1 + wall])) for one, other in zip(*ranks, strict=True)]
    return [took for narrow, took in slower if narrow], [took for narrow, took in slower if not narrow]


def auc(quick: bool, output: Path, data: str) -> None:
    """AUC on MovieLens' test ratings."""
    words = {"format": "movielens", "path": data, "max_user_id": 671}
    found = kept(output)
    for seed in range(1 if quick else SEEDS):
        for arm, narrow in ARMS.items():
            run = Run(
                data=RunData(train={**words, "split": "train"}, test={**words, "split": "test"},
                             batch_size=8 if quick else BATCH, epochs=1 if quick else 3),
                model=RunModel(embedding_dim=16, bottom=(64,), top=(256, 256), narrow=narrow), output="",
                checkpoint=None, seed=seed, metrics=RunMetrics(every=100_000),
                optimizers=RunOptimizers(sparse=SparseOptimizer(learning_rate=0.02)),
            )  # fmt: skip
            trained(found, f"auc/{arm}/{seed}", output, run)
    print_aucs(found, "auc")


def drift(quick: bool, output: Path) -> None:
    """AUC after another truth has come, and the models of before were trained on."""
    found = kept(output)
    before, after = (60, 10) if quick else (BEFORE, AFTER)
    for seed in range(1 if quick else SEEDS):
        words = {
            "format": "generator", "dense": 13, "features": FEATURES, "seed": 100 + seed,
            "teacher": {"signal": 2.0, "pairs": 0.3, "dense": 0.5},
            "drift": {"kind": "sudden", "samples": before * BATCH, "of": ["ids", "dense"]},
        }  # fmt: skip
        for arm, narrow in ARMS.items():
            settings = NarrowSettings(cycles=1, dense_at_start=0.4, dense_at_end=0.4) if quick and narrow else narrow
            run = Run(
                data=RunData(
                    train={**words, "num_samples": (before + after) * BATCH}, batch_size=BATCH, shuffle=False,
                    test={**words, "first_sample": (before + after) * BATCH, "num_samples": 100 * after},
                ),
                model=RunModel(embedding_dim=16, bottom=(64,), top=(256, 256), narrow=settings), output="", seed=seed,
                metrics=RunMetrics(every=100_000), checkpoint=Checkpointing(every=100_000),
            )  # fmt: skip
            trained(found, f"drift/{arm}/{seed}", output, run, (before, before + after))
    print_aucs(found, "drift")


def sparse(quick: bool, output: Path, passes: int) -> None:
    """Log loss of the next period of the whole model and of its copies, on streams that drift."""
    found, part = kept(output), "sparse" if passes == 1 else f"sparse, {passes} passes"
    for stream in STREAMS if passes == 1 else list(STREAMS)[:1]:
        for seed in range(1 if quick else SEEDS if stream == "dense weights" else 3):
            key = f"{part}/{stream}/{seed}"
            if key not in found:
                found[key] = losses_of_copies(stream, seed, passes, quick=quick)
                output.parent.mkdir(parents=True, exist_ok=True)
                output.write_text(json.dumps(found, indent=1))
        print_copies(stream, [each for key, each in found.items() if key.startswith(f"{part}/{stream}/")])


def losses_of_copies(stream: str, seed: int, passes: int, *, quick: bool) -> dict[str, float]:
    """The mean log loss on the periods after the first copy, by share and copy; of the whole model by `full`."""
    rows, columns, share, drifts = STREAMS[stream]
    words = {
        "format": "generator", "dense": columns, "seed": 100 + seed,
        "num_samples": (FIRST + 2 if quick else PERIODS) * SAMPLES,
        "features": [{"name": f"f{at}", "num_embeddings": rows, "zipf": 0.8} for at in range(4)],
        "teacher": {"signal": 2.0, "pairs": 0.3 if share < 0.5 else 0.1, "dense": share},
        "drift": {"kind": "rotating", "samples": TURN * SAMPLES, "of": drifts},
    }  # fmt: skip
    wanted = {f"{each}-{at}": (each, name) for each in (0.8, 0.9) for at, name in enumerate(COPIES)}
    if stream != "dense weights" or passes > 1:
        wanted = {folder: (each, name) for folder, (each, name) in wanted.items() if name in list(COPIES)[:3]}
    watchers = [
        {"name": "sparse_copy", "share": each, "first": FIRST, "folder": folder.replace(".", "_"), "batch_size": BATCH,
         "learning_rate": 2e-3, "steps": passes * SAMPLES // BATCH, "masks": 40, **COPIES[name]}
        for folder, (each, name) in wanted.items()
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        run = Run(
            data=RunData(train=words, batch_size=BATCH, periods=Periods(samples=SAMPLES)), output=folder, seed=seed,
            model=RunModel(embedding_dim=8, bottom=(64,), top=(128, 64)), checkpoint=None, watchers=tuple(watchers),
            optimizers=RunOptimizers(
                sparse=SparseOptimizer(learning_rate=0.1), dense=DenseOptimizer(learning_rate=2e-3)
            ),
        )  # fmt: skip
        train(run)
        lines = [json.loads(line) for line in Path(folder, "log.jsonl").read_text().splitlines()]
    made = [line for line in lines if line["event"] == "sparse_copy" and line["period"] > FIRST]
    found = {
        f"{each}/{name}": statistics.fmean(line["logloss"] for line in made if line["folder"] == at.replace(".", "_"))
        for at, (each, name) in wanted.items()
    }
    return {**found, "full": statistics.fmean(line["full_logloss"] for line in made)}


def print_copies(stream: str, seeds: list[dict[str, float]]) -> None:
    """Log losses, and how much of the gap from the static copy to the whole model each copy closes."""
    print(f"| {stream} | zeros | log loss | above the whole model | beside static | of the gap closed |")
    print("|---|---|---|---|---|---|")
    print(f"| whole model | | {statistics.fmean(each['full'] for each in seeds):.4f} | | | |")
    for key in (key for key in seeds[0] if key != "full"):
        share, _, name = key.partition("/")
        static = f"{share}/static"
        above, beside, closed = (
            [each[key] - each["full"] for each in seeds],
            [each[key] - each[static] for each in seeds],
            [100 * (each[static] - each[key]) / (each[static] - each["full"]) for each in seeds],
        )
        cells = [
            within(above, "+.4f"),
            *(["", ""] if key == static else [within(beside, "+.4f"), within(closed, ".0f")]),
        ]
        print(f"| {name} | {share} | {statistics.fmean(each[key] for each in seeds):.4f} | {' | '.join(cells)} |")
    print(flush=True)


def within(values: list[float], style: str) -> str:
    """A mean with its 95 % interval."""
    mean, half = mean_within(values)
    return f"{mean:{style}}" + ("" if half is None else f" ± {half:{style.replace('+', '')}}")


def trained(found: dict[str, Any], key: str, output: Path, run: Run, stops: tuple[int, ...] = ()) -> None:
    """Train a run, up to each of some steps one after the other, and keep its scores."""
    if key in found:
        return
    result: Any = None
    with tempfile.TemporaryDirectory() as folder:
        for stop in stops or ("null",):
            result = train(run, settings=(f"output={folder}/out", f"steps={stop}"))
    found[key] = {"auc": result["test"]["auc"], "logloss": result["test"]["logloss"], "steps": result["step"]}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(found, indent=1))


def kept(output: Path) -> dict[str, Any]:
    """What a file holds already."""
    return json.loads(output.read_text()) if output.exists() else {}


def print_aucs(found: dict[str, Any], part: str) -> None:
    """The mean AUC of each arm, and beside the dense model, paired by seed."""
    print("| layers | AUC | beside dense | beside static prune |")
    print("|---|---|---|---|")
    of = {
        arm: {key.rpartition("/")[2]: each["auc"] for key, each in found.items() if key.startswith(f"{part}/{arm}/")}
        for arm in ARMS
    }
    for arm, mine in of.items():
        cells = [f"{statistics.fmean(mine.values()):.4f}"]
        for other in ("dense", "static prune"):
            pairs = [value - of[other][seed] for seed, value in mine.items() if seed in of[other]]
            mean, within = mean_within(pairs)
            cells.append("" if arm == other else f"{mean:+.4f}" + ("" if within is None else f" ± {within:.4f}"))
        print(f"| {arm} | {' | '.join(cells)} |")


if __name__ == "__main__":
    raise SystemExit(main())
