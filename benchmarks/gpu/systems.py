"""Every system of training, switched on in a small job of one rank: on the GPU, and beside it on the CPU.

python benchmarks/gpu/systems.py FOLDER                       # goes on where it was; failed jobs are tried again
python benchmarks/gpu/systems.py FOLDER --only sgd,shampoo
python benchmarks/gpu/systems.py FOLDER --device cpu          # a rehearsal: both are trained on the CPU
python benchmarks/gpu/systems.py --show ROWS.jsonl            # the table of what was measured; nothing is run

Each job is one of JOBS, the most important ones first: settings over one run of three generated tables, 30 steps of 512
samples. Jobs run side by side, each in a process of its own that is ended after --timeout seconds, so one that crashes
or hangs costs no other. Its row is appended to FOLDER/systems.jsonl as soon as it ends, and a failed one leaves what it
printed in FOLDER/logs. One that the time of all jobs cut short is `cut`, and begins anew next time. The table at the
end shows how far losses are from those of the CPU: DIFFERS where that is more than the job's bound.

torch is imported once, by a process without a GPU that is forked for each job; where such a fork cannot use the GPU,
each job imports it by itself. The process that waits never imports it.
"""

import argparse
import json
import math
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

STEPS, BATCH, DIM, SAMPLES = 30, 512, 16, 60_000
TABLES = {"a": 2000, "b": 5003, "c": 211}
# The relative difference of a loss that rounding may make: in fp32; where a method chooses by numbers that are nearly
# equal, or takes roots of nearly nothing; and in bf16 and fp16.
FP32, CHOOSING, COARSE = 1e-4, 1e-2, 3e-2
THREADS = "1"
PORTS = 20_000  # the first of those at which ranks meet
IMPORTED = ["torch", "torchrec", "fbgemm_gpu", "recsmith.training.rank", "recsmith.training.launch.launching"]
Row = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """A system, and how a run switches it on.

    settings: over the run, as of --set. plan: auto, torchrec, or the sharding type or kernel of all tables. mode: what
    is done beside training; rows: on the CPU, whose FBGEMM lacks the optimizer, the unsharded model trains; alone: the
    rank sends its largest numbers to itself, where one rank sends nothing otherwise. refused: where it is documented to
    be. without: what torch says where FBGEMM lacks the job's kernels, as it does where pack.sh packed it.
    bound: of the difference. beside: the job whose CPU losses it is held against; the same one by default.
    """

    name: str
    settings: tuple[str, ...] = ()
    plan: str = "table_wise"
    mode: str = ""
    refused: str = ""
    without: str = ""
    bound: float = FP32
    beside: str = ""
    steps: int = 0


def tables(**words: Any) -> str:
    return "model.tables=" + json.dumps(
        [{"name": name, "num_embeddings": rows, **words} for name, rows in TABLES.items()]
    )


def sparse(name: str, rate: float = 0.1) -> str:
    return f"optimizers.sparse={{name: {name}, learning_rate: {rate}}}"


def smaller(method: str, **words: Any) -> str:
    return "model.compression=" + json.dumps([{"tables": "a", "above_rows": 0, "method": method, **words}])


def in_periods(update: Any, **words: Any) -> str:
    return "data.periods=" + json.dumps({"samples": 5 * BATCH, "update": update, **words})


BASE = ("sessions", "search", "pooled", "launch")  # modes whose models or jobs cannot have their ids cross ahead
MAPS = "MAPS"  # in settings: the file of maps that a job's process writes
BF16 = "model.precision=bf16"
MEMBERS = "{one: [], other: [seed=1], faster: [optimizers.dense.learning_rate=0.004]}"
SEQUENCES = json.dumps(
    [{"name": n, "num_embeddings": r, "pooling": "sum" if n == "c" else "none"} for n, r in TABLES.items()]
)
JOBS = (
    Job("adagrad"),
    Job("sgd", (sparse("sgd", 500.0),)),
    Job("rowwise_adagrad", (sparse("rowwise_adagrad"),)),
    Job("adam", (sparse("adam", 0.05),), mode="rows"),
    Job("pipeline: base", ("pipeline=base",)),
    Job("pipeline: sparse_dist", ("pipeline=sparse_dist",)),
    Job("plan: auto", plan="auto"),
    Job("plan: data_parallel", plan="data_parallel", without="[backend fallback]"),
    Job("plan: fused_uvm_caching", plan="fused_uvm_caching", beside="adagrad"),
    Job("pipeline: prefetch_sparse_dist", ("pipeline=prefetch_sparse_dist",), plan="fused_uvm_caching",
        beside="adagrad"),
    Job("checkpoint and resume", ("checkpoint={every: 10, keep: 2}",), mode="resume"),
    Job("a job that starts its rank", mode="launch"),
    Job("export and predict", mode="predict"),
    Job("tables in fp16", (tables(data_type="fp16"),), bound=COARSE),
    Job("tables in bf16", (tables(data_type="bf16"),), refused="cuda cpu"),
    Job("model.precision: bf16", (BF16,), bound=COARSE),
    Job("comms: fp16", ("comms={forward: fp16, backward: fp16}",), bound=COARSE),
    Job("comms: bf16", ("comms={forward: bf16, backward: bf16}",), bound=COARSE),
    Job("shampoo", ("optimizers.dense={name: shampoo, learning_rate: 0.001, arguments: {precondition_frequency: 5}}",),
        bound=CHOOSING),
    Job("model.narrow", ("model.narrow={keep: 0.35, cycles: 1, dense_at_start: 0.34, dense_at_end: 0.25}",
                         "model.top=[128, 64]"), steps=40, bound=CHOOSING),
    Job("comms: thresholded dense", ("comms={name: thresholded, dense: 0.05, renew: 8}",), mode="alone",
        bound=CHOOSING),
    Job("comms: thresholded pooled", ("comms={name: thresholded, dense: null, pooled: 0.333}",), mode="alone",
        bound=CHOOSING),
    Job("data.deduplicate", ("data.deduplicate=auto", "data.keep_together=16"), mode="sessions"),
    Job("array", (f"array={{members: {MEMBERS}, together: always}}",)),
    Job("array.layer_memory", (f"array={{members: {MEMBERS}, together: always, layer_memory: 800KiB}}",)),
    Job("periods: incremental", (in_periods("incremental"),)),
    Job("periods: window", (in_periods({"name": "window", "periods": 2}),)),
    Job("periods: future_gradient", (in_periods({"name": "future_gradient", "periods": 2}),)),
    Job("watch: auto", ("watch=auto",)),
    Job("search", mode="search", bound=COARSE),  # each device draws choices of its own
    Job("data.feed", ("data.feed=1",)),
    Job("capture", ("capture=CAPTURE",), mode="capture"),
    Job("sequence tables", (f"model.tables={SEQUENCES}", "model.name=systems:attending"), mode="pooled"),
    Job("batches that grow", ("data.batch_changes=[{after_steps: 10, size: 1024}]",)),
    Job("lamb", (sparse("lamb", 0.2),), mode="rows"),
    Job("partial_rowwise_adam", (sparse("partial_rowwise_adam", 0.05),), mode="rows"),
    Job("compression: hash", (smaller("hash", factor=4),)),
    Job("compression: quotient_remainder", (smaller("quotient_remainder", factor=4),)),
    Job("compression: mixed_dimension", (smaller("mixed_dimension", temperature=0.3),)),
    Job("compression: learned_hash", (smaller("learned_hash", factor=4, maps=MAPS),), mode="maps"),
    Job("compression: mixed_radix", (smaller("mixed_radix"),)),
    Job("compression: chinese_remainder", (smaller("chinese_remainder"),)),
    Job("compression: path_based", (smaller("path_based", factor=4),)),
    Job("compression: truncated", (smaller("truncated", widths=[4], rows=0.5),)),
    Job("rows: split", (sparse("sgd", 500.0), "rows=split"), refused="cuda"),
    Job("rows: tiered", ("rows={name: tiered, folder: ROWS, cache: 1.0}",), refused="cuda"),
    Job("pipeline: dance", ("pipeline={name: dance, samples: 1024, newton: 2, inner: 5}",), bound=CHOOSING, steps=3),
    Job("pipeline: progressive_lbfgs", ("pipeline={name: progressive_lbfgs}",), bound=CHOOSING),
    Job("dense: split", (BF16, "optimizers.dense={name: split, learning_rate: 0.001, arguments: {optimizer: adam}}"),
        bound=COARSE),
    Job("dense: master", (BF16, "optimizers.dense={name: master, learning_rate: 0.001, arguments: {optimizer: adam}}"),
        bound=COARSE),
    Job("watchers: plan_watch", ("watchers=[{name: plan_watch, steps: 8}]", "checkpoint={every: 10}")),
    Job("watchers: sparse_copy", (in_periods("incremental"), "watchers=[sparse_copy]")),
    Job("checkpoint.background", ("checkpoint={every: 10, background: true}",), mode="resume"),
    Job("towers", ("model.table_module={name: towers, ratio: 2, towers: [[a, b, c]]}",)),
    Job("dlrm_dcn", ("model.name=dlrm_dcn",)),
    Job("deepfm", ("model.name=deepfm",)),
    Job("clip_norm and warmup", ("optimizers.dense.clip_norm=0.1", "optimizers.warmup_steps=10")),
    Job("plan: row_wise", plan="row_wise"),
    Job("plan: column_wise", plan="column_wise"),
    Job("plan: torchrec", plan="torchrec"),
    Job("comms: int8", ("comms={forward: int8, backward: fp16}",), bound=COARSE),
    Job("array.together: never", (f"array={{members: {MEMBERS}, together: never}}",)),
    Job("periods: auto", (in_periods({"name": "auto", "periods": 2, "replayed": 7}, most=9),), steps=300),
    Job("remote", ("remote={servers: 1}",), mode="launch", refused="cuda"),
)  # fmt: skip


# --- a job, in its own process --------------------------------------------------------------------------------------


def attending(tables: Any, dense: int, *, sequences: Any) -> Any:
    """A model of one's own: what is pooled, and sequences whose rows are weighted by their own score."""
    import torch

    class Attending(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables, self.sequences = tables, sequences
            self.score, self.last = torch.nn.Linear(DIM, 1), torch.nn.Linear(dense + len(TABLES) * DIM, 1)

        def forward(self, values: torch.Tensor, features: Any) -> torch.Tensor:
            parts = [values, self.tables(features).values()]
            for _, rows in sorted(self.sequences(features).items()):
                padded = rows.to_padded_dense(8)
                parts.append((padded * self.score(padded).sigmoid()).sum(1))
            return self.last(torch.cat(parts, dim=1))

    return Attending()


def data(mode: str, first: int, samples: int) -> Row:
    bags = {"a": {}, "b": {"pooling_factor": 3, "lengths": "poisson"}, "c": {}}
    if mode == "pooled":
        bags = {name: {"pooling_factor": 2, "lengths": "poisson"} for name in TABLES}
    elif mode == "sessions":
        bags = {name: {"pooling_factor": 4, "lengths": "poisson", "duplication": 0.9} for name in TABLES}
    features = [{"name": name, "num_embeddings": rows, **bags[name]} for name, rows in TABLES.items()]
    made: Row = {"format": "generator", "seed": 7, "dense": 4, "features": features}
    sessions = {"sessions": {"size": 16}} if mode == "sessions" else {}
    return {**made, **sessions, "first_sample": first, "num_samples": samples}


def the_run(job: Job, folder: Path, device: str, steps: int, *, ahead: bool) -> Any:
    """The run of a job, with its plan. ahead: under the pipeline that a GPU has, where the job leaves it open."""
    from recsmith.training import load_run

    raw = {
        "schema": "recsmith/run/1", "output": str(folder / "out"), "steps": job.steps or steps, "checkpoint": None,
        "data": {"train": data(job.mode, 0, SAMPLES), "test": data(job.mode, SAMPLES, 2000), "batch_size": BATCH},
        "model": {"embedding_dim": DIM, "bottom": [64], "top": [64, 32]},
        "optimizers": {"sparse": {"name": "adagrad", "learning_rate": 0.1}}, "metrics": {"every": 1},
        "device": "cuda" if device == "cuda" else "auto",
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(raw))
    places = {MAPS: "maps.safetensors", "CAPTURE": "trace", "ROWS": "rows"}
    settings = list(job.settings)
    for word, name in places.items():
        settings = [each.replace(word, str(folder / name)) for each in settings]
    if job.mode == "maps":
        write_maps(folder / "maps.safetensors")
    run = load_run(folder / "run.json", tuple(settings))
    if ahead and run.pipeline == "auto" and job.mode not in BASE:
        run = replace(run, pipeline="sparse_dist")
    kind = "table_wise" if device == "cpu" and job.plan == "fused_uvm_caching" else job.plan
    return replace(run, plan=kind if kind in ("auto", "torchrec") else plan_of(run, kind, device, folder))


def write_maps(file: Path) -> None:
    import numpy as np

    from recsmith.embeddings import IdMap, save_maps

    numbers = np.random.default_rng(0).integers(0, TABLES["a"] // 4, TABLES["a"])
    save_maps({"a": IdMap(numbers=numbers.astype(np.int32))}, file)


def plan_of(run: Any, kind: str, device: str, folder: Path) -> str:
    """All tables, the physical ones of a compressed model, by one sharding type or in host memory with a cache."""
    import recsmith
    from recsmith.embeddings.workloads import compress
    from recsmith.training.systems.stored.compressing import run_workload

    workload = run_workload(run)
    if run.model.compression:
        workload = compress(workload, run.model.compression).workload
    cached = kind == "fused_uvm_caching"
    kernels = (kind,) if cached else ("fused", "dense")
    rules: Row = {"tables": "*", "sharding_types": ["table_wise" if cached else kind]}
    if kind == "column_wise":
        rules["widths"] = [DIM // 2]
    (folder / "rules.json").write_text(json.dumps({"schema": "recsmith/constraints/1", "rules": [rules]}))
    plan = recsmith.plan(
        workload, "h200:1" if device == "cuda" else "cpu:1", constraints=folder / "rules.json",
        planner="size_greedy", space=recsmith.Space(kernels=kernels),
    ).plan  # fmt: skip
    recsmith.save_plan(plan, folder / "plan.json")
    return str(folder / "plan.json")


def train_here(run: Any) -> Row:
    """Train a run on this rank, refused as `recsmith train` refuses it; what came of it."""
    from recsmith.training.launch.prerequisites import check_run
    from recsmith.training.rank import train_on_rank
    from recsmith.training.run import run_to_raw
    from recsmith.training.systems.arrays.members import trained_runs

    for each in trained_runs(run):
        check_run(each, 1)
    return train_on_rank(run_to_raw(run))


def trained(job: Job, run: Any, folder: Path) -> Row:
    """Train a job and do what its mode says; numbers of its row."""
    from recsmith.training import train

    more: Row = {}
    if job.mode == "alone":
        send_to_itself()
    if job.mode == "search":
        from recsmith.training.systems.search.searching import NetworkSearch, prepare

        run = prepare(run, NetworkSearch(under=0.6, price="bytes"), str(folder / "search")).network
        run = replace(run, metrics=replace(run.metrics, every=1))
    if job.mode == "resume":
        train_here(replace(run, steps=20))
    result = train(run) if job.mode == "launch" else train_here(run)
    peak = max(each.get("peak_bytes", 0) for each in (result, *result.get("members", {}).values()))
    if job.mode == "predict":
        more["predictions"] = predictions(run)
    if job.mode == "capture":
        from recsmith.prediction.traces import load_capture

        captured = load_capture(folder / "trace")
        more["captured"] = sorted({event.term for _, event in captured.graph.kernels()})
    return {**measured(Path(run.output)), "peak_mib": round(peak / 2**20, 1), **more}


def unsharded(run: Any) -> Row:
    """Losses of the model with plain tables on the CPU, by optimizers of rows written out here."""
    import torch

    from recsmith.scoring.predictions import ScoredLabels, Window
    from recsmith.training.batches import training_batches
    from recsmith.training.job.models import build_task
    from recsmith.training.job.sharded import draw_weights
    from recsmith.training.sources import open_source
    from recsmith.training.stores.device import DeviceRows
    from recsmith.training.tables.plain import features_of, initial_weights_of

    source, losses = open_source(run), list[float]()
    task = build_task(run.model, source.schema, run.seed, tables_on="cpu")
    draw_weights(DeviceRows(task), initial_weights_of(task), run.seed)
    rows = [(each, {}) for name, each in task.named_parameters() if ".embedding_bags." in name]
    dense = [each for name, each in task.named_parameters() if ".embedding_bags." not in name]
    layers = torch.optim.Adam(dense, lr=run.optimizers.dense.learning_rate)
    batches = training_batches(source, run.data.batch_sizes(1), features_of(task), rank=0, ranks=1)
    for step in range(1, run.steps + 1):
        task.zero_grad()
        loss, (_, logits, labels, _) = task(next(batches))
        loss.backward()
        layers.step()
        with torch.no_grad():
            for weights, state in rows:
                update_rows(weights, state, run.optimizers.sparse, step)
        window = Window(logits.device, ScoredLabels(("label",)))
        window.add(logits, labels)
        losses.append(window.scores().logloss or 0.0)
    return {"losses": losses, "samples_per_s": None}


def update_rows(weights: Any, state: dict[str, Any], settings: Any, step: int) -> None:
    """A step of Adam, partial row-wise Adam or LAMB for the rows that a batch looked up, as FBGEMM defines them."""
    found = weights.grad.abs().sum(1).nonzero().ravel()
    gradient, row = weights.grad[found], weights[found]
    squares = gradient.square()
    if settings.name == "partial_rowwise_adam":
        squares = squares.mean(1, keepdim=True)
    means = []
    for name, value, decay in (("first", gradient, settings.beta1), ("second", squares, settings.beta2)):
        kept = state.setdefault(name, value.new_zeros(len(weights), value.shape[1]))
        kept[found] = decay * kept[found] + (1 - decay) * value
        means.append(kept[found] / (1 - decay**step))
    turn = means[0] / (means[1].sqrt() + settings.eps)
    ratio = row.norm(dim=1, keepdim=True) / turn.norm(dim=1, keepdim=True) if settings.name == "lamb" else 1.0
    weights[found] = row - settings.learning_rate * ratio * turn


def send_to_itself() -> None:
    """Have thresholds choose and send on one rank, too."""
    from recsmith.training.systems.thresholds.dense import DenseThresholds
    from recsmith.training.systems.thresholds.pooled import replace_pooled
    from recsmith.training.systems.thresholds.settings import Thresholded

    def attach(settings: Any, model: Any) -> Any:
        if settings.pooled is not None and replace_pooled(model, settings) == 0:
            raise ValueError("no all-to-all of pooled embeddings was found")
        return None if settings.dense is None else DenseThresholds(settings, model).hook()

    Thresholded.attach = attach  # type: ignore[method-assign, assignment]


def predictions(run: Any) -> list[float]:
    """What the exported model says of three samples."""
    from recsmith.training import load_model

    model = load_model(Path(run.output) / "model")
    bags = {name: [[1], [2], [rows - 1]] for name, rows in TABLES.items()}
    return [float(each) for each in model(bags, [[0.1] * 4, [0.5] * 4, [0.9] * 4]).ravel()]


def measured(output: Path) -> Row:
    """Losses by step, of all members one after the other, and the median rate of the later half of the steps."""
    losses: list[float] = []
    rates: list[float] = []
    for file in sorted(output.rglob("log.jsonl")):
        lines = [each for each in map(json.loads, file.read_text().splitlines()) if each["event"] == "train"]
        losses += [each["logloss"] for each in lines]
        rates += [each["samples_per_s"] for each in lines[len(lines) // 2 :]]
    return {"losses": losses, "samples_per_s": round(statistics.median(rates)) if rates else None}


def work(name: str, device: str, steps: int, folder: Path, ahead: bool) -> None:
    """A job's process: leaves row.json in its folder. ahead: as `the_run` has it."""
    os.setsid()
    with (folder / "log.txt").open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    port = str(PORTS + int(folder.name))  # of this job alone
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "1"}
    os.environ.update({**ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    begun = time.perf_counter()
    row = outcome(next(job for job in JOBS if job.name == name), device, steps, folder, ahead)
    row["seconds"] = round(time.perf_counter() - begun, 1)
    (folder / "made.json").write_text(json.dumps(row))
    (folder / "made.json").rename(folder / "row.json")
    sys.stdout.flush()
    os._exit(0)  # gloo's teardown may abort


def outcome(job: Job, device: str, steps: int, folder: Path, ahead: bool) -> Row:
    from recsmith.errors import UsageError
    from recsmith.jobs.machine import loopback_interface
    from recsmith.jobs.worker import join

    os.environ["GLOO_SOCKET_IFNAME"] = loopback_interface()
    try:
        if job.mode == "launch":
            for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"):
                os.environ.pop(name, None)
        else:
            join()
        run = the_run(job, folder, device, steps, ahead=ahead)
        row = unsharded(run) if job.mode == "rows" and device == "cpu" else trained(job, run, folder)
    except UsageError as error:
        return {"status": "refused", "error": str(error)}
    except BaseException as error:
        traceback.print_exc()
        return {"status": "failed", "error": f"{type(error).__name__}: {error}"[-1500:]}
    odd = [each for each in row["losses"] if not math.isfinite(each)]
    if odd or not row["losses"]:
        return {**row, "status": "failed", "error": "a loss is not finite" if odd else "no step was logged"}
    return {"status": "ok", **row}


def probe(there: Any, device: str) -> None:
    """Whether a fork of the process that imported torch can use the device."""
    import torch

    there.value = 1 if float(torch.ones(2, device=device).sum()) == 2.0 else 0


# --- all jobs, side by side -----------------------------------------------------------------------------------------


def starting(device: str) -> Any:
    """How processes start: forks of one that imported torch, where a fork can use the GPU."""
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(IMPORTED)
    there = forks.Value("i", 0)
    try:
        first = forks.Process(target=probe, args=(there, device))
        first.start()
        first.join(45)
        first.kill()
    except (OSError, EOFError) as error:
        print(f"the process that is forked did not start: {error}", flush=True)
    if there.value == 1:
        return forks
    print("a fork cannot use the GPU: each job imports torch by itself", flush=True)
    return multiprocessing.get_context("spawn")


def run_all(todo: list[tuple[Job, str]], words: argparse.Namespace, file: Path, scratch: Path) -> None:
    """Run jobs side by side until all are done or the time is over; a row of each, as soon as it ends."""
    begun, context, running = time.monotonic(), starting(words.device), dict[tuple[str, str], tuple[Any, float, Path]]()
    waiting = list(todo)
    while waiting or running:
        now = time.monotonic()
        over = now - begun > words.seconds
        while waiting and len(running) < words.workers and not over:
            job, device = waiting.pop(0)
            folder = scratch / f"{len(waiting)}"
            folder.mkdir()
            place = device if words.device == "cuda" else "cpu"
            process = context.Process(target=work, args=(job.name, place, words.steps, folder, device != place))
            process.start()
            running[job.name, device] = (process, now, folder)
        for (name, device), (process, since, folder) in list(running.items()):
            late = now - since > words.timeout
            if (folder / "row.json").exists() or not process.is_alive() or late or over:
                row = ended(process, folder, now - since, late=late, cut=over and not late and process.is_alive())
                save(file, {"name": name, "device": device, **row}, folder)
                del running[name, device]
        if over:
            break
        time.sleep(0.05)
    if waiting:
        print(f"{len(waiting)} jobs were not begun within {words.seconds:g} s; give the same command again", flush=True)


def ended(process: Any, folder: Path, seconds: float, *, late: bool, cut: bool) -> Row:
    """The row of a job whose process is over, or is ended now with all that it started.

    late: longer than a job may take. cut: with the time of all jobs.
    """
    process.join(1.0 if (folder / "row.json").exists() else 0)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.join(5.0)
    if (folder / "row.json").exists():
        return json.loads((folder / "row.json").read_text())
    log = (folder / "log.txt").read_text("utf-8", "replace") if (folder / "log.txt").exists() else ""
    if cut:
        return {"status": "cut", "error": f"cut after {seconds:.0f} s, with all jobs", "seconds": round(seconds, 1)}
    why = f"still running after {seconds:.0f} s" if late else f"its process ended with code {process.exitcode}"
    return {"status": "failed", "error": f"{why}; {log[-1500:]}", "seconds": round(seconds, 1)}


def save(file: Path, row: Row, folder: Path) -> None:
    with file.open("a") as rows:
        rows.write(json.dumps(row) + "\n")
        rows.flush()
        os.fsync(rows.fileno())
    log = folder / "log.txt"
    if row["status"] == "failed" and log.exists():
        (file.parent / "logs").mkdir(exist_ok=True)
        name = "".join(each if each.isalnum() else "-" for each in row["name"])
        (file.parent / "logs" / f"{name}-{row['device']}.txt").write_text(log.read_text("utf-8", "replace")[-20_000:])
    last = row["error"].strip().splitlines()[-1][:150] if row.get("error") else ""
    print(f"{row['device']:4} {row['name']:32} {row['status']:8} {row['seconds']:5.1f} s  {last}", flush=True)


# --- the table ------------------------------------------------------------------------------------------------------


def rows_of(file: Path) -> dict[tuple[str, str], Row]:
    """The newest row of each job and device; a line that was cut is left out."""
    found: dict[tuple[str, str], Row] = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[row["name"], row["device"]] = row
        if row["status"] == "failed" and row["error"].startswith("still running after") and row["seconds"] < 10:
            row["status"] = "cut"  # as rows of before say it
    return found


def apart(mine: Row, other: Row) -> float:
    """The largest relative difference of losses and predictions; NaN where one is; infinite where counts differ."""
    one, two = ([*each["losses"], *each.get("predictions", [])] for each in (mine, other))
    if len(one) != len(two):
        return math.inf
    differences = [abs(here / there - 1) if there else math.inf for here, there in zip(one, two, strict=True)]
    return math.nan if any(map(math.isnan, differences)) else max(differences)


def judged(job: Job, rows: dict[tuple[str, str], Row]) -> tuple[str, str, str]:
    """Status on the GPU, how far its losses are from the CPU's, and samples per second of both."""
    mine, other = rows.get((job.name, "cuda")), rows.get((job.beside or job.name, "cpu"))
    if mine is None:
        return "not run", "", ""
    status = mine["status"]
    if status == "refused":
        return ("refused, as documented" if "cuda" in job.refused else "REFUSED"), "", ""
    if "cuda" in job.refused:
        return f"{status.upper()}, and should be refused", "", ""
    rates = [f"{row['samples_per_s']:,}" if row and row.get("samples_per_s") else "" for row in (mine, other)]
    if status == "cut" or (other is not None and other["status"] == "cut"):
        return "cut", "", rates[0]
    if status != "ok":
        return ("not in the pack" if job.without and job.without in mine["error"] else "FAILED"), "", rates[0]
    if other is None or other["status"] != "ok":
        return "ok", "" if "cpu" in job.refused else "no losses of the CPU", rates[0]
    difference = apart(mine, other)
    return ("ok" if difference <= job.bound else "DIFFERS"), f"{difference:.1e}", " / ".join(rates)


def table(rows: dict[tuple[str, str], Row], jobs: list[Job]) -> str:
    lines = [
        "| system | on the GPU | losses beside the CPU's | samples/s, GPU / CPU | peak on the GPU |",
        "|---|---|---|---|---|",
    ]
    counts: dict[str, int] = {}
    for job in jobs:
        status, difference, rates = judged(job, rows)
        counts[status] = counts.get(status, 0) + 1
        peak = rows.get((job.name, "cuda"), {}).get("peak_mib")
        lines.append(f"| {job.name} | {status} | {difference} | {rates} | {f'{peak:,} MiB' if peak else ''} |")
    said = [f"{job.name} ({device}): {row['error'].strip().splitlines()[-1][:300]}"
            for job in jobs for device in ("cuda", "cpu")
            if (row := rows.get((job.name, device))) and row["status"] not in ("ok", "cut")]  # fmt: skip
    total = ", ".join(f"{count} {status}" for status, count in counts.items())
    return "\n".join([*lines, "", total, "", *said])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--show", type=Path, help="print the table of these rows instead")
    parser.add_argument("--only", help="names of jobs, or beginnings of names, with commas between")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds of a job")
    parser.add_argument("--seconds", type=float, default=120.0, help="after which no job runs on")
    words = parser.parse_args()
    only = words.only.split(",") if words.only else [""]
    jobs = [job for job in JOBS if any(job.name.startswith(each.strip()) for each in only)]
    if words.show is not None:
        print(table(rows_of(words.show), jobs))
        return
    if words.folder is None:
        parser.error("give a folder, or --show with the rows of one")
    words.folder.mkdir(parents=True, exist_ok=True)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = THREADS
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = (
        "1"  # importing asks for a GPU, and its driver does not outlive a fork
    )
    file = words.folder / "systems.jsonl"
    rows = rows_of(file)
    todo = [
        (job, device) for job in jobs for device in ("cuda", *(("cpu",) if not job.beside else ()))
        if rows.get((job.name, device), {"status": "cut"})["status"] in ("cut", "failed")
    ]  # fmt: skip
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        run_all(todo, words, file, Path(scratch))
    made = table(rows_of(file), jobs)
    (words.folder / "systems.md").write_text(made + "\n")
    print(f"\n{made}\n\n{len(todo)} jobs in {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
