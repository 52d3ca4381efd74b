"""Planners side by side: whole commands, NeuroShard's search and its growth, every planner under both cost models.

    python benchmarks/planning.py commands [sharding_stats_example.txt]  # `recsmith plan` whole, beside its aims
    python benchmarks/planning.py parts [sharding_stats_example.txt]  # where the CPU seconds of these commands go
    python benchmarks/planning.py speed               # search times of neuroshard, and the cluster that is too small
    python benchmarks/planning.py growth              # of neuroshard, in tables and in devices
    python benchmarks/planning.py judges [sharding_stats_example.txt]  # every planner on built-ins, production tables

Seconds are of the search alone but for `commands`, the median of the runs where there are several; the rest of the
command (reading, compiling the cost model, the bound) is the same for all planners. Costs are predictions.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from command_parts import NAMES, parts_of
from production import faithful, run, simplified

import recsmith
from recsmith.analyses.compare import PlannerRow
from recsmith.clusters import load_cluster
from recsmith.costs import cost_model
from recsmith.errors import RecSmithError
from recsmith.planning import find_planner
from recsmith.problems import build_problem
from recsmith.workloads import Workload, load_workload, save_workload
from recsmith.workloads.sample import sample_workload

COMMANDS = (("dlrm-v2", "h100:8", "best", 1.5), ("1,000 sampled", "h100:8x16", "best", 4),
            ("dlrm-v2", "h100:8", "analytic", 0.8), ("nvidia-jumbo", "h100:8x16", "analytic", 3),
            ("1,933 of production", "h100:8x12", "analytic", 2.5), ("nvidia-colossal", "h200:8x64", "analytic", 7),
            ("1,000 sampled", "h100:8x16", "neural:simulated-h100", 4))  # fmt: skip
"""Workload, cluster, cost model and seconds that were aimed at."""
RUNS = 3  # of each command, after one that warms the files
JUDGES = ("analytic", "torchrec")
PLANNERS = ("auto", "neuroshard", "cost_greedy", "size_lookup_greedy", "lookup_greedy", "dim_greedy", "size_greedy",
            "random")  # fmt: skip
SPEED = (("100 sampled tables", 100, "h100:4", 5), ("nvidia-jumbo", None, "h100:8x16", 3),
         ("2,000 sampled tables", 2000, "h100:8x16", 1), ("nvidia-colossal", None, "h200:8x64", 1))  # fmt: skip
CASES = (("dlrm-v2", "h100:8"), ("nvidia-tiny", "h100:8"), ("nvidia-small", "h100:8"), ("nvidia-medium", "h100:8"),
         ("nvidia-large", "h100:8x4"), ("nvidia-jumbo", "h100:8x16"), ("nvidia-colossal", "h200:8x64"))  # fmt: skip


def main() -> None:
    """Run one of the parts."""
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    if part == "one":
        one(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    elif part == "commands":
        commands(sys.argv[2:])
    elif part == "parts":
        parts(sys.argv[2:])
    elif part == "speed":
        speed()
    elif part == "growth":
        growth()
    elif part == "judges":
        judges(sys.argv[2:])
    else:
        sys.exit(__doc__)


def commands(paths: list[str]) -> None:
    """Seconds and CPU seconds of whole `recsmith plan` commands, in the median of RUNS."""
    print("| tables | cluster | cost model | aim | seconds | CPU s | step | gap |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        keep_bytecode(folder)
        files = command_inputs(folder, paths)
        for name, cluster, model, aim in COMMANDS:
            if name not in files:
                continue
            words = [sys.executable, "-m", "recsmith", "plan", files[name], "--cluster", cluster, "--cost-model", model]
            run([*words, "--format", "json"], 1)
            result, took, spent = run([*words, "--format", "json"], RUNS)
            gap, total_s = result["gap"], result["cost"]["total_s"]
            cells = f"{aim:g} s | {took:.2f} s | {spent:.2f} | {total_s * 1e3:.4g} ms | {_percent(gap)}"
            print(f"| {name} | {cluster} | {model} | {cells} |", flush=True)


def parts(paths: list[str]) -> None:
    """CPU seconds of each part of these commands, in the median of RUNS."""
    print(f"| tables | cost model | {' | '.join(NAMES)} | all |\n|{'---|' * (len(NAMES) + 3)}")
    with tempfile.TemporaryDirectory() as folder:
        keep_bytecode(folder)
        files = command_inputs(folder, paths)
        for name, cluster, model, _ in COMMANDS:
            if name in files:
                words = [files[name], "--cluster", cluster, "--cost-model", model]
                runs = [parts_of(words) for _ in range(RUNS + 1)][1:]
                middle = [statistics.median(run[each] for run in runs) for each in NAMES]
                cells = " | ".join(f"{each:.2f}" for each in (*middle, sum(middle)))
                print(f"| {name} | {model} | {cells} |", flush=True)


def keep_bytecode(folder: str) -> None:
    """Have commands read bytecode as an installed package has it: the first one writes it, whatever is set outside."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = folder


def command_inputs(folder: str, paths: list[str]) -> dict[str, str]:
    """What each of COMMANDS reads, by its name: a built-in, or a file that is written into a folder.

    paths: of the report of production tables; without it they are left out.
    """
    made = {"1,000 sampled": sample_workload(1000, 0)}
    if paths:
        made["1,933 of production"] = simplified(paths[0])
    files = {name: name for name, *_ in COMMANDS if not name[0].isdigit()}
    for name, workload in made.items():
        files[name] = str(Path(folder, f"{len(workload.tables)}.json"))
        save_workload(workload, files[name])
    return files


def speed() -> None:
    """Each case in a process of its own, so that its memory can be told."""
    print("| case | devices | neuroshard, search | predicted step | memory |\n|---|---|---|---|---|", flush=True)
    for name, tables, cluster, runs in SPEED:
        words = [sys.executable, __file__, "one", name if tables is None else str(tables), cluster, str(runs)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        print(f"| {name} | {cluster} | {done.stdout.strip()} |", flush=True)
    try:
        recsmith.plan("nvidia-colossal", "h200:8x16", planner="neuroshard", cost_model="analytic")
    except RecSmithError as error:
        print(f"\nnvidia-colossal on 128 devices, exit {error.exit_code}: {error}")


def one(name: str, cluster: str, runs: int) -> None:
    """One case of `speed`."""
    workload = sample_workload(int(name), 0) if name.isdigit() else load_workload(name)
    seconds, total = _searched(workload, cluster, runs)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{seconds:.2f} s | {total * 1e3:.4g} ms | {memory:.2f} GB")


def _searched(workload: Workload, cluster: str, runs: int) -> tuple[float, float]:
    evaluator = cost_model("analytic").compile(build_problem(workload, load_cluster(cluster)))
    times, total = [], 0.0
    for _ in range(runs):
        begun = time.perf_counter()
        total = find_planner("neuroshard").plan(evaluator.problem, evaluator).total_s
        times.append(time.perf_counter() - begun)
    return statistics.median(times), total


def growth() -> None:
    """Times over doublings, and the exponent of a line through their logarithms."""
    by_tables = {count: _searched(sample_workload(count, 0), "h100:8x2", 1)[0] for count in (125, 250, 500, 1000)}
    by_hosts = {hosts * 8: _searched(sample_workload(250, 0), f"h100:8x{hosts}", 1)[0] for hosts in (1, 2, 4, 8, 16)}
    for what, found in (("tables on 16 devices", by_tables), ("devices for 250 tables", by_hosts)):
        slope = np.polyfit(np.log(list(found)), np.log(list(found.values())), 1)[0]
        times = ", ".join(f"{size}: {seconds:.2f} s" for size, seconds in found.items())
        print(f"{what}: {times}; grows with the power {slope:.2f}")


def judges(paths: list[str]) -> None:
    """Every planner searches under `analytic`; both cost models judge."""
    cases: list[tuple[str, Workload, str]] = [(name, load_workload(name), cluster) for name, cluster in CASES]
    if paths:
        cases.append(("1,933 of production", faithful(paths[0]), "h100:8x12"))
    found: list[tuple[str, str, dict[str, PlannerRow]]] = []
    for name, workload, cluster in cases:
        compared = recsmith.compare(workload, cluster, planners=PLANNERS, judges=JUDGES, cost_model=JUDGES[0])
        found.append((name, cluster, {row.name: row for row in compared.rows}))
        print(f"{name}, {cluster}: {compared.verdict}", flush=True)
    for number, judge in enumerate(JUDGES):
        print(f"\nUnder {judge}:\n")
        _print_judged(found, number)
    print(f"\nSeconds of search, and the least median under {JUDGES[0]} if pooling factors are off by 20 %:\n")
    print("| tables | cluster | auto | neuroshard | slowest other | least median |\n|---|---|---|---|---|---|")
    for name, cluster, rows in found:
        others = max(rows[each].search_s or 0.0 for each in PLANNERS[2:])
        seconds = (rows["auto"].search_s or 0.0, rows["neuroshard"].search_s or 0.0, others)
        medians = {each: row.sensitivity.median_s for each, row in rows.items() if row.sensitivity}
        cells = " | ".join(f"{each:.2f}" for each in seconds)
        print(f"| {name} | {cluster} | {cells} | {min(medians, key=lambda each: medians[each])} |")


def _print_judged(found: list[tuple[str, str, dict[str, PlannerRow]]], judge: int) -> None:
    """The step of auto's plan under a judge, its gap, and by how much other planners' steps are longer."""
    print(f"| tables | cluster | auto | gap | {' | '.join(PLANNERS[1:])} |\n|{'---|' * (3 + len(PLANNERS))}")
    for name, cluster, rows in found:
        mine = rows["auto"].judgements[judge]
        steps = [rows[each].judgements[judge].total_s if rows[each].judgements else None for each in PLANNERS[1:]]
        others = ["no plan" if step is None else f"{step / mine.total_s - 1:+.1%}" for step in steps]
        print(f"| {name} | {cluster} | {mine.total_s * 1e3:.4g} ms | {_percent(mine.gap)} | {' | '.join(others)} |")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


if __name__ == "__main__":
    main()
