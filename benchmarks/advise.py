"""What `recsmith advise` tells of a run, beside the same run with each switch and pair of switches, trained in turn.

    python benchmarks/advise.py measure --rows advise.jsonl          # seven jobs, 5 seeds; an idle machine
    python benchmarks/advise.py measure --rows advise.jsonl --seeds 2 --blocks 2 --jobs lookups,layers
    python benchmarks/advise.py tell --rows advise.jsonl      # tell what was measured again: alone, and by captures
    python benchmarks/advise.py table --rows advise.jsonl            # the tables, of what is there so far
    python benchmarks/advise.py speed                                # CPU seconds of advice on tables

Tables of docs/advise.md. The jobs were fixed before any of them was measured. Every training is a line of
the file of rows; what is there is not trained again, so that the command goes on where it was ended. The kinds of a job
train in turns, each in processes of its own: a block of 16 steps of the first, of the second, and so on, in the
opposite order at every other turn, so that a machine whose speed drifts is as slow for all of them. Who has no turn is
stopped. A step is the mean of a block, by the clock on the slowest rank and in CPU seconds of the busiest one. A gain
is a share of the time of a sample, of all blocks of a seed together, beside those of the run as it is at the same
turns. It is a mean, for a window of samples is read within few steps, and a median leaves these out. Where the load of
the machine is above --most-load, it waits.

Advice is told twice: by the run alone, and by a capture of the run as it is beside it, which `tell` takes first.

Two jobs run on two hosts with 200 Mbit/s between them (two_networks.py). Narrow layers and towers are measured on pages
of their own, and memory is no part of this.
"""

import argparse
import io
import json
import logging
import lzma
import os
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, redirect_stderr
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TextIO

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
from recsmith.training.seams.registry import batches_of_a_step

WARM, BLOCK, PAIRS, BUSY_S, SAMPLES, CAPTURED, WINDOW = 10, 16, 6, 20.0, 65_536, 40, 16_384
FIRST_PORT = 21_000
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
        yield tuple(each.switch for each in pair), gain, advice.aim.error(gain, advice.base, price)


# --- what is measured -------------------------------------------------------------------------------------------------


def train_all(
    trainings: Sequence[Words], rows: Path, most_load: float, blocks: int, *, ranks: int, linked: bool
) -> None:
    """Train runs of a job in turns, and add a row for each. trainings: of `training`; blocks: 0 for whole runs."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        file = Path(folder) / "trainings.json"
        file.write_text(json.dumps({"rows": str(rows.resolve()), "most_load": most_load, "trainings": trainings,
                                    "ports": free_ports(len(trainings) + 1)[1:], "blocks": blocks}))  # fmt: skip
        hosts: Sequence[Host] = stack.enter_context(two_networks(RATE)) if linked else (Host((), "127.0.0.1"),)
        words = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
        if not linked:
            words |= {"GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo", "MASTER_PORT": str(free_ports(1)[0])}
        command = [sys.executable, "-W", "ignore", str(Path(__file__)), "rank", "--rows", str(file)]
        status = run_ranks(hosts, command, ranks // len(hosts), environment=words, timeout_s=float("inf"))
        if status:
            raise SystemExit(f"a rank ended with {status}; the rows so far are kept")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, below those that Linux gives to clients."""
    found: list[int] = []
    for port in range(FIRST_PORT, FIRST_PORT + 10_000):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)):
                found.append(port)
        if len(found) == count:
            return found
    raise SystemExit("no port is free")


def as_rank(file: Path) -> None:
    """Train runs in turns, as the rank that the environment says; rank 0 adds a row for each that is whole.

    Every training has a process, forked of this one, which trains for a block of steps whenever it is told to, and is
    stopped (SIGSTOP) while others have their turn, so that it reads nothing ahead meanwhile.
    """
    import torch.distributed as dist

    import recsmith.training.rank  # noqa: F401  # before the fork: imported once
    from recsmith.jobs.worker import join_group

    rank, asked = int(os.environ["RANK"]), json.loads(file.read_text())
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    seeds = list(dict.fromkeys(each["seed"] for each in asked["trainings"]))
    children = [Child(each, port) for each, port in zip(asked["trainings"], asked["ports"], strict=True)]
    join_group("gloo")
    for seed in seeds:
        those = [each for each in children if each.training["seed"] == seed]
        load = wait_until_idle(asked["most_load"]) if rank == 0 else 0.0
        dist.barrier()
        for each in those:
            each.turn(dist.barrier)  # its start and its warm steps
        for block in range(asked["blocks"]):
            for each in those[:: -1 if block % 2 else 1]:
                each.turn(dist.barrier)
        for each in those:
            each.end(whole=not asked["blocks"])
            add_turns(each, load, Path(asked["rows"]), rank)
        dist.barrier()
    os._exit(0)  # gloo's threads would be waited for


class Child:
    """A training in a process of its own, which goes on for a block of steps at each turn."""

    def __init__(self, training: Words, port: int) -> None:
        self.training, self.took = training, list[tuple[float, float]]()
        ours, theirs = os.pipe(), os.pipe()
        self._process = os.fork()
        if not self._process:
            os.close(ours[1])
            os.close(theirs[0])
            train_in_turns(training, port, os.fdopen(ours[0], "rb"), os.fdopen(theirs[1], "w"))
        os.close(ours[0])
        os.close(theirs[1])
        self._go, self._done = os.fdopen(ours[1], "wb", buffering=0), os.fdopen(theirs[0])

    def turn(self, barrier: Callable[[], object]) -> None:
        """Let it take a block of steps on every rank, and note what these took."""
        os.kill(self._process, signal.SIGCONT)
        self._go.write(b"x")
        line = self._done.readline()
        if not line:
            raise SystemExit(f"the training of {self.training['kind'] or 'the run as it is'} ended early")
        self.took.append(tuple(json.loads(line)))
        barrier()  # the other rank may still wait for this one's part of a step
        os.kill(self._process, signal.SIGSTOP)

    def end(self, *, whole: bool) -> None:
        """End its process. whole: let it train on until its run ends."""
        if whole:
            self._go.write(b"x" * self.training["run"]["steps"])
            os.kill(self._process, signal.SIGCONT)
        else:
            os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)


def train_in_turns(training: Words, port: int, go: BinaryIO, done: TextIO) -> NoReturn:
    """Train in a forked process, a block of steps for each byte that comes; what a block took is a line."""
    import torch

    from recsmith.jobs.agent import PARENT, end_with_parent
    from recsmith.jobs.worker import join_group
    from recsmith.training.rank import train_on_rank
    from recsmith.training.steps.pipelines import BasePipeline

    status, said = 1, io.StringIO()
    try:
        os.environ[PARENT] = str(os.getppid())
        end_with_parent()
        logging.disable(logging.WARNING)
        torch.set_num_threads(1)
        step, steps = BasePipeline.__call__, 0
        begun = (0.0, 0.0)

        def counted(self: Any, batches: Any) -> Any:
            nonlocal steps, begun
            made = step(self, batches)
            steps += 1
            if steps >= WARM and (steps - WARM) % BLOCK == 0:
                done.write(json.dumps([time.perf_counter() - begun[0], time.process_time() - begun[1]]) + "\n")
                done.flush()
                go.read(1)
                begun = (time.perf_counter(), time.process_time())
            return made

        BasePipeline.__call__ = counted  # type: ignore[method-assign]
        go.read(1)
        os.environ["MASTER_PORT"] = str(port)
        join_group("gloo")
        with redirect_stderr(said):
            train_on_rank(training["run"])
        status = 0
    except BaseException:
        print(said.getvalue(), traceback.format_exc(), file=sys.__stderr__, flush=True)
    finally:
        os._exit(status)


def add_turns(child: Child, load: float, rows: Path, rank: int) -> None:
    """A row of a training: seconds of a step in each block, of the slowest rank, and the CPU of the busiest."""
    import torch
    import torch.distributed as dist

    if not (took := child.took[1:]):
        return
    blocks = torch.tensor(took, dtype=torch.float64) / BLOCK
    dist.all_reduce(blocks, dist.ReduceOp.MAX)
    if rank == 0:
        wall, cpu = blocks.T.tolist()
        row = {name: child.training[name] for name in ("job", "kind", "seed", "samples")}
        means = {"wall_s": statistics.fmean(wall), "cpu_s": statistics.fmean(cpu)}
        add_row(rows, {**row, **means, "walls_s": wall, "cpus_s": cpu, "load": load})
        shutil.rmtree(child.training["run"]["output"], ignore_errors=True)
        print(f"{row['job']}, {row['kind'] or 'as it is'}, seed {row['seed']}: {means['wall_s'] * 1e3:.1f} ms, "
              f"{means['cpu_s'] * 1e3:.1f} CPU ms", flush=True)  # fmt: skip


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
            order = [(kind, seed) for seed in range(chosen.seeds) for kind in told["kinds"]]
            trainings = [training(name, run, *each, told["kinds"][each[0]]) for each in order if each not in done]
            if trainings:
                train_all(trainings, chosen.rows, chosen.most_load, chosen.blocks, ranks=run.ranks or 1,
                          linked=name in LINKED)  # fmt: skip


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
                train_all([one], rest, chosen.most_load, 0, ranks=run.ranks or 1, linked=name in LINKED)
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
            told[kind] = {"verdict": "pair", "gain": gain, "error": advice.aim.error(gain, advice.base, price)}
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


def training(name: str, run: Run, kind: str, seed: int, settings: Sequence[str], steps: int = 1_000_000) -> Words:
    """One training of a job, as its ranks take it."""
    more = (f"seed={seed}", f"steps={steps}", "metrics.every=1000000", "checkpoint=null")
    changed = load_run(run, (*settings, *more))
    samples = changed.data.local_batch_size(run.ranks or 1) * (run.ranks or 1) * batches_of_a_step(changed)
    raw = run_to_raw(replace(changed, output=f"{changed.output}-{abs(hash((kind, seed)))}", ranks=None))
    return {"job": name, "kind": kind, "seed": seed, "samples": samples, "run": raw}


def read_rows(file: Path) -> list[Words]:
    """The rows so far; a line that was cut short is left out."""
    rows: list[Words] = []
    stored = file.read_bytes() if file.exists() else b""
    text = lzma.decompress(stored) if file.suffix == ".xz" else stored
    for line in text.decode().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            print("a line that was cut short is left out", file=sys.stderr)
    return rows


def add_row(file: Path, row: Words) -> None:
    """Add a row, whole, on a line of its own."""
    if file.suffix == ".xz":
        raise SystemExit(f"{file} is packed: unpack it with `xz -dk`, and give the file that this makes")
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
    parser.add_argument("--blocks", type=int, default=18, help="of 16 steps, of each training")
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
