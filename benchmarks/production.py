"""The tables of docs/benchmarks/production.md: whole `recsmith plan` commands on 1,933 real production tables.

    python benchmarks/production.py sharding_stats_example.txt

The argument is TorchRec's public planner report: torchrec/docs/wiki/sharding_stats_example.txt of
meta-pytorch/torchrec (BSD-3). Every time is of the whole command: start of Python to exit, median of five runs.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from recsmith import Feature, Workload, load_workload
from recsmith.files import dump_json, read_text
from recsmith.workloads import workload_to_raw
from recsmith.workloads.torchrec_report import table_rows

TWO = ("table_wise", "column_wise")
THREE = (*TWO, "row_wise")
SIX = (*THREE, "table_column_wise", "table_row_wise", "grid_shard")
SEVEN = (*SIX, "data_parallel")
NAMES = {TWO: "TW + CW", THREE: "TW + CW + RW", SIX: "all but data_parallel", SEVEN: "all seven"}

# (list, devices, GiB, types, widths, TorchRec 1.8's best (ms), its time (s)); TorchRec's rows were measured once on two
# shared cores with its own planner on the simplified list: fused kernel, no reservation, time caps as its table says.
CASES = (
    ("simplified", "8", 180.0, TWO, "any", "165.3", "154"),
    ("simplified", "8", 180.0, THREE, "any", "164.5", "42"),
    ("simplified", "8", 180.0, SEVEN, "any", "188.0", "414"),
    ("simplified", "8x12", 60.0, TWO, "torchrec", "440.3", "155"),
    ("simplified", "8x12", 60.0, TWO, "any", "not in its space", "-"),
    ("simplified", "8x12", 60.0, SIX, "any", "712.7", "1,108"),
    ("simplified", "8x12", 60.0, SEVEN, "any", "963.8", "740"),
    ("simplified", "8x12", 20.0, SEVEN, "any", "-", "-"),
    ("simplified", "8x12", 14.5, TWO, "any", "-", "-"),
    ("faithful", "8", 180.0, TWO, "any", "-", "-"),
    ("faithful", "8x12", 60.0, TWO, "any", "-", "-"),
)


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


def run(command: list[str], runs: int) -> tuple[dict, float]:
    """(the result, median seconds of the whole command)."""
    seconds, output = [], ""
    for _ in range(runs):
        begun = time.perf_counter()
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        seconds.append(time.perf_counter() - begun)
    return json.loads(output), statistics.median(seconds)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("report")
    arguments.add_argument("--runs", type=int, default=5)
    words = arguments.parse_args()
    print("| list | devices | space | bound (ms) | plan (ms) | gap | whole command (s) | TorchRec 1.8 (ms) | (s) |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for workload in (simplified(words.report), faithful(words.report)):
            files[workload.name] = Path(folder) / f"{workload.name}.json"
            files[workload.name].write_text(dump_json(workload_to_raw(workload)))
        for name, hosts, gib, types, widths, theirs, their_time in CASES:
            command = [sys.executable, "-m", "recsmith", "plan", str(files[name]), "--cluster"]
            command += [f"torchrec-default:{hosts}", "--hbm", f"{gib}GiB", "--types", ",".join(types)]
            command += ["--widths", widths, "--memory", "torchrec", "--cost-model", "torchrec", "--format", "json"]
            result, seconds = run(command, words.runs)
            bound, total = result["bound"]["value_s"] * 1e3, result["cost"]["total_s"] * 1e3
            print(
                f"| {name} | {hosts} x {gib:g} GiB | {NAMES[types]}, widths {widths} | {bound:.3f} | {total:.3f} "
                f"| {result['gap']:.3%} | {seconds:.2f} | {theirs} | {their_time} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
