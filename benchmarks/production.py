"""The tables of docs/benchmarks/production.md: whole `recsmith plan` commands on 1,933 real production tables.

    python benchmarks/production.py sharding_stats_example.txt --torchrec torchrec.jsonl

The argument is TorchRec's public planner report: torchrec/docs/wiki/sharding_stats_example.txt of
meta-pytorch/torchrec (BSD-3). Seconds of RecSmith are of the whole command: start of Python to exit, median of five
runs. With --torchrec TorchRec's own planner runs on the simplified list (torchrec_rows.py): stock, and each of a list
of settings; its results are kept in the file, from which a run that was ended goes on.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from torchrec_rows import CAP_S, PROPOSER_CPU_S, SEVEN, SIX, THREE, TWO, Problem, cells, run_all, settings_of

from recsmith import Feature, Workload, load_workload
from recsmith.files import dump_json, read_text
from recsmith.workloads import workload_to_raw
from recsmith.workloads.torchrec_report import table_rows

Case = tuple[str, str, float, tuple[str, ...], str]
NAMES = {TWO: "TW + CW", THREE: "TW + CW + RW", SIX: "all but data_parallel", SEVEN: "all seven"}

# (list, devices, GiB, types, widths); TorchRec's planner runs on the rows of the simplified list with room.
CASES = (
    ("simplified", "8", 180.0, TWO, "any"),
    ("simplified", "8", 180.0, THREE, "any"),
    ("simplified", "8", 180.0, SEVEN, "any"),
    ("simplified", "8x12", 60.0, TWO, "torchrec"),
    ("simplified", "8x12", 60.0, TWO, "any"),
    ("simplified", "8x12", 60.0, SIX, "any"),
    ("simplified", "8x12", 60.0, SEVEN, "any"),
    ("simplified", "8x12", 20.0, SEVEN, "any"),
    ("simplified", "8x12", 14.5, TWO, "any"),
    ("faithful", "8", 180.0, TWO, "any"),
    ("faithful", "8x12", 60.0, TWO, "any"),
)
HEADS = ("list", "devices", "space", "bound (ms)", "plan (ms)", "gap", "seconds", "CPU s", "TorchRec stock (ms)",
         "CPU s", "TorchRec best (ms)", "CPU s", "with", "CPU s of the list")  # fmt: skip
LEAST_GIB = 60.0  # of a device, from which on TorchRec's planner runs


def faithful(report: str) -> Workload:
    """The pooled tables of the report, features and num_poolings kept."""
    workload = load_workload(report)
    return replace(workload, tables=tuple(table for table in workload.tables if table.pooled), name="faithful")


def simplified(report: str) -> Workload:
    """One pooling per table, pooling factor = the report's sum: the list that TorchRec's planner was given."""
    sums = [row["Sum Pooling Factor"] for row in table_rows(read_text(report), report) if row["Output"] == "pooled"]
    tables = [
        replace(table, features=(Feature(name=table.name, pooling_factor=max(float(total), 1e-3)),), collection="")
        for table, total in zip(faithful(report).tables, sums, strict=True)
    ]
    return Workload(batch_size=2560, optimizer="sgd", tables=tuple(tables), name="simplified")


def run(command: list[str], runs: int) -> tuple[dict, float, float]:
    """(the result, median seconds of the whole command, median CPU seconds)."""
    seconds, spent, output = [], [], ""
    for _ in range(runs):
        begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(time.perf_counter() - begun)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return json.loads(output), statistics.median(seconds), statistics.median(spent)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("report")
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--rows", type=int, nargs="*", help="of the table, counted from 1 (default: all)")
    arguments.add_argument("--torchrec", type=Path, metavar="FILE", help="run TorchRec's planner too; results go there")
    arguments.add_argument("--cpu", type=float, default=PROPOSER_CPU_S, help="CPU seconds of each of its proposers")
    arguments.add_argument("--cap", type=int, default=CAP_S, help="CPU seconds after which its process is ended")
    words = arguments.parse_args()
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for workload in (simplified(words.report), faithful(words.report)):
            files[workload.name] = Path(folder) / f"{workload.name}.json"
            files[workload.name].write_text(dump_json(workload_to_raw(workload)))
        for case in CASES if words.rows is None else [CASES[row - 1] for row in words.rows]:
            file = files[case[0]]
            print(f"| {_ours(case, file, words.runs)} | {_theirs(case, file, words)} |", flush=True)


def _ours(case: Case, file: Path, runs: int) -> str:
    """The cells of RecSmith."""
    name, hosts, gib, types, widths = case
    command = [sys.executable, "-m", "recsmith", "plan", str(file), "--cluster", f"torchrec-default:{hosts}"]
    command += ["--hbm", f"{gib}GiB", "--types", ",".join(types), "--widths", widths]
    command += ["--memory", "torchrec", "--cost-model", "torchrec", "--format", "json"]
    result, seconds, cpu = run(command, runs)
    bound, total = result["bound"]["value_s"] * 1e3, result["cost"]["total_s"] * 1e3
    return (
        f"{name} | {hosts} x {gib:g} GiB | {NAMES[types]}, widths {widths} | {bound:.3f} | {total:.3f} "
        f"| {result['gap']:.3%} | {seconds:.2f} | {cpu:.2f}"
    )


def _theirs(case: Case, file: Path, words: argparse.Namespace) -> str:
    """The cells of TorchRec's planner: stock, and the best of the list."""
    name, hosts, gib, types, widths = case
    if words.torchrec is None or name != "simplified" or gib < LEAST_GIB:
        return "- | - | - | - | not run | -"
    problem = Problem(
        name=f"{name}, {hosts} x {gib:g} GiB", workload=str(file), cluster=f"torchrec-default:{hosts}", gib=gib
    )
    settings = settings_of(types, words.cpu)
    if widths == "torchrec":  # shards of 128 columns and more
        settings = [each for each in settings if each.min_partition is None]
    return cells(run_all(problem, settings, words.torchrec, words.cap))


if __name__ == "__main__":
    main()
