"""Plans that are run for real beside what one capture says of them: is the one predicted best among the best?

python benchmarks/predict_regret.py measure FOLDER [--ranks 2,4] [--quick]    # some minutes; what is there is kept
python benchmarks/predict_regret.py table FOLDER [--machine M]

A small DLRM has seven tables of very different work. Every plan of an enumeration is built in one job, and plans take
turns: in each round, each trains a few steps, so that other work on the machine meets all of them alike. A plan's time
is the median over rounds. One plan's step is captured; `recsmith predict FOLDER --plan PLAN` prices the others by it.

regret: measured time of the plan that is predicted best, over the best measured one. rank: Spearman's correlation.
noise: the same regret of choosing by odd rounds and judging by even ones, which no prediction can be better than.
"""

import argparse
import itertools
import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import recsmith
from recsmith._types import Floats
from recsmith.files import encode
from recsmith.jobs.launch import launch
from recsmith.plans import Plan, plan_to_raw
from recsmith.prediction.models import Model
from recsmith.prediction.predictions import predict_capture

ROWS = (40_000, 20_000, 30_000, 10_000, 50_000, 5_000, 20_000)
POOLING = (100, 50, 30, 20, 10, 4, 2)
WIDTH, BATCH = 32, 1024  # columns; samples of all ranks, so that plans on 2 and 4 ranks do the same work
MODEL = Model(kind="dlrm", bottom=(64,), top=(64, 32))
PLANS, ROUNDS, STEPS = 48, 15, 4  # plans of an enumeration; visits to each; steps of a visit, of which one is not timed


def homes(ranks: int, count: int) -> list[tuple[int, ...]]:
    """Placements of the tables, none like another up to the names of ranks; every rank has a table.

    The first one is captured: tables in turn. The others are evenly spread over the enumeration.
    """
    found: dict[tuple[int, ...], None] = {tuple(i % ranks for i in range(len(ROWS))): None}
    every = [each for each in itertools.product(range(ranks), repeat=len(ROWS)) if list(dict.fromkeys(each)) ==
             list(range(ranks))]  # fmt: skip
    for place in np.linspace(0, len(every) - 1, count).round().astype(int):
        found[every[place]] = None
    return list(found)[:count]


def plan_of(home: tuple[int, ...], ranks: int) -> Plan:
    tables = tuple(
        recsmith.Table(name=f"t{i}", num_embeddings=rows, embedding_dim=WIDTH,
                       features=(recsmith.Feature(name=f"t{i}", pooling_factor=pooling),))
        for i, (rows, pooling) in enumerate(zip(ROWS, POOLING, strict=True))
    )  # fmt: skip
    workload = recsmith.Workload(batch_size=BATCH // ranks, optimizer="sgd", tables=tables)
    space = recsmith.Space(types=("table_wise",), kernels=("fused",))
    made = recsmith.plan(workload, f"cpu:{ranks}", planner="size_greedy", space=space).plan
    placements = tuple(replace(old, ranks=(home[int(old.table[1:])],)) for old in made.placements)
    return replace(made, placements=placements, digest="")


def measure(folder: Path, ranks: int, quick: bool) -> None:
    target = folder / f"regret-{ranks}.json"
    if target.exists():
        print(f"{target} is there already")
        return
    chosen = homes(ranks, 6 if quick else PLANS)
    trace = folder / f"trace-{ranks}"
    words = {"model": encode(MODEL), "plans": [plan_to_raw(plan_of(each, ranks)) for each in chosen],
             "batch": BATCH // ranks, "folder": str(trace.resolve()), "rounds": 3 if quick else ROUNDS,
             "steps": STEPS}  # fmt: skip
    seconds = launch("predict_jobs:take_turns", words, ranks=ranks, timeout_s=400)[0]["seconds"]
    target.write_text(json.dumps({"ranks": ranks, "homes": chosen, "seconds": seconds}))
    print(f"{len(chosen)} plans on {ranks} ranks: {target}", flush=True)


def table(folder: Path, machine: str) -> None:
    print("ranks plans  best ms  worst ms  regret  noise   rank  error  rank of sums  regret of sums")
    for path in sorted(folder.glob("regret-*.json")):
        raw: dict[str, Any] = json.loads(path.read_text())
        ranks, seconds = raw["ranks"], np.array(raw["seconds"])  # (plans, rounds)
        measured = np.median(seconds, axis=1)
        plans = [plan_of(tuple(each), ranks) for each in raw["homes"]]
        steps = [predict_capture(folder / f"trace-{ranks}", plan=each, machine=machine)[0][1] for each in plans]
        predicted = np.array([each.step_s for each in steps])
        sums = np.array([each.kernels_s for each in steps])
        odd, even = np.median(seconds[:, 1::2], axis=1), np.median(seconds[:, ::2], axis=1)
        off = np.exp(np.log(np.maximum(np.abs(predicted / measured - 1), 1e-4)).mean())
        print(f"{ranks:>5} {len(plans):>5} {measured.min() * 1e3:>8.2f} {measured.max() * 1e3:>9.2f} "
              f"{_regret(predicted, measured):>7.1%} {_regret(odd, even):>6.1%} {_rank(predicted, measured):>6.2f} "
              f"{off:>6.1%} {_rank(sums, measured):>13.2f} {_regret(sums, measured):>15.1%}")  # fmt: skip


def _regret(chosen_by: Floats, judged_by: Floats) -> float:
    return float(judged_by[int(np.argmin(chosen_by))] / judged_by.min() - 1)


def _rank(one: Floats, other: Floats) -> float:
    """Spearman's correlation: that of ranks, of which equal values share the mean."""
    return statistics.correlation(_ranks(one), _ranks(other))


def _ranks(values: Floats) -> list[float]:
    return [float((values < each).sum() + (values == each).sum() / 2) for each in values]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "table"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--machine", default="cpu")
    parser.add_argument("--quick", action="store_true", help="6 plans and 3 rounds: a rehearsal")
    options = parser.parse_args()
    if options.what == "table":
        return table(options.folder, options.machine)
    options.folder.mkdir(parents=True, exist_ok=True)
    for ranks in map(int, options.ranks.split(",")):
        measure(options.folder, ranks, options.quick)
    return None


if __name__ == "__main__":
    main()
