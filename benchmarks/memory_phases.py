"""The tables of docs/stashing.md: memory over the time of a step, and tables that rest meanwhile.

    python benchmarks/memory_phases.py brute --problems 300   # what rests, held against every choice and placement
    python benchmarks/memory_phases.py fewest                 # fewest devices, with tables that rest and without
    python benchmarks/memory_phases.py peaks                  # 12 jobs on CPU: peaks by phase, predicted and measured
    python benchmarks/memory_phases.py limit                  # a job under a limit that it fits only so

`brute` and `fewest` need nothing besides RecSmith; `peaks` TorchRec and Linux; `limit` also memory cgroups of version 1
and root. `brute` ends with exit code 1 where a plan exceeds its devices, or costs over 1 % more than the best.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from recsmith import Feature, Placement, Table, Workload, load_cluster, load_workload, plan
from recsmith.analyses.step_memory import step_memory
from recsmith.costs import cost_model, price
from recsmith.errors import Infeasible, NoPlanFound, UsageError
from recsmith.planning.stashing import dense_of, stash_of, step_with_copies
from recsmith.problems import Constraints, Space, build_problem, footprint_of
from recsmith.problems.dense_bytes import DenseBytes, Stashing
from recsmith.problems.memory_schedule import PHASES, dense_phases_over, memory_schedule
from recsmith.problems.stashing import exposed_seconds, restable_bytes
from recsmith.workloads.optimizers import OPTIMIZERS

GIB, MIB = 2**30, 2**20
MODEL = "torchrec"
TYPES = ("table_wise", "row_wise")


# --- every choice of small problems --------------------------------------------------------------------------------


def small_problem(seed: int) -> tuple[Workload, Any, Stashing, Space]:
    """Two to four tables on two or three devices that are tight, with activations that tables must make way for."""
    draw = np.random.default_rng(seed)
    shapes = [
        (int(draw.integers(2_000, 60_000)), int(draw.choice([16, 32, 64])), float(draw.integers(1, 20)))
        for _ in range(int(draw.integers(2, 5)))
    ]
    work_tables = tuple(
        Table(name=f"t{i}", num_embeddings=rows, embedding_dim=dim, features=(Feature(name="f", pooling_factor=ids),))
        for i, (rows, dim, ids) in enumerate(shapes)
    )
    ranks = int(draw.integers(2, 4))
    whole = sum(table.weight_bytes for table in work_tables)
    room = int(whole / ranks * draw.uniform(1.1, 3.0)) + 4 * MIB
    activations = int(room * draw.uniform(0.1, 0.7))
    reserve = activations + MIB
    copy_s = whole / ranks / load_cluster("h100:2").device.host_link_bandwidth  # type: ignore[operator]
    dense_s = None if draw.random() < 0.3 else float(copy_s * draw.uniform(0, 6))
    hbm = room + MIB + int(activations * draw.uniform(0.1, 1.0))
    cluster = load_cluster(f"h100:{ranks}").with_memory(hbm, reserve)
    optimizer = str(draw.choice(["sgd", "rowwise_adagrad", "adagrad"]))
    work = Workload(batch_size=256, optimizer=optimizer, tables=work_tables)  # type: ignore[arg-type]
    return work, cluster, Stashing(activations=activations, dense_s=dense_s), Space(types=TYPES, widths="torchrec")


def best_of_all(work: Workload, cluster: Any, stashing: Stashing, space: Space) -> float | None:
    """Seconds of the best step with its copies: every placement, and for each every set of tables that rest."""
    dense = dense_of(work, cluster, stashing)
    open_ = build_problem(work, cluster.with_memory(reserve_bytes=1), space)
    evaluator, room = cost_model(MODEL).compile(open_), np.array(cluster.hbm_per_rank)
    bandwidth, best = float(cluster.device.host_link_bandwidth), None
    ranks = tuple(range(cluster.world_size))
    ways = [(("table_wise", (rank,)) for rank in ranks) for _ in work.tables]
    for chosen in product(*([*way, ("row_wise", ranks)] for way in ways)):
        placed = tuple(
            Placement(table=table.name, sharding_type=kind, compute_kernel="fused", ranks=where)
            for table, (kind, where) in zip(work.tables, chosen, strict=True)
        )
        try:
            footprint = footprint_of(open_, placed)
        except Exception:
            continue
        made = memory_schedule(open_, placed, footprint, dense)
        resting = [p for p, phase in enumerate(PHASES) if phase in ("dense forward", "dense backward")]
        if (np.delete(made.totals, resting, axis=0) > room).any():
            continue
        over = dense_phases_over(made)
        freed, seconds = restable_bytes(open_, footprint)[0], price(evaluator, footprint).total_s
        for picked in product((0, 1), repeat=len(freed)):
            held = np.array(picked) @ freed
            if (held >= over).all():
                copy_s = float(held.max()) / bandwidth
                exposed = 2 * copy_s if stashing.dense_s is None else exposed_seconds(copy_s, stashing.dense_s)
                best = min(best or np.inf, seconds + exposed)
    return best


def brute(first: int, count: int) -> int:
    """Plans of small problems beside the best of all choices."""
    gaps, rests, exceed, none, missed = [], 0, 0, 0, 0
    for seed in range(first, first + count):
        work, cluster, stashing, space = small_problem(seed)
        best = best_of_all(work, cluster, stashing, space)
        try:
            made = plan(work, cluster, cost_model=MODEL, space=space, constraints=Constraints(stash=stashing)).plan
        except (Infeasible, NoPlanFound, UsageError):
            none, missed = none + (best is None), missed + (best is not None)
            continue
        exceed += not step_memory(made).schedule.fits
        rests += stash_of(made) is not None
        if best is None:
            print(f"problem {seed}: a plan where every choice exceeds")
            exceed += 1
            continue
        gaps.append(step_with_copies(made) / best - 1)
        if gaps[-1] > 0.01:
            print(f"problem {seed}: {gaps[-1]:.2%} above the best")
    found = np.array(gaps)
    print("| problems | planned | tables rest | no plan exists | missed | exceed | worst above best | within 1 % |")
    print("|---|---|---|---|---|---|---|---|")
    within = int((found <= 0.01).sum())
    print(f"| {count} | {len(found)} | {rests} | {none} | {missed} | {exceed} | {found.max():.2%} | {within} |")
    return int(exceed > 0)


# --- fewest devices ------------------------------------------------------------------------------------------------

MOST = 128  # devices
JOBS = ("dlrm-v2", "nvidia-jumbo", "dlrm-v4")
DENSE = {"as estimated": (None, None), "30 GiB, of which 25 are activations": (30 * GIB, 25 * GIB)}


def fewest(names: list[str]) -> None:
    """The fewest devices with a plan, h100, for two dense models."""
    print("| workload | rest of the model | fewest without | when tables rest | most that rests | over mean | copy |")
    print("|---|---|---|---|---|---|---|")
    for name in names or JOBS:
        for words, (reserve, activations) in DENSE.items():
            without = _fewest(name, reserve, None)
            stashing = Stashing(activations=activations)
            found = _fewest(name, reserve, stashing, below=without and without[0])
            rests = found and stash_of(found[1])
            most = f"{rests.most / GIB:.1f} GiB" if rests else "nothing"
            even = f"{rests.most / rests.mean:.3f}" if rests else ""
            copy = f"{rests.copy_s * 1e3:.0f} ms" if rests and rests.copy_s else ""
            cells = (str(each[0]) if each else f"none of {MOST}" for each in (without, found))
            print(f"| `{name}` | {words} | {' | '.join(cells)} | {most} | {even} | {copy} |", flush=True)


def _counts() -> list[int]:
    return [*range(1, 9), *range(16, MOST + 1, 8)]


def _fewest(name: str, reserve: int | None, stashing: Stashing | None, below: int | None = None) -> Any:
    """(devices, plan) of the fewest that have a plan; every count is tried, few first."""
    work = load_workload(name)
    for count in _counts():
        if below is not None and count > below:
            return None
        copies = 1 + OPTIMIZERS[work.optimizer].element_states
        if copies * sum(table.weight_bytes for table in work.tables) > count * load_cluster("h100:1").device.hbm_bytes:
            continue
        text = f"h100:{count}" if count <= 8 else f"h100:8x{count // 8}"
        cluster = load_cluster(text)
        cluster = cluster if reserve is None else cluster.with_memory(reserve_bytes=reserve)
        limits = Constraints(stash=stashing)
        try:
            return count, plan(work, cluster, cost_model="analytic", constraints=limits, iterations=1).plan
        except (Infeasible, NoPlanFound, UsageError):
            continue
    return None


# --- peaks of jobs, phase by phase ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A job of one rank: tables (rows, columns, ids of a sample), widths of dense layers, samples, optimizers, rest."""

    tables: tuple[tuple[int, int, float], ...]
    layers: tuple[int, ...]
    batch: int
    sparse: str = "rowwise_adagrad"
    dense: str = "sgd"
    rest: str | None = None


SMALL_TABLE, LARGE_TABLE = (100_000, 64, 4.0), (300_000, 64, 4.0)
PEAKS = {
    "large table, small layers": Job((LARGE_TABLE,), (256, 128), 2048),
    "many ids": Job(((100_000, 32, 60.0),), (256, 128), 8192),
    "wide layers": Job((SMALL_TABLE,), (1024, 1024), 2048),
    "wide layers, adam": Job((SMALL_TABLE,), (1024, 1024, 1024), 512, dense="adam"),
    "many samples": Job((SMALL_TABLE,), (256, 256, 256, 256), 8192),
    "two tables, adagrad": Job((SMALL_TABLE, (200_000, 32, 2.0)), (256, 256), 4096, sparse="adagrad"),
    "four tables": Job((SMALL_TABLE,) * 4, (256, 128), 4096, sparse="sgd"),
    "deep layers": Job((SMALL_TABLE,), (256,) * 12, 4096),
    "large table rests": Job((LARGE_TABLE,), (256,) * 20, 8192, rest="weights"),
    "with its state": Job((LARGE_TABLE,), (256,) * 20, 8192, sparse="adagrad", rest="weights_and_state"),
    "four tables rest": Job((SMALL_TABLE,) * 4, (256,) * 16, 8192, rest="weights"),
    "small table rests": Job((SMALL_TABLE,), (256,) * 4, 8192, rest="weights"),
}
STATES = {"sgd": (0, 0), "adam": (2, 2)}  # of dense optimizers: kept copies, and copies of one layer in a step
MEASURED = ("lookup", "dense forward", "dense backward", "embedding update", "dense optimizer")


def workload_of(job: Job) -> Workload:
    tables = tuple(
        Table(name=f"t{i}", num_embeddings=rows, embedding_dim=dim, features=(Feature(name="f", pooling_factor=ids),))
        for i, (rows, dim, ids) in enumerate(job.tables)
    )
    return Workload(batch_size=job.batch, optimizer=job.sparse, tables=tables)  # type: ignore[arg-type]


def dense_bytes_of(job: Job) -> DenseBytes:
    """Of layers that are Linear and ReLU: what ReLU gives is kept until its backward, which has two gradients as large.

    Backward goes from the last layer to the first, and frees what it has passed.
    """
    widths = (sum(dim for _, dim, _ in job.tables), *job.layers, 1)
    weights = [4 * (have * give + give) for have, give in pairwise(widths)]
    kept, temporary = STATES[job.dense]
    outputs = [4 * width * job.batch for width in job.layers]
    activations = max(alive + 2 * each for each, alive in zip(outputs, accumulate(outputs), strict=True))
    return DenseBytes(
        fixed=sum(weights) * (1 + kept), gradients=sum(weights), activations=activations,
        temporaries=temporary * max(weights),
    )  # fmt: skip


def plan_of(job: Job) -> Any:
    from recsmith.planning.simulate import price as priced

    work = workload_of(job)
    placed = [
        Placement(table=t.name, sharding_type="table_wise", compute_kernel="fused", ranks=(0,), stash=job.rest)  # type: ignore[arg-type]
        for t in work.tables
    ]
    return priced(work, load_cluster("cpu:1"), placed, cost_model=MODEL, bound=False)


def peaks(names: list[str]) -> None:
    """Predicted peaks beside those of one process that trains the jobs in turn."""
    chosen = names or list(PEAKS)
    said = subprocess.run([sys.executable, __file__, "measured", *chosen], capture_output=True, text=True, check=False)
    if said.returncode:
        raise SystemExit(said.stderr[-2000:])
    print("| job | predicted MB | in phase | measured MB | in phase | predicted / measured |")
    print("|---|---|---|---|---|---|")
    for name, line in zip(chosen, said.stdout.splitlines()[-len(chosen) :], strict=True):
        seen, found = json.loads(line), step_memory(plan_of(PEAKS[name]), dense_bytes_of(PEAKS[name]))
        told: dict[str, float] = dict(zip(map(str, PHASES), found.schedule.totals[:, 0].tolist(), strict=True))
        told["lookup"] = max(told["lookup"], told["output all-to-all"])
        told["embedding update"] = max(told["embedding update"], told["gradient all-to-all"])
        phase, at = (max(MEASURED, key=lambda each: sizes[each]) for sizes in (told, seen))
        print(f"| {name} | {told[phase] / 1e6:.1f} | {phase} | {seen[at] / 1e6:.1f} | {at} | "
              f"{told[phase] / seen[at]:.3f} |", flush=True)  # fmt: skip
        by_phase = ", ".join(f"{each} {told[each] / 1e6:.0f}/{seen[each] / 1e6:.0f}" for each in MEASURED)
        print(f"    {by_phase}", file=sys.stderr)


def measured(names: list[str]) -> None:
    """Peaks of resident memory by phase, over steps after the first, less what was there before the job's tables."""
    import torch.distributed as dist

    from recsmith._process import proc_bytes, return_freed_memory, settle

    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{Path(folder).resolve()}/store", rank=0, world_size=1)
        return_freed_memory()
        _train(replace(PEAKS[names[0]], tables=((1000, 64, 4.0),), layers=(32, 32), batch=64, rest=None), 2, folder)
        for name in names:
            settle()
            before = proc_bytes("self/status", "VmRSS")
            seen = _train(PEAKS[name], 3, folder)
            print(json.dumps({phase: size - before for phase, size in seen.items()}), flush=True)
        dist.destroy_process_group()


def _train(job: Job, steps: int, folder: str) -> dict[str, int]:
    """Most resident bytes in each phase."""
    import torch
    from torch import nn

    from recsmith._process import proc_bytes, settle
    from recsmith.jobs.sharded_model import sharded_model
    from recsmith.jobs.workload_model import random_batch
    from recsmith.training.systems.stash.rows import StashedRows

    seen: dict[str, int] = {}

    def until(phase: str) -> None:
        if phase and step > 0:
            seen[phase] = max(seen.get(phase, 0), proc_bytes("self/status", "VmHWM"))
        Path("/proc/self/clear_refs").write_text("5")

    made = plan_of(job)
    model, _ = sharded_model(made, job.sparse)
    widths = (sum(dim for _, dim, _ in job.tables), *job.layers)
    layers = [part for have, give in pairwise(widths) for part in (nn.Linear(have, give), nn.ReLU())]
    net = nn.Sequential(*layers, nn.Linear(widths[-1], 1))
    optimizer: Any = torch.optim.SGD(net.parameters(), 0.1)
    optimizer = torch.optim.Adam(net.parameters(), 0.1) if job.dense == "adam" else optimizer
    with torch.no_grad():  # fresh zeros take no memory until they are written
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.mul_(1)
    rows = StashedRows(model, folder=folder, what=job.rest) if job.rest else None  # type: ignore[arg-type]
    draw = torch.Generator().manual_seed(0)
    for step in range(steps):  # noqa: B007  (`until` reads it)
        batch = random_batch(made.workload, job.batch, draw)
        optimizer.zero_grad()
        settle()
        until("")
        looked_up = torch.cat(list(model(batch).values()), dim=1)
        until("lookup")
        looked_up.register_hook(lambda _: until("dense backward"))
        loss = net(looked_up).mean()
        until("dense forward")
        del looked_up
        loss.backward()
        until("embedding update")
        optimizer.step()
        until("dense optimizer")
        del batch, loss
    if rows is not None:
        rows.flush()
    return seen


# --- a job under a limit -------------------------------------------------------------------------------------------

CGROUPS = Path("/sys/fs/cgroup/memory")
BATCH, WIDTH, LAYERS = 32_768, 128, 16  # narrow layers of many samples: activations without much work
ACTIVATIONS = 4 * BATCH * WIDTH * 2 * LAYERS  # bytes


def limit(steps: int) -> None:
    """A job without a limit, under one that its tables and activations exceed, and there with tables that rest."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        rows = {"name": "stashed", "folder": str(folder / "rows")}
        whole = _trained(folder, "whole", "device", steps, None)
        room = whole.most - ACTIVATIONS // 3
        print("| job | limit | ends | most held | predicted step | measured step | predicted / measured | weights |")
        print("|---|---|---|---|---|---|---|---|")
        for label, what, found, told in (
            ("whole", "rows: device", whole, "none"),
            ("limited", "rows: device", _trained(folder, "limited", "device", steps, room), f"{room / MIB:.0f} MiB"),
            ("rests", "rows: stashed", _trained(folder, "rests", rows, steps, room), f"{room / MIB:.0f} MiB"),
        ):
            held = f"{found.most / MIB:.0f} MiB" if found.step_s else ""
            step = f"{found.step_s * 1e3:.0f} ms" if found.step_s else ""
            said = f"{found.told_s * 1e3:.0f} ms" if found.told_s else ""
            ratio = f"{found.told_s / found.step_s:.3f}" if found.told_s and found.step_s else ""
            print(f"| {what} | {told} | exit code {found.code} | {held} | {said} | {step} | {ratio} | "
                  f"{_same(folder, label)} |", flush=True)  # fmt: skip
            if found.code:
                print(found.said[-600:], file=sys.stderr)


@dataclass(frozen=True)
class Trained:
    """How a job ended, what it said, the most bytes that its processes held, seconds of a step, and those told."""

    code: int
    said: str
    most: int
    step_s: float | None
    told_s: float | None


def _same(folder: Path, label: str) -> str:
    one, other = (folder / each / "model" / "weights.safetensors" for each in ("whole", label))
    if not other.exists():
        return "none"
    return "bit-equal" if one.read_bytes() == other.read_bytes() else "differ"


def _trained(folder: Path, label: str, rows: Any, steps: int, room: int | None) -> Trained:
    """A job of `recsmith train`, in a cgroup."""
    features = [{"name": "a", "num_embeddings": 1_500_000}]
    data = {"format": "generator", "num_samples": BATCH * (steps + 1), "dense": 8, "features": features}
    run = {
        "schema": "recsmith/run/1", "output": str(folder / label), "ranks": 1, "steps": steps,
        "data": {"train": data, "batch_size": BATCH},
        "model": {"embedding_dim": 64, "bottom": [*[WIDTH] * LAYERS, 64], "top": [WIDTH] * LAYERS},
        "rows": rows, "metrics": {"every": 1},
    }  # fmt: skip
    path = folder / f"{label}.json"
    path.write_text(json.dumps(run))
    group = CGROUPS / f"recsmith-memory-{label}-{time.monotonic_ns()}"
    group.mkdir()
    try:
        if room is not None:
            (group / "memory.limit_in_bytes").write_text(str(room))
        enter = f"echo $$ > {group}/cgroup.procs; exec {sys.executable} -m recsmith train {path}"
        process = subprocess.Popen(["sh", "-c", enter], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        most = 0
        while process.poll() is None:
            stated = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            most = max(most, int(stated["total_rss"]))
            time.sleep(0.02)
        said = process.stdout.read() if process.stdout else ""
        log = folder / label / "log.jsonl"
        lines = list(_lines(log))
        times = [line["step_s"] for line in lines if "step_s" in line]
        told_s = next((line["predicted_step_s"] for line in lines if line.get("predicted_step_s")), None)
        mean = float(np.mean(times[1:])) if len(times) > 1 else None
        return Trained(process.returncode, said, most, mean, told_s)
    finally:
        until = time.monotonic() + 10
        while (group / "cgroup.procs").read_text() and time.monotonic() < until:
            time.sleep(0.05)
        group.rmdir()


def _lines(log: Path) -> Iterator[dict[str, Any]]:
    yield from (json.loads(line) for line in log.read_text().splitlines()) if log.exists() else ()


def main() -> int:
    """The table that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["brute", "fewest", "peaks", "limit", "measured"])
    parser.add_argument("names", nargs="*", help="of peaks and fewest: which jobs")
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="of brute: the first problem")
    parser.add_argument("--steps", type=int, default=4)
    given = parser.parse_args()
    if given.table == "brute":
        return brute(given.first, given.problems)
    made: dict[str, Any] = {
        "fewest": lambda: fewest(given.names), "peaks": lambda: peaks(given.names), "limit": lambda: limit(given.steps),
        "measured": lambda: measured(given.names),
    }  # fmt: skip
    made[given.table]()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
