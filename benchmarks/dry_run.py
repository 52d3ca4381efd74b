"""What a dry run tells beside what the job does: memory of a rank, seconds of a step, the systems that are named.

    python benchmarks/dry_run.py jobs                     # twelve jobs of one and two ranks; the machine must be idle
    python benchmarks/dry_run.py jobs --only tiered,split --rounds 1
    python benchmarks/dry_run.py jobs --fresh             # of other sizes, which no figure was set with
    python benchmarks/dry_run.py rates                    # other jobs, which prediction/job_step.py has its figures of
    python benchmarks/dry_run.py rates --clock cpu        # by CPU time, where the machine is busy

Table of docs/benchmarks/train.md. Memory: the most private memory of a rank in steps after the twelfth, before
which the C library gives back what the start freed, less that of the same job with tables of a few rows; beside it
stands what the dry run tells of the one less what it tells of the other, so that program and libraries count in
neither. Step: the mean between two steps on the slowest rank, over rounds in turn; windows of samples are small, so
that some are read meanwhile. A machine of another speed is told by six other jobs, which run before, between and after
the rounds: what they took gives two factors for each number of ranks, one of embeddings (memory) and one of the rest of
a step.
"""

import argparse
import ctypes
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from recsmith.jobs.launch import launch
from recsmith.training import Run, RunData, RunMetrics, RunModel, run_from_raw, run_to_raw

STEPS, WARM, LOOK_S, WINDOW = 60, 12, 0.005, 8192
Words = dict[str, Any]


def features(count: int, rows: int | tuple[int, ...], ids: float = 1.0) -> list[Words]:
    """Features of generated data. rows: of each, or of all."""
    sizes = rows if isinstance(rows, tuple) else (rows,) * count
    return [{"name": f"f{number}", "num_embeddings": sizes[number], "pooling_factor": ids} for number in range(count)]


def a_run(
    folder: str, *, tables: int = 8, rows: int | tuple[int, ...] = 20_000, ids: float = 1.0, ranks: int = 1,
    batch: int = 512, columns: int = 16, dense: int = 13, words: Words | None = None, **model: Any,
) -> Run:  # fmt: skip
    """A job on generated data. words: of the run, beside these."""
    made = Run(
        data=RunData(
            train={"format": "generator", "seed": 5, "num_samples": 10_000_000, "dense": dense,
                   "features": features(tables, rows, ids)},
            batch_size=batch, window=WINDOW,
        ),
        model=RunModel(embedding_dim=columns, **model), output=folder, ranks=ranks, steps=STEPS, checkpoint=None,
        metrics=RunMetrics(every=1_000),
    )  # fmt: skip
    return run_from_raw({**run_to_raw(made), **(words or {})}, "a job") if words else made


def measured_on_rank(run: Words, phases: list[list[float]]) -> Words:
    """Train a run on this rank: wall and CPU seconds of a step, private memory at its peak; of this rank.

    phases: (first step, last, share of all steps), of each of which the mean counts.
    """
    import torch

    from recsmith._process import proc_bytes
    from recsmith.training.rank import train_on_rank
    from recsmith.training.steps.pipelines import BasePipeline

    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ.get("RANK", "0")) % len(cores)]})  # a rank has a core
    step, notes, most, over = BasePipeline.__call__, [], [0], threading.Event()

    def noted(self: Any, batches: Any) -> Any:
        made = step(self, batches)
        notes.append((time.perf_counter(), time.process_time()))
        if len(notes) == WARM:
            ctypes.CDLL(None).malloc_trim(0)
        if len(notes) >= STEPS:
            over.set()
        return made

    def look() -> None:
        while not over.wait(LOOK_S):
            if len(notes) > WARM:
                most[0] = max(most[0], proc_bytes("self/status", "RssAnon"))

    BasePipeline.__call__ = noted  # type: ignore[method-assign]
    threading.Thread(target=look, daemon=True).start()
    try:
        train_on_rank(run)
    finally:
        over.set()
    made = {"wall_s": 0.0, "cpu_s": 0.0}
    for first, last, share in phases:
        between = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(notes[int(first) : int(last)])]
        wall, cpu = (statistics.fmean(each) for each in zip(*between, strict=True))
        made = {"wall_s": made["wall_s"] + share * wall, "cpu_s": made["cpu_s"] + share * cpu}
    return {**made, "memory": most[0]}


def by_hand(folder: Path, run: Run, kinds: dict[str, str]) -> Run:
    """The run under a plan of tables by kinds, on its ranks; those that are not named are whole on a rank in turn."""
    from recsmith import Placement
    from recsmith.adapters.workload import read_workload
    from recsmith.jobs.local_cluster import this_cluster
    from recsmith.planning.simulate import price
    from recsmith.plans import save_plan
    from recsmith.training.collectives import collectives_of, sharders_of
    from recsmith.training.job.models import unsharded

    ranks, parts = run.ranks or 1, unsharded(run)
    workload = read_workload(
        parts.task, sharders_of(collectives_of(run.comms)), batch_size=run.data.local_batch_size(ranks),
        optimizer=run.optimizers.sparse.name,
    )  # fmt: skip
    factors = {each.name: each.pooling_factor or 1.0 for each in parts.source.schema.features}
    tables = tuple(
        replace(each, features=tuple(replace(one, pooling_factor=factors[one.name]) for one in each.features))
        for each in workload.tables
    )
    placements = []
    for number, table in enumerate(tables):
        kind = kinds.get(table.name, "table_wise")
        where = tuple(range(ranks)) if kind != "table_wise" else (number % ranks,)
        kernel = "dense" if kind == "data_parallel" else "fused"
        placements.append(Placement(table=table.name, sharding_type=kind, compute_kernel=kernel, ranks=where))
    plan = price(replace(workload, tables=tables), this_cluster(ranks, ranks), placements)
    file = folder / f"plan-{tables[0].num_embeddings}.json"
    save_plan(plan, str(file))
    return replace(run, plan=str(file))


@dataclass(frozen=True)
class Job:
    """A job. sizes: arguments of `a_run`. words: of the run. kinds: of tables under a plan by hand; none: an auto plan.

    systems: that the dry run must name.
    """

    sizes: Words
    words: Words
    kinds: dict[str, str] | None = None
    systems: tuple[str, ...] = ()
    phases: tuple[tuple[int, int, float], ...] = ((WARM, STEPS, 1.0),)


FEW = 64  # rows of the tables of the job that stands beside each
LARGE = 700_000  # rows of a table: 171 MiB of 64 columns
HALF = {"optimizers": {"sparse": {"name": "rowwise_adagrad"}, "dense": {"name": "master"}}}
RUNS = {"sessions": {"size": 8}}
JOBS = {
    "plain": Job({"tables": 3, "rows": LARGE, "columns": 64}, {}),
    "data_parallel and row_wise": Job(
        {"tables": 3, "rows": (LARGE, LARGE, 20_000), "columns": 64, "ranks": 2, "ids": 4.0}, {},
        {"f0": "row_wise", "f1": "row_wise", "f2": "data_parallel"},
    ),
    "tiered": Job(
        {"tables": 4, "rows": 4 * LARGE, "columns": 64, "ranks": 2, "batch": 1024},
        {"rows": {"name": "tiered", "cache": 0.15}}, {}, ("rows",),
    ),
    "split": Job({"tables": 3, "rows": LARGE, "columns": 64, "ids": 4.0}, {"rows": "split"}, None, ("rows",)),
    "bf16 and master": Job(
        {"tables": 3, "rows": LARGE, "columns": 64, "bottom": (512, 256), "top": (512, 256)},
        {**HALF}, None, ("model.precision", "optimizers.dense"),
    ),
    "thresholded": Job(
        {"tables": 6, "rows": LARGE // 2, "columns": 64, "ranks": 2, "bottom": (512, 256), "top": (1024, 512)},
        {"comms": {"name": "thresholded", "dense": 0.01, "pooled": 0.5}}, {}, ("comms",),
    ),
    "towers": Job({"tables": 6, "rows": LARGE // 2, "columns": 64, "ranks": 2}, {}, {}, ("model.table_module",)),
    "narrow": Job(
        {"tables": 3, "rows": LARGE, "columns": 64, "ranks": 2, "bottom": (512,), "top": (1024, 1024)}, {}, {},
        ("model.narrow",), ((3, 10, 0.5), (13, 30, 0.5)),
    ),
    "Shampoo": Job(
        {"tables": 3, "rows": LARGE, "columns": 64, "bottom": (256, 128), "top": (512, 256)},
        {"optimizers": {"dense": {"name": "shampoo"}}}, None, ("optimizers.dense",),
    ),
    "deduplicated": Job(
        {"tables": 6, "rows": LARGE // 2, "columns": 64, "ranks": 2, "ids": 30.0, "batch": 1024}, {}, {},
        ("data.deduplicate",),
    ),
    "array": Job({"tables": 4, "rows": LARGE // 4, "columns": 64, "ranks": 2}, {}, None, ("array",)),
    "periods": Job({"tables": 3, "rows": LARGE, "columns": 64}, {}, None, ("data.periods",)),
}  # fmt: skip


FRESH: dict[str, Words] = {  # the same systems in jobs of other sizes, of which nothing was measured before
    "plain": {"tables": 5, "rows": 300_000, "columns": 128, "batch": 256},
    "data_parallel and row_wise": {
        "tables": 3, "rows": (900_000, 500_000, 50_000), "columns": 32, "ranks": 2, "ids": 2.0, "batch": 1024,
    },
    "tiered": {"tables": 3, "rows": 3 * LARGE, "columns": 32, "ranks": 2},
    "split": {"tables": 4, "rows": 400_000, "columns": 64, "ids": 2.0, "batch": 1024},
    "bf16 and master": {"tables": 4, "rows": 500_000, "columns": 32, "bottom": (256, 64), "top": (768, 256)},
    "thresholded": {"tables": 4, "rows": 400_000, "columns": 32, "ranks": 2, "bottom": (256,), "top": (512, 256)},
    "towers": {"tables": 4, "rows": 500_000, "columns": 32, "ranks": 2, "batch": 1024, "bottom": (128,)},
    "narrow": {"tables": 4, "rows": 400_000, "columns": 32, "ranks": 2, "bottom": (256,), "top": (768, 768)},
    "Shampoo": {"tables": 4, "rows": 400_000, "columns": 32, "bottom": (128, 64), "top": (256, 128)},
    "deduplicated": {"tables": 4, "rows": 500_000, "columns": 32, "ranks": 2, "ids": 20.0},
    "array": {"tables": 3, "rows": 200_000, "columns": 32, "ranks": 2, "batch": 256},
    "periods": {"tables": 4, "rows": 400_000, "columns": 32, "batch": 1024},
}  # fmt: skip


def job_of(name: str, folder: Path, *, few: bool) -> Run:
    """The run of a job. few: with tables of a few rows."""
    job = JOBS[name]
    sizes = {**job.sizes, **({"rows": FEW} if few else {})}
    run = a_run(str(folder / "out"), **sizes, words=_words(name, folder, sizes, job.words))
    return run if job.kinds is None else by_hand(folder, run, job.kinds)


def _words(name: str, folder: Path, sizes: Words, words: Words) -> Words:
    """Words of a run that name its folder, or are of its data and model, whose other fields stay."""
    raw, words = run_to_raw(a_run(str(folder / "out"), **sizes)), dict(words)
    if name == "tiered":
        words["rows"] = {**words["rows"], "folder": str(folder / "rows")}
    elif name == "bf16 and master":
        words["model"] = {**raw["model"], "precision": "bf16"}
    elif name == "towers":
        halves = [[f"f{each}" for each in range(first, sizes["tables"], 2)] for first in (0, 1)]
        words["model"] = {**raw["model"], "table_module": {"name": "towers", "ratio": 2, "towers": halves}}
    elif name == "narrow":
        words["model"] = {**raw["model"], "narrow": {"cycles": 1, "dense_at_start": 1 / 3, "dense_at_end": 0.25}}
    elif name == "deduplicated":
        train = {**raw["data"]["train"], **RUNS}
        train["features"] = [{**each, "lengths": "poisson", "duplication": 0.9} for each in train["features"]]
        words["data"] = {**raw["data"], "train": train, "deduplicate": "auto", "keep_together": 8, "window": 16_384}
    elif name == "array":
        rates = {f"m{each}": [f"seed={each}"] for each in range(3)}
        words["array"] = {"members": rates, "together": "always"}
    elif name == "periods":
        words["data"] = {**raw["data"], "periods": {"samples": sizes.get("batch", 512) * 20}}
    return words


CALIBRATION: dict[int, tuple[Words, ...]] = {  # by ranks: jobs whose steps say how fast this machine is
    1: (
        {"tables": 8, "batch": 1024},
        {"tables": 5, "columns": 64, "rows": 200_000, "ids": 2.0},
        {"tables": 4, "bottom": (512, 256), "top": (1024, 512, 256)},
    ),
    2: (
        {"tables": 8, "batch": 1024, "ranks": 2},
        {"tables": 5, "columns": 64, "rows": 200_000, "ids": 2.0, "ranks": 2},
        {"tables": 4, "bottom": (512, 256), "top": (512, 256), "ranks": 2},
    ),
}


def told(run: Run) -> Words:
    """What the dry run tells: memory of the rank that holds most, seconds of a step, systems that are on."""
    from recsmith.training.launch.dry_run import described

    made = described(run).to_raw()
    return {"memory": max(each["total_bytes"] for each in made["memory"]), "step_s": made["step"]["step_s"],
            "embeddings_s": made["step"]["embeddings_s"],
            "systems": sorted({each["key"] for each in made["systems"] if each["on"]})}  # fmt: skip


def measure(run: Run, phases: Sequence[tuple[int, int, float]] = ((WARM, STEPS, 1.0),)) -> list[Words]:
    """What each rank of a job says of itself."""
    arguments = {"run": run_to_raw(run), "phases": [list(each) for each in phases]}
    return launch("dry_run:measured_on_rank", arguments, ranks=run.ranks or 1, names_modules=True)


def calibrated(clock: str, only: set[int]) -> dict[int, list[tuple[float, float, float]]]:
    """By ranks, of each job of the calibration: predicted seconds of embeddings, and of the rest; what a step took."""
    found: dict[int, list[tuple[float, float, float]]] = {}
    for ranks in sorted(only):
        for sizes in CALIBRATION[ranks]:
            with tempfile.TemporaryDirectory() as name:
                run = a_run(f"{name}/out", **sizes)
                if ranks > 1:
                    run = by_hand(Path(name), run, {})
                took, predicted = max(each[f"{clock}_s"] for each in measure(run)), told(run)
                embeddings = predicted["embeddings_s"]
                found.setdefault(ranks, []).append((embeddings, predicted["step_s"] - embeddings, took))
    return found


def factors_of(rows: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """How many times as long as predicted embeddings and the rest of a step take here: least squares, relative."""
    import numpy as np

    from recsmith.learning.preparation import non_negative_fit

    parts, took = np.array([row[:2] for row in rows]), np.array([row[2] for row in rows])
    return tuple(non_negative_fit(parts / took[:, None], np.ones(len(rows))).tolist())


def show_jobs(only: list[str], rounds: int, clock: str, rows: Path | None) -> None:
    """Each job beside its dry run."""
    ranks = {JOBS[name].sizes.get("ranks", 1) for name in only}
    found = {name: told_of_both(name) for name in only}
    print(f"dry runs: {time.process_time():.0f} CPU seconds", flush=True)
    speeds = [calibrated(clock, ranks)]
    for name in only:
        with tempfile.TemporaryDirectory() as folder:
            few = measure(job_of(name, Path(folder), few=True), JOBS[name].phases)
        found[name] |= {"empty": max(each["memory"] for each in few), "took": [], "peak": 0}
    for number in range(rounds):
        for name in only[:: -1 if number % 2 else 1]:
            with tempfile.TemporaryDirectory() as folder:
                made = measure(job_of(name, Path(folder), few=False), JOBS[name].phases)
            took = max(each[f"{clock}_s"] for each in made)
            found[name]["took"].append(took)
            found[name]["peak"] = max(found[name]["peak"], *(each["memory"] for each in made))
            print(f"round {number + 1}, {name}: {took * 1e3:.1f} ms, predicted {found[name]['step_s'] * 1e3:.1f} ms",
                  flush=True)  # fmt: skip
        speeds.append(calibrated(clock, ranks))
        if rows is not None:
            rows.write_text(json.dumps({"speeds": speeds, "jobs": found}, indent=1))
    show(found, {each: factors_of([row for made in speeds for row in made[each]]) for each in ranks})


def told_of_both(name: str) -> Words:
    """What dry runs of a job and of that with tables of a few rows tell."""
    with tempfile.TemporaryDirectory() as folder:
        whole = told(job_of(name, Path(folder), few=False))
        return {**whole, "least": told(job_of(name, Path(folder), few=True))["memory"]}


def show(found: dict[str, Words], factors: dict[int, tuple[float, float]]) -> None:
    """The table. factors: how many times as long as predicted embeddings and the rest take here, by ranks."""
    ranks = sorted(factors)
    slow = "; ".join(
        f"on {each} ranks embeddings {factors[each][0]:.2f}, the rest {factors[each][1]:.2f}" for each in ranks
    )
    print(f"\nsteps of other jobs take so many times what is predicted: {slow}; load {os.getloadavg()[0]:.1f}\n")
    heads = ("job", "predicted memory", "measured", "off by", "predicted step", "on this machine", "measured", "off by")
    print("| " + " | ".join((*heads, "systems named")) + " |")
    print("|---|---|---|---|---|---|---|---|---|")
    within = [0, 0, 0]
    for name, job in found.items():
        memory, taken = job["memory"] - job["least"], job["peak"] - job["empty"]
        embeddings, rest = factors[JOBS[name].sizes.get("ranks", 1)]
        here = embeddings * job["embeddings_s"] + rest * (job["step_s"] - job["embeddings_s"])
        step = statistics.median(job["took"])
        named = set(JOBS[name].systems) <= set(job["systems"])
        apart = memory / taken - 1, here / step - 1
        within = [within[0] + (abs(apart[0]) <= 0.05), within[1] + (abs(apart[1]) <= 0.25), within[2] + named]
        print(
            f"| {name} | {memory / 2**20:.1f} MiB | {taken / 2**20:.1f} MiB | {apart[0]:+.1%} | "
            f"{job['step_s'] * 1e3:.1f} ms | {here * 1e3:.1f} ms | {step * 1e3:.1f} ms | {apart[1]:+.0%} | "
            f"{', '.join(job['systems']) or 'none'}{'' if named else ' (not all)'} |"
        )
    print(f"\nof {len(found)} jobs, memory is within 5 % for {within[0]}, the step within 25 % for {within[1]}; all "
          f"systems are named for {within[2]}")  # fmt: skip


RATES: dict[str, Words] = {  # of the trainer: jobs that are none of the twelve
    "tiny": {"tables": 2, "batch": 64, "bottom": (32,), "top": (32,)},
    "small": {"tables": 26, "batch": 256},
    "batch 1024": {"tables": 8, "batch": 1024},
    "64 columns": {"tables": 26, "columns": 64, "batch": 1024},
    "wide layers": {"tables": 4, "bottom": (512, 256), "top": (1024, 512, 256)},
    "20 ids": {"tables": 4, "ids": 20.0},
    "50 ids": {"tables": 4, "ids": 50.0},
    "20 ids, batch 2048": {"tables": 8, "ids": 20.0, "batch": 2048},
    "tiny, 2 ranks": {"tables": 2, "batch": 64, "bottom": (32,), "top": (32,), "ranks": 2},
    "small, 2 ranks": {"tables": 26, "batch": 256, "ranks": 2},
    "30 ids, 2 ranks": {"tables": 8, "ids": 30.0, "batch": 1024, "ranks": 2},
    "batch 2048, 2 ranks": {"tables": 12, "batch": 2048, "ranks": 2},
    "64 columns, 2 ranks": {"tables": 16, "columns": 64, "batch": 512, "ranks": 2},
    "wide layers, 2 ranks": {"tables": 4, "batch": 256, "bottom": (768,), "top": (768, 768), "ranks": 2},
    "layers, batch 2048": {"tables": 6, "batch": 2048, "bottom": (256, 128), "top": (256, 128)},
    "layers, batch 2048, 2 ranks": {
        "tables": 6,
        "batch": 2048,
        "bottom": (256, 128),
        "top": (256, 128),
        "ranks": 2,
    },
    "layers, batch 64": {"tables": 4, "batch": 64, "bottom": (1024,), "top": (1024, 1024, 1024)},
    "layers, batch 64, 2 ranks": {
        "tables": 4,
        "batch": 64,
        "bottom": (1024,),
        "top": (1024, 1024, 1024),
        "ranks": 2,
    },
    "wider layers, 2 ranks": {"tables": 6, "batch": 256, "bottom": (1024,), "top": (1536, 1024), "ranks": 2},
}


def show_rates(only: list[str], clock: str) -> None:
    """Steps of other jobs beside what is predicted for them."""
    print("| job | predicted | measured | off by |\n|---|---|---|---|")
    for name in only:
        with tempfile.TemporaryDirectory() as folder:
            run = a_run(f"{folder}/out", **RATES[name])
            if run.ranks != 1:
                run = by_hand(Path(folder), run, {})
            predicted, took = told(run)["step_s"], max(each[f"{clock}_s"] for each in measure(run))
        print(f"| {name} | {predicted * 1e3:.1f} ms | {took * 1e3:.1f} ms | {predicted / took - 1:+.0%} |", flush=True)


def main() -> None:
    """One of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("jobs", "rates"))
    parser.add_argument("--fresh", action="store_true", help="jobs of other sizes")
    parser.add_argument("--only", help="jobs, by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--rows", type=Path, help="keeps what was measured")
    chosen = parser.parse_args()
    if chosen.fresh:
        JOBS.update({name: replace(job, sizes=FRESH[name]) for name, job in JOBS.items()})
    known = JOBS if chosen.table == "jobs" else RATES
    only = chosen.only.split(",") if chosen.only else list(known)
    if chosen.table == "jobs":
        show_jobs(only, chosen.rounds, chosen.clock, chosen.rows)
    else:
        show_rates(only, chosen.clock)


if __name__ == "__main__":
    main()
