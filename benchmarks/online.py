"""What docs/online.md shows: updates of a model that lives, on planted streams and on MovieLens.

    python benchmarks/online.py logistic -o online       # a convex model, in which future gradient has its theory
    python benchmarks/online.py drift -o online          # four kinds of drift, tables of 30, 300 and 3,000 rows
    python benchmarks/online.py movielens -o online --data ml-latest-small
    python benchmarks/online.py table -o online          # tables and picture of the page, from what the folder holds

What was measured stays in the folder, and the same command goes on. With --small a part runs small, as a test does.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from online_logistic import generator_lines, logistic_lines

from recsmith.data import GeneratorSpec, planted_optimum, spec_from_raw
from recsmith.files import decode, dump_json, encode, write_text
from recsmith.reports.online import online_picture
from recsmith.scoring.scores import mean_within
from recsmith.training import DenseOptimizer, Run, RunData, RunModel, RunOptimizers, SparseOptimizer
from recsmith.training.results.arms import OnlineResult, above, chosen, rows_of
from recsmith.training.systems.periods.replay import bench_online
from recsmith.training.systems.periods.settings import Periods

SEEDS, PERIODS, SAMPLES, BATCH = 5, 24, 2048, 256
KINDS = {"rotating": 16, "linear": PERIODS, "sudden": 6, "none": 1}  # periods of a turn, of the way, between two truths
ROWS = (30, 300, 3000)
FIRST, HALF = 4, 14  # the periods that auto judges by are FIRST to HALF - 1, those that it is judged by HALF and later
TESTED = 23  # the first of MovieLens' tested periods, the 24th; the 30th is the last
MOVIELENS_ARMS: dict[str, Any] = {
    "incremental": "incremental",
    "window of 3": {"name": "window", "periods": 3},
    "window of 7": {"name": "window", "periods": 7},
    "future_gradient": {"name": "future_gradient", "periods": 3},
}


def drift_run(kind: str, rows: int) -> Run:
    """A DLRM of four tables on a planted stream."""
    drift = {"kind": kind, "samples": KINDS[kind] * SAMPLES}
    train: dict[str, Any] = {
        "format": "generator", "num_samples": PERIODS * SAMPLES, "dense": 4, "drift": drift,
        "features": [{"name": f"f{at}", "num_embeddings": rows, "zipf": 0.8} for at in range(4)],
        "teacher": {"signal": 2.0, "pairs": 0.3, "dense": 0.1},
    }  # fmt: skip
    return Run(
        data=RunData(train=train, batch_size=BATCH, periods=Periods(samples=SAMPLES)), output="unused",
        model=RunModel(embedding_dim=8, bottom=(16,), top=(32,)), checkpoint=None,
        optimizers=RunOptimizers(
            sparse=SparseOptimizer(learning_rate=0.1), dense=DenseOptimizer(learning_rate=0.005)
        ),
    )  # fmt: skip


def movielens_run(data: str) -> Run:
    """The published protocol's stream: 31 periods of equally many ratings, of which the last is not needed."""
    train = {"format": "movielens", "path": data, "split": "all", "split_by": "time"}
    return Run(
        data=RunData(train=train, batch_size=256, periods=Periods(count=31, most=30)), output="unused",
        model=RunModel(embedding_dim=8, bottom=(16,), top=(40, 20)), checkpoint=None,
        optimizers=RunOptimizers(
            sparse=SparseOptimizer(learning_rate=0.05), dense=DenseOptimizer(learning_rate=0.002)
        ),
    )  # fmt: skip


def measured(folder: Path, name: str, run: Run, first: int, small: bool, **more: Any) -> OnlineResult:
    """A case, or what its file holds."""
    file = folder / f"{name}.json"
    if file.exists():
        return decode(OnlineResult, json.loads(file.read_text()), str(file))
    settings = ("data.periods.most=7", "data.batch_size=32") if small else ()
    found = bench_online(
        run, folder / name, settings=settings, seeds=range(2 if small else SEEDS), first=4 if small else first,
        on_progress=lambda line: print(f"{name}: {line}", file=sys.stderr, flush=True), **more,
    )  # fmt: skip
    write_text(str(file), dump_json(encode(found)))
    return found


def optimum(run: Run, first: int, last: int) -> float:
    """The planted optimum's log loss on some periods."""
    spec = spec_from_raw(run.data.train, "the stream")
    assert isinstance(spec, GeneratorSpec)
    assert run.data.periods is not None
    samples = run.data.periods.samples or 1
    part = replace(spec, first_sample=first * samples, num_samples=(last - first) * samples)
    return planted_optimum(part).log_loss


def drift_cases() -> Iterator[tuple[str, str, int]]:
    """(name, kind, rows) of each."""
    return ((f"drift-{kind}-{rows}", kind, rows) for rows in ROWS for kind in KINDS)


def losses(found: OnlineResult, arm: str, first: int) -> dict[int, list[float]]:
    """Log losses of the next period, by seed."""
    return {
        each.seed: [loss.logloss for loss in each.losses if loss.ahead == 1 and loss.period >= first]
        for each in found.replays
        if each.arm == arm
    }


def taken_by_auto(found: OnlineResult) -> dict[int, str]:
    """What `auto` would take of each seed, by the first half of the stream alone."""
    seeds = {each.seed for each in found.replays}
    return {
        seed: chosen(rows_of([r for r in found.replays if r.seed == seed], range(FIRST, HALF)))[0] for seed in seeds
    }


def of_auto(found: OnlineResult, first: int) -> dict[int, list[float]]:
    """Losses on the second half of what auto takes."""
    return {seed: losses(found, arm, first)[seed] for seed, arm in taken_by_auto(found).items()}


def drift_table(folder: Path) -> Iterator[str]:
    """Removed shares of the loss above the optimum on the second half, and what auto takes."""
    arms = ["window", "future_gradient"]
    yield (
        "| drift | rows | optimum | incremental | window | future gradient | removed by window | by future gradient | "
        "auto took | auto beside the best | auto - incremental |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for name, kind, rows in drift_cases():
        if not (folder / f"{name}.json").exists():
            continue
        found = measured(folder, name, drift_run(kind, rows), FIRST, False)
        least = optimum(drift_run(kind, rows), HALF, PERIODS)
        plain = losses(found, "incremental", HALF)
        means = {
            arm: {seed: fmean(each) for seed, each in losses(found, arm, HALF).items()}
            for arm in ("incremental", *arms)
        }
        removed = [
            mean_within(
                [100 * (means["incremental"][s] - means[arm][s]) / (means["incremental"][s] - least) for s in plain]
            )
            for arm in arms
        ]
        auto = of_auto(found, HALF)
        best = min(fmean(means[arm].values()) for arm in means)
        mine = fmean(fmean(each) for each in auto.values())
        apart, within = above(auto, plain)
        took = taken_by_auto(found)
        counts = ", ".join(f"{list(took.values()).count(arm)} {arm}" for arm in means if arm in took.values())
        cells = [
            kind, f"{rows:,}", f"{least:.4f}", *(f"{fmean(means[arm].values()):.4f}" for arm in means),
            *(f"{mean:+.1f} ± {half or 0:.1f} %" for mean, half in removed), counts,
            f"{100 * (mine / best - 1):+.2f} %", f"{apart:+.4f} ± {within or 0:.4f}",
        ]  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def movielens_table(folder: Path) -> Iterator[str]:
    """All arms with intervals, and cost."""
    if not (folder / "movielens.json").exists():
        return
    found = decode(OnlineResult, json.loads((folder / "movielens.json").read_text()), "movielens.json")
    yield "| arm | NE of the next period | log loss | above the best | cost | NE 1, 2, 4 periods ahead |"
    yield "|---|---|---|---|---|---|"
    for row in found.rows:
        late = ", ".join(f"{row.late[ahead]:.4f}" for ahead in ("1", "2", "4"))
        yield (
            f"| {row.name} | {row.ne:.4f} ± {row.ne_within or 0:.4f} | {row.logloss:.5f} | {row.worse:+.5f} ± "
            f"{row.worse_within or 0:.5f} | {row.cost:.2f} | {late} |"
        )
    yield f"\n{found.because}"


def cost_line(folder: Path) -> str:
    """CPU seconds of arms beside incremental's, the mean over all cases that there are."""
    costs: dict[str, list[float]] = {}
    for file in sorted(folder.glob("*.json")):
        found = decode(OnlineResult, json.loads(file.read_text()), str(file))
        for row in found.rows:
            costs.setdefault(row.name, []).append(row.cost)
    return ", ".join(
        f"{name} {fmean(values):.2f} ({min(values):.2f} to {max(values):.2f})" for name, values in costs.items()
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure a part, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("logistic", "drift", "movielens", "table"))
    parser.add_argument("-o", "--output", required=True, type=Path)
    parser.add_argument("--data", default="ml-latest-small")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args(arguments)
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)
    if options.part == "logistic":
        print("\n".join([*logistic_lines(), "", *generator_lines()]))
    elif options.part == "table":
        for lines in (drift_table(folder), movielens_table(folder)):
            print("\n".join(lines) + "\n")
        print(cost_line(folder))
        if (folder / "movielens.json").exists():
            found = decode(OnlineResult, json.loads((folder / "movielens.json").read_text()), "movielens.json")
            write_text(str(folder / "movielens.svg"), online_picture(found))
    elif options.part == "drift":
        for name, kind, rows in list(drift_cases())[: 1 if options.small else None]:
            measured(folder, name, drift_run(kind, rows), FIRST, options.small, ahead=(1,))
    else:
        measured(folder, "movielens", movielens_run(options.data), TESTED, options.small, arms=MOVIELENS_ARMS)


if __name__ == "__main__":
    main()
