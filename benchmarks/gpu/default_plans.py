"""The default's plans beside its peers' on a GPU: sharding tasks that no model saw, whole jobs; all kernels.

python benchmarks/gpu/default_plans.py plan plans.jsonl                  # anywhere, some hours of a core; goes on
python benchmarks/gpu/default_plans.py cases plans.jsonl packed/plans.jsonl.xz
python benchmarks/gpu/visit.py results --carried packed --only plans --hardware cuda:h200        # on the GPU
python benchmarks/gpu/default_plans.py report plans.jsonl results/plans.jsonl.gz                 # anywhere: the tables

Plans are searched under cost model `best`, today's default, by `auto` and by peers: `neuroshard` and `cost_greedy`
under the same model, TorchRec's planner as it ships, and the best of its settings as `best` judges them. Tasks divide
tables by columns alone, as the NeuroShard paper does; whole jobs may use what `recsmith plan` may, and their ranks hold
at most 70 GiB, so that one GPU can run each. A rank's fused kernels are timed together, and its data_parallel tables by
themselves, with a step of their optimizer. Collectives are not measured: `analytic` prices them for all alike.
"""

import argparse
import json
import lzma
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
from held_apart import predicted
from production import Row, lines_of

import recsmith
from recsmith import Cluster, Placement, Plan, Space, Workload
from recsmith._types import Floats
from recsmith.adapters.torchrec_settings import STOCK, fair_settings
from recsmith.bench.tasks import ROWS, SPACE, draw_tasks
from recsmith.costs import cost_model, price
from recsmith.costs.pricing import one_device
from recsmith.errors import Infeasible, NoPlanFound
from recsmith.hardware import Case
from recsmith.hardware.loads import loads_of
from recsmith.plans import Bound
from recsmith.problems import build_problem, constraints_to_raw, footprint_of
from recsmith.problems.constraints import Constraints
from recsmith.verifying.steps import step_seconds

GPU, MODEL, COMM_MODEL = "h200", "best", "analytic"
TASKS, SEED, BATCH = 5, 20261201, 65_536  # tasks of a row, of a seed that no model has seen; samples of all devices
MEMORY = 70 * 2**30  # of a device, in whole jobs
SAMPLED = (
    (120, 501, "8", 4096), (120, 502, "8", 4096), (250, 503, "8", 2048), (250, 504, "8x2", 2048),
    (400, 505, "8x2", 2048), (400, 506, "8x2", 2048),
)  # tables, seed, devices, samples of a device  # fmt: skip
AUTO, TORCHREC, TORCHREC_BEST = "auto", "torchrec", "torchrec_best"
PLANNERS = (AUTO, "neuroshard", "cost_greedy", TORCHREC, TORCHREC_BEST)
PROPOSER_CPU_S = 5.0  # of each of TorchRec's proposers
IDS = 777_002  # the seed of ids
RESAMPLES, LEAST_JOBS = 10_000, 3  # jobs below which no interval is told


class Job(NamedTuple):
    """row: of the report."""

    row: str
    name: str
    workload: Workload
    cluster: Cluster
    space: Space


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("plan", "cases", "report"))
    parser.add_argument("plans", type=Path, help="a line for each plan")
    parser.add_argument("other", type=Path, nargs="?", help="cases: the file to write; report: the rows of the GPU")
    parser.add_argument("--only", help="jobs whose names hold this")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of models beyond what they know: the report says how far off they are
    if options.command == "plan":
        make_plans(options.plans, options.only or "")
    elif options.command == "cases":
        write_cases(options.plans, options.other)
    else:
        print("\n".join(report(options.plans, options.other)))


# --- plans -----------------------------------------------------------------------------------------------------------


def jobs() -> Iterator[Job]:
    """Whole jobs first, then a task of each row, the next one of each row, and so on."""
    for name in ("dlrm-v2", "criteo-1tb"):
        yield Job(name, name, recsmith.load_workload(name), cluster_of("8"), Space(kernels=("fused", "dense")))
    for tables, seed, devices, batch in SAMPLED:
        workload, name = recsmith.sample_workload(tables, seed, batch_size=batch), f"sampled-{tables}-{seed}"
        yield Job("sampled lists", name, workload, cluster_of(devices), Space(kernels=("fused", "dense")))
    drawn = [draw_tasks(row, TASKS, SEED, GPU, BATCH) for row in ROWS]
    for place in range(TASKS):
        for row in drawn:
            task = row.tasks[place]
            yield Job(str(row.row), task.name, task.workload, task.cluster, SPACE)


def cluster_of(devices: str) -> Cluster:
    return recsmith.load_cluster(f"{GPU}:{devices}").with_memory(MEMORY)


def make_plans(path: Path, only: str) -> None:
    """A line for each planner's plan of each job, with what its ranks run; what is there is not made again."""
    done = {(row["job"], row["planner"]) for row in lines_of(path)} if path.exists() else set[tuple[str, str]]()
    with path.open("a") as file:
        for job in jobs():
            for planner in PLANNERS if only in job.name else ():
                if (job.name, planner) not in done:
                    file.write(json.dumps(line_of(job, planner)) + "\n")
                    file.flush()
            print(job.name, flush=True)


def line_of(job: Job, planner: str) -> Row:
    """What is kept of a planner's plan, or why there is none."""
    begun, line = time.process_time(), {"row": job.row, "job": job.name, "planner": planner}
    try:
        placements = placements_of(job, planner)
    except (NoPlanFound, Infeasible) as error:
        return line | {"error": str(error)}
    line |= {"plan_cpu_s": round(time.process_time() - begun, 3)}
    problem = build_problem(job.workload, job.cluster, job.space)
    footprint = footprint_of(problem, placements)
    told = price(cost_model(MODEL).compile(problem), footprint)
    links = price(cost_model(COMM_MODEL).compile(problem), footprint)
    return line | {
        "told_s": told.total_s, "gb": [round(each.hbm_bytes / 1e9, 2) for each in told.per_device],
        "told_comm": [[each.forward_comm_s, each.backward_comm_s] for each in told.per_device],
        "comm": [[each.forward_comm_s, each.backward_comm_s] for each in links.per_device],
        "types": Counter(each.sharding_type for each in placements), **kernels_of(job, placements, links),
    }  # fmt: skip


def placements_of(job: Job, planner: str) -> tuple[Placement, ...]:
    if planner not in (TORCHREC, TORCHREC_BEST):
        found = recsmith.plan(job.workload, job.cluster, planner=planner, cost_model=MODEL, space=job.space)
        return found.plan.placements
    from recsmith.adapters.torchrec_planner import best_of_settings

    evaluator = cost_model(MODEL).compile(build_problem(job.workload, job.cluster, job.space))
    dims = [table.embedding_dim for table in job.workload.tables]
    fair = fair_settings(job.space, dims, job.cluster.device.kind)
    settings = [replace(each, proposer_cpu_s=PROPOSER_CPU_S) for each in fair] if planner == TORCHREC_BEST else [STOCK]
    return best_of_settings(evaluator, settings)[0]


# --- cases -----------------------------------------------------------------------------------------------------------


def kernels_of(job: Job, placements: Sequence[Placement], cost: recsmith.StepCost) -> Row:
    """Keys of what each rank runs, that of the data_parallel tables of all, and what the keys stand for."""
    copied = {each.table for each in placements if each.sharding_type == "data_parallel"}
    tables = tuple(each for each in job.workload.tables if each.name not in copied)
    ranks: list[str | None] = [None] * job.cluster.world_size
    cases: dict[str, Row] = {}
    if tables:
        plan = Plan(
            workload=replace(job.workload, tables=tables), cluster=job.cluster,
            constraints=constraints_to_raw(job.space, Constraints()), planner=AUTO, cost_model=COMM_MODEL, cost=cost,
            placements=tuple(each for each in placements if each.table not in copied),
            bound=Bound(value_s=None, kind="not sought", space=job.space.describe()), gap=None,
        )  # fmt: skip
        for rank, load in enumerate(loads_of(plan, IDS)):
            if load:
                case = {"kind": "rank", "blocks": [each.blocks for each in load], "cases": [raw_of(c) for c in load]}
                ranks[rank] = key = f"rank-{crc32(json.dumps(case).encode()):08x}"
                cases[key] = case
    copies = None
    if copied:
        case = copies_of(job, copied)
        copies = f"copies-{crc32(json.dumps(case).encode())}"
        cases[copies] = case
    return {"ranks": ranks, "copies": copies, "cases": cases}


def raw_of(case: Case) -> Row:
    """A kernel as production.py reads it."""
    work = case.workload
    return {
        "seed": case.seed, "number": case.number, "optimizer": work.optimizer,
        "data_type": str(work.tables[0].data_type), "batch_size": work.batch_size,
        "rows": [each.num_embeddings for each in work.tables], "dim": [each.embedding_dim for each in work.tables],
        "pooling_factor": [each.features[0].pooling_factor for each in work.tables],
        "zipf": [zipf_of(each) for each in work.tables],
    }  # fmt: skip


def copies_of(job: Job, names: set[str]) -> Row:
    """Tables that every rank holds, read by its own samples."""
    tables = [each for each in job.workload.tables if each.name in names]
    return {
        "kind": "copies", "batch": job.workload.batch_size, "optimizer": job.workload.optimizer,
        "rows": [each.num_embeddings for each in tables], "dim": [each.embedding_dim for each in tables],
        "pooling": [each.features[0].pooling_factor for each in tables], "zipf": [zipf_of(each) for each in tables],
    }  # fmt: skip


def zipf_of(table: recsmith.Table) -> float:
    return (table.access and table.access.zipf) or 0.0


def write_cases(plans: Path, target: Path) -> None:
    """The cases of all plans, job by job, so that a visit that is cut short has measured whole jobs."""
    unique: dict[str, Row] = {}
    for row in lines_of(plans):
        unique |= {key: {"key": key} | case for key, case in row.get("cases", {}).items() if key not in unique}
    with lzma.open(target, "wt", preset=9) as file:
        file.writelines(json.dumps(each) + "\n" for each in unique.values())
    print(f"{target}: {len(unique):,} cases, {target.stat().st_size:,} bytes")


# --- the tables ------------------------------------------------------------------------------------------------------


def report(plans: Path, rows: Path) -> Iterator[str]:
    """How much longer each peer's steps are than the default's, and how far predictions of kernels are off."""
    lines = list(lines_of(plans))
    found = [row for row in lines_of(rows) if "key" in row]
    took = {row["key"]: row for row in found if row["status"] == "ok"}
    broken = Counter(row.get("message", "")[:120] for row in found if row["status"] != "ok")
    yield from (f"failed: {count} cases: {message}" for message, count in broken.items())
    steps = {(row["job"], row["planner"]): measured(row, took) for row in lines if "error" not in row}
    known = {key: each for key, each in steps.items() if each is not None}
    groups = defaultdict[str, list[str]](list)
    for row in lines:
        if row["job"] not in groups[row["row"]] and (row["job"], AUTO) in known:
            groups[row["row"]].append(row["job"])
    groups["all tasks"] = [job for row in map(str, ROWS) for job in groups[row]]
    groups["all"] = list(dict.fromkeys(job for some in groups.values() for job in some))
    yield f"{len(known):,} of {len(lines):,} plans measured; {sum('error' in row for row in lines)} were not found"
    for part, what in ((0, "steps"), (1, "kernels alone")):
        yield f"\n| {what}, longer than the default's | jobs | {' | '.join(PLANNERS[1:])} |\n" + "|---" * 6 + "|"
        for row, some in ((row, some) for row, some in groups.items() if some):
            cells = [cell(known, some, peer, part) for peer in PLANNERS[1:]]
            yield f"| {row} | {len(some)} | {' | '.join(cells)} |"
    yield from beliefs(lines, took, known)


def measured(row: Row, took: dict[str, Row]) -> tuple[float, float] | None:
    """Seconds of the step and of the slowest rank's kernels; None where a kernel has not been measured."""
    needed = [key for key in (*row["ranks"], row["copies"]) if key]
    if any(key not in took for key in needed):
        return None
    kernels = np.array([parts_of(took[key]) if key else (0.0, 0.0) for key in row["ranks"]])
    if row["copies"]:
        kernels = kernels + parts_of(took[row["copies"]], row["cases"].get(row["copies"], {}).get("optimizer"))
    return float(step_seconds(kernels, np.array(row["comm"]))), float(kernels.sum(axis=1).max())


def parts_of(took: Row, optimizer: str | None = None) -> Floats:
    """Seconds (2,), forward and backward; of data_parallel tables with clearing gradients and the optimizer's step."""
    after = took["clear_s"] + took["step_s"][optimizer] if optimizer else 0.0
    return np.array([took["forward_s"], took["backward_s"] + after])


Measured = dict[tuple[str, str], tuple[float, float]]
"""(seconds of the step, of the slowest rank's kernels) by job and planner."""


def cell(known: Measured, jobs: Sequence[str], peer: str, part: int) -> str:
    """How much longer a peer takes: the geometric mean over jobs that both have plans of, with its 95 % bootstrap."""
    ratios = [known[job, peer][part] / known[job, AUTO][part] for job in jobs if (job, peer) in known]
    if not ratios:
        return "no plan"
    logs = np.log(ratios)
    missing = f" ({len(ratios)} jobs)" if len(ratios) < len(jobs) else ""
    mean = f"{np.expm1(logs.mean()):+.1%}"
    if len(ratios) < LEAST_JOBS:
        return mean + missing
    drawn = np.random.default_rng(0).choice(logs, (RESAMPLES, len(logs))).mean(axis=1)
    low, high = np.expm1(np.percentile(drawn, (2.5, 97.5)))
    return f"{mean} [{low:+.1%}, {high:+.1%}]{missing}"


def beliefs(lines: list[Row], took: dict[str, Row], known: Measured) -> Iterator[str]:
    """Fused kernels of ranks as MODEL predicts them, and whole steps, over what was measured."""
    device, model = one_device(recsmith.load_cluster(GPU)), cost_model(MODEL)
    cases = {key: case for row in lines for key, case in row.get("cases", {}).items()}
    said = {key: predicted(model, case, device) / parts_of(took[key]).sum()
            for key, case in cases.items() if case["kind"] == "rank" and key in took}  # fmt: skip
    rows = defaultdict[str, set[str]](set)
    steps = defaultdict[str, list[float]](list)
    for row in lines:
        rows["tasks" if row["row"] in map(str, ROWS) else row["row"]] |= set(row.get("ranks", ())) & set(said)
        if (found := known.get((row["job"], row["planner"]))) is not None:
            steps[row["planner"]].append(row["told_s"] / found[0])
    yield (
        "\n| ranks of | kernels | predicted / measured, median | off by, median | 90th percentile |\n"
        + "|---" * 5
        + "|"
    )
    for name, keys in rows.items():
        ratios = np.array([said[key] for key in keys])
        if ratios.size:
            middle, high = np.percentile(np.abs(ratios - 1), (50, 90))
            yield f"| {name} | {ratios.size:,} | {np.median(ratios):.3f} | {middle:.1%} | {high:.1%} |"
    yield "\n| steps of | plans | predicted / measured, mean |\n|---|---|---|"
    yield from (f"| {planner} | {len(each)} | {np.mean(each):.3f} |" for planner, each in steps.items())


if __name__ == "__main__":
    main()
