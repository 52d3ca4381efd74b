"""What `recsmith advise` tells of a run, beside the same run with each switch and pair of switches, trained in turn.

    python benchmarks/advise.py measure --rows advise.jsonl     # seven jobs, 5 seeds x 300 steps; idle machine
    python benchmarks/advise.py measure --rows advise.jsonl --seeds 2 --steps 30 --jobs lookups,layers
    python benchmarks/advise.py tell --rows advise.jsonl      # tell what was measured again: alone, and by captures
    python benchmarks/advise.py table --rows advise.jsonl            # the tables, of what is there so far
    python benchmarks/advise.py speed                                # CPU seconds of advice on tables

Tables of docs/advise.md. The jobs were fixed before any of them was measured. Every training is a line of
the file of rows; what is there is not trained again, so that the command goes on where it was ended. The kinds of a job
train one after the other in the same processes, of every other seed in the opposite order. A step is the mean
of those after the warm ones, by the clock on the slowest rank and in CPU seconds of the busiest one; a gain is a share
of the time of a sample, of the same seed. It is no median, for a window of samples is read within few steps, and the
median leaves these out: windows are small, so that every training reads many. Where the load of the machine is above
--most-load, it waits.

Advice is told twice: by the run alone, and by a capture of the run as it is beside it, which `tell` takes first.

Two jobs run on two hosts with 200 Mbit/s between them (two_networks.py). Narrow layers and towers are measured on pages
of their own, and memory is no part of this.
"""

import argparse
import gc
import io
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, redirect_stderr
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from advise_tables import show_tables
from dry_run import Words, a_run, by_hand
from two_networks import Host, run_ranks, two_networks, why_not

from recsmith.advising.runs import advise_run, priced
from recsmith.analyses.advice import Advice, Advised, Switch
from recsmith.errors import RecSmithError
from recsmith.files import encode
from recsmith.plans import load_plan, save_plan
from recsmith.prediction.captured_base import step_factors
from recsmith.training import Run, run_from_raw, run_to_raw
from recsmith.training.launch.dry_run import described
from recsmith.training.run import load_run
from recsmith.training.seams.system import batches_of_a_step

WARM, PAIRS, BUSY_S, SAMPLES, CAPTURED, WINDOW = 10, 6, 20.0, 65_536, 40, 16_384
UNTRIED = ("narrow dense layers", "towers", "a new plan")
RATE, RATE_BYTES = "200mbit", 200e6 / 8
LINKED = ("link", "link-dense")
MOVIELENS = "ml-latest-small"
EVEN: Words = {"tables": 6, "rows": 300_000, "ids": 20.0, "ranks": 2, "batch": 1024, "columns": 64}
JOBS: dict[str, Words] = {
    "lookups": EVEN,
    "sessions": EVEN,
    "link": {"tables": 40, "rows": 20_000, "ids": 2.0, "ranks": 2, "batch": 512, "columns": 32},
    "link-dense": {"tables": 8, "rows": 20_000, "ranks": 2, "batch": 512, "columns": 16, "top": (2048, 512)},
    "reading": {"tables": 12, "rows": 100_000, "ids": 20.0, "batch": 1024, "columns": 16},
    "layers": {"columns": 16, "batch": 512, "bottom": (512, 256), "top": (1024, 512, 256), "ranks": 2},
    "nothing": {"tables": 8, "rows": 20_000, "batch": 4096, "columns": 16, "bottom": (64,), "top": (64,)},
}  # fmt: skip


# --- the jobs ---------------------------------------------------------------------------------------------------------


def job_of(name: str, folder: str, movielens: str) -> Run:
    """The run of a job."""
    words = {key: value for key, value in JOBS[name].items() if name != "layers" or key != "tables"}
    made = a_run(f"{folder}/out", **words)
    raw: Any = run_to_raw(made)
    data, train = {**raw["data"], "window": WINDOW}, raw["data"]["train"]
    if name == "sessions":
        some = [{**each, "lengths": "poisson", "zipf": 1.2} for each in train["features"]]
        train = {**train, "sessions": {"size": 8, "duplication": 0.9}, "features": some}
        data = {**data, "train": train, "keep_together": 8}
    elif name == "reading":
        data = {**data, "train": read_from_parquet(train, folder), "epochs": 100}
    elif name == "layers":
        train = {"format": "movielens", "path": movielens, "split": "train", "max_user_id": 671}
        data = {**data, "train": train, "epochs": 100}
    made = run_from_raw({**raw, "data": data}, "a job")
    return on_slow_link(made, folder) if name in LINKED else made


def read_from_parquet(train: Words, folder: str) -> Words:
    """The same samples in Parquet, with lists that are cut, hashed and made pairs of as they are read."""
    from recsmith.data import open_dataset, spec_from_raw
    from recsmith.data.converting import convert_dataset

    path = f"{folder}/data"
    names = [each["name"] for each in train["features"]]
    convert_dataset(open_dataset(spec_from_raw({**train, "num_samples": SAMPLES}, "a benchmark")), Path(path))
    listed: list[Words] = []
    for each in names:
        listed += [{"op": "n_gram", "feature": each, "length": 2, "num_embeddings": 100_000, "into": f"{each}_2"}]
        listed += [{"op": "first", "feature": each, "count": 16}]
    return {"format": "parquet", "paths": [path], "transforms": listed}


def on_slow_link(run: Run, folder: str) -> Run:
    """The run under a plan of tables that are whole, which knows the link between its two hosts."""
    placed = by_hand(Path(folder), run, {})
    plan = load_plan(placed.plan)
    links = replace(plan.cluster.links, inter_host_bandwidth=RATE_BYTES)
    slow = replace(plan.cluster, hosts=2, local_world_size=1, links=links)
    save_plan(replace(plan, cluster=slow, digest=""), placed.plan)
    return placed


# --- what is told -----------------------------------------------------------------------------------------------------


def kinds_of(run: Run, advice: Advice) -> tuple[dict[str, tuple[str, ...]], dict[str, Any]]:
    """Settings of what is trained, by name ('' as it is), and what was told of each: switches, and likeliest pairs."""
    some = [each for each in advice.switches if each.price is not None and each.switch.name not in UNTRIED]
    kinds: dict[str, tuple[str, ...]] = {"": ()} | {each.switch.name: each.switch.settings for each in some}
    told: dict[str, Any] = {each.switch.name: told_of(each) for each in some}
    for pair, gain, error in pairs_of(run, advice, some):
        name = " and ".join(each.name for each in pair)
        kinds[name] = tuple(setting for each in pair for setting in each.settings)
        told[name] = {"verdict": "pair", "gain": gain, "error": error}
    return kinds, told


def pairs_of(run: Run, advice: Advice, some: Sequence[Advised]) -> Iterator[tuple[tuple[Switch, ...], float, float]]:
    """The likeliest pairs: those of the largest gains by themselves that the job takes together, priced by dry runs."""
    found = 0
    ordered = sorted(combinations(some, 2), key=lambda pair: -sum(each.gain for each in pair))
    for pair in ordered:
        keys = [setting.partition("=")[0] for each in pair for setting in each.switch.settings]
        if found == PAIRS or len(set(keys)) < len(keys):
            continue
        try:
            price = priced(described(run, tuple(setting for each in pair for setting in each.switch.settings)))
        except RecSmithError:
            continue
        found += 1
        gain = advice.aim.gain(advice.base, price)
        yield tuple(each.switch for each in pair), gain, advice.aim.error(gain, price)


# --- what is measured -------------------------------------------------------------------------------------------------


def train_all(trainings: Sequence[Words], rows: Path, most_load: float, *, ranks: int, linked: bool) -> None:
    """Train runs one after the other in the same processes, and add a row for each. trainings: as `training` has it."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        file = Path(folder) / "trainings.json"
        file.write_text(json.dumps({"rows": str(rows.resolve()), "most_load": most_load, "trainings": trainings}))
        hosts: Sequence[Host] = stack.enter_context(two_networks(RATE)) if linked else (Host((), "127.0.0.1"),)
        words = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
        if not linked:
            words |= {"GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo", "MASTER_PORT": str(free_port())}
        command = [sys.executable, "-W", "ignore", str(Path(__file__)), "rank", "--rows", str(file)]
        status = run_ranks(hosts, command, ranks // len(hosts), environment=words, timeout_s=float("inf"))
        if status:
            raise SystemExit(f"a rank ended with {status}; the rows so far are kept")


def free_port() -> int:
    """A port that nobody listens on."""
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def as_rank(file: Path) -> None:
    """Train runs as the rank that the environment says; rank 0 adds a row for each."""
    import torch
    import torch.distributed as dist

    from recsmith.jobs.worker import join_group
    from recsmith.training.rank import train_on_rank
    from recsmith.training.steps.pipelines import BasePipeline

    torch.set_num_threads(1)
    rank, asked = int(os.environ["RANK"]), json.loads(file.read_text())
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    step, notes = BasePipeline.__call__, list[tuple[float, float]]()

    def noted(self: Any, batches: Any) -> Any:
        made = step(self, batches)
        notes.append((time.perf_counter(), time.process_time()))
        return made

    BasePipeline.__call__ = noted  # type: ignore[method-assign]
    join_group("gloo")
    warming = {**asked["trainings"][0]["run"], "steps": 3 * WARM}  # the first run of a process is slower than others
    with redirect_stderr(io.StringIO()):
        train_on_rank(warming)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(warming["output"], ignore_errors=True)
    dist.barrier()
    for each in asked["trainings"]:
        load = wait_until_idle(asked["most_load"]) if rank == 0 else 0.0
        dist.barrier()
        notes.clear()
        begun = time.perf_counter()
        with redirect_stderr(io.StringIO()):
            train_on_rank(each["run"])
        between = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(notes[WARM:])]
        means = torch.tensor([statistics.fmean(some) for some in zip(*between, strict=True)], dtype=torch.float64)
        dist.all_reduce(means, dist.ReduceOp.MAX)  # of the slowest rank, and of the busiest
        if rank == 0:
            wall, cpu = means.tolist()
            row = {name: each[name] for name in ("job", "kind", "seed", "samples")}
            more = {
                "steps": len(notes),
                "median_s": statistics.median(some for some, _ in between),
                "took_s": time.perf_counter() - begun,
                "load": load,
            }
            add_row(Path(asked["rows"]), {**row, "wall_s": wall, "cpu_s": cpu, **more})
            shutil.rmtree(each["run"]["output"], ignore_errors=True)
            print(f"{row['job']}, {row['kind'] or 'as it is'}, seed {row['seed']}: {wall * 1e3:.1f} ms, "
                  f"{cpu * 1e3:.1f} CPU ms", flush=True)  # fmt: skip
        gc.collect()
    os._exit(0)  # gloo's threads would be waited for


def wait_until_idle(most: float) -> float:
    """The load of the machine, once it is low enough."""
    while (load := os.getloadavg()[0]) > most:
        print(f"load {load:.1f}: waiting", file=sys.stderr, flush=True)
        time.sleep(BUSY_S)
    return load


def measure(chosen: argparse.Namespace) -> None:
    """Add rows to the file until each kind of each job has trained with each seed."""
    rows = read_rows(chosen.rows)
    for name in chosen.jobs.split(","):
        if name in LINKED and (reason := why_not(RATE)) is not None:
            print(f"{name} is left out: {reason}", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as folder:
            run = job_of(name, folder, chosen.movielens)
            told = next((each for each in rows if each["job"] == name and "told" in each), None)
            if told is None:
                told = advised(name, run)
                add_row(chosen.rows, told)
            done = {(each["kind"], each["seed"]) for each in rows if each["job"] == name and "wall_s" in each}
            order = [
                (kind, seed) for seed in range(chosen.seeds) for kind in list(told["kinds"])[:: -1 if seed % 2 else 1]
            ]
            trainings = [
                training(name, run, *each, told["kinds"][each[0]], chosen.steps) for each in order if each not in done
            ]
            if trainings:
                train_all(trainings, chosen.rows, chosen.most_load, ranks=run.ranks or 1, linked=name in LINKED)


def tell(chosen: argparse.Namespace) -> None:
    """Add rows of what is told now of each job that was measured, alone and by a capture; the last ones count."""
    rows = read_rows(chosen.rows)
    for name in chosen.jobs.split(","):
        before = next((each for each in rows if each["job"] == name and "told" in each), None)
        if before is None:
            continue
        folder = chosen.rows.resolve().parent / "captures" / name
        with tempfile.TemporaryDirectory() as scratch:
            run = job_of(name, scratch, chosen.movielens)
            if not folder.exists():
                one = training(name, run, "captured", 0, (f"capture={folder}",), CAPTURED)
                rest = Path(scratch) / "rows.jsonl"
                train_all([one], rest, chosen.most_load, ranks=run.ranks or 1, linked=name in LINKED)
            for by in (None, folder):
                add_row(chosen.rows, told_again(name, run, before["kinds"], by))


def told_again(name: str, run: Run, kinds: dict[str, list[str]], capture: Path | None) -> Words:
    """A row of what is told of a job now, of the kinds that were measured. capture: of the run as it is."""
    advice = advise_run(run, capture=capture)
    by = None
    if capture is not None:
        base = described(run)
        assert base.step is not None  # this machine has no GPU
        by = step_factors(capture, base.plan.workload, base.plan.cluster, base.step)
    told = {each.switch.name: told_of(each) for each in advice.switches if each.switch.name in kinds}
    for kind, settings in kinds.items():
        if kind and kind not in told:
            price = priced(described(run, tuple(settings)), by)
            gain = advice.aim.gain(advice.base, price)
            told[kind] = {"verdict": "pair", "gain": gain, "error": advice.aim.error(gain, price)}
    return {"job": name, "told": told, "kinds": kinds, **named(advice), "by": "alone" if capture is None else "capture",
            "advice": encode(advice)}  # fmt: skip


def told_of(advised: Advised) -> Words:
    """Verdict, gain and its error of a switch."""
    return {"verdict": advised.verdict, "gain": advised.gain, "error": advised.gain_error}


def named(advice: Advice) -> Words:
    """What advice names first and together, and its ties."""
    ties = {each.switch.name: list(each.ties) for each in advice.switches}
    first = next((each.switch.name for each in advice.switches if each.verdict == "pays"), None)
    return {"first": first, "together": list(advice.together), "ties": ties}


def advised(name: str, run: Run) -> Words:
    """A row of what is told of a job."""
    begun = time.process_time()
    advice = advise_run(run)
    kinds, told = kinds_of(run, advice)
    spent = time.process_time() - begun
    print(f"{name}: {advice.verdict}; {len(kinds)} kinds; {spent:.0f} CPU s", file=sys.stderr, flush=True)
    settings = {key: list(value) for key, value in kinds.items()}
    return {"job": name, "told": told, "kinds": settings, **named(advice), "advise_cpu_s": spent,
            "advice": encode(advice)}  # fmt: skip


def training(name: str, run: Run, kind: str, seed: int, settings: Sequence[str], steps: int) -> Words:
    """One training of a job, as its ranks take it."""
    more = (f"seed={seed}", f"steps={steps}", "metrics.every=1000000", "checkpoint=null")
    changed = load_run(run, (*settings, *more))
    samples = changed.data.local_batch_size(run.ranks or 1) * (run.ranks or 1) * batches_of_a_step(changed)
    raw = run_to_raw(replace(changed, output=f"{changed.output}-{abs(hash((kind, seed)))}", ranks=None))
    return {"job": name, "kind": kind, "seed": seed, "samples": samples, "run": raw}


def read_rows(file: Path) -> list[Words]:
    """The rows so far; a line that was cut short is left out."""
    rows: list[Words] = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            print("a line that was cut short is left out", file=sys.stderr)
    return rows


def add_row(file: Path, row: Words) -> None:
    """Add a row, whole, on a line of its own."""
    whole = not file.exists() or file.read_bytes().endswith(b"\n") or not file.stat().st_size
    with file.open("a") as out:
        out.write(("" if whole else "\n") + json.dumps(row) + "\n")


# --- advice on tables -------------------------------------------------------------------------------------------------


def show_speed() -> None:
    """CPU seconds of advice on tables."""
    from recsmith.analyses.table_switches import advise
    from recsmith.workloads.sample import sample_workload

    print("| tables | devices | CPU s | first |\n|---|---|---|---|")
    cases: list[tuple[str, Any, str]] = [
        ("dlrm-v2, 26", "dlrm-v2", "h100:8x4"), ("sampled, 1,000", sample_workload(1000, 0), "h100:8x8"),
    ]  # fmt: skip
    for what, tables, cluster in cases:
        begun = time.process_time()
        advice = advise(tables, cluster)
        print(f"| {what} | {cluster} | {time.process_time() - begun:.1f} | {advice.verdict} |", flush=True)


def main() -> None:
    """Measure, or show what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "tell", "table", "speed", "rank"])
    parser.add_argument("--rows", type=Path, default=Path("advise.jsonl"))
    parser.add_argument("--jobs", default=",".join(JOBS), help="by commas")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--movielens", default=MOVIELENS, help="folder of ml-latest-small")
    parser.add_argument("--most-load", type=float, default=2.5)
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # which ends the ranks, too
    if chosen.what == "measure":
        measure(chosen)
    elif chosen.what == "tell":
        tell(chosen)
    elif chosen.what == "table":
        show_tables(read_rows(chosen.rows))
    elif chosen.what == "speed":
        show_speed()
    else:
        as_rank(chosen.rows)


if __name__ == "__main__":
    main()
