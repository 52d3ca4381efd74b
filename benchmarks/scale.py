"""The tables of docs/benchmarks/planning.md: start-up times, and how whole commands grow with tables and devices.

    python benchmarks/scale.py
    python benchmarks/scale.py growth     # the last table alone
    python benchmarks/scale.py files      # the plan file of 100,000 tables on 4,096 devices: written, read, reported

Every time is the CPU seconds of the whole command, start of Python to exit, all its threads together. Generated tables
(seed 0): rows log-uniform in 100 .. 3e7, dims 8 .. 256, pooling factors log-uniform in 0.5 .. 50; batch 2,048 (256 on
4,096 devices), row-wise Adagrad, JSON. Cost model torchrec, all seven types, any widths.
"""

import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

RUNS = 5
DIMS = (8, 16, 32, 64, 64, 128, 128, 128, 256)
SIZES = ((1_000, "h200:8x4", 2048), (2_000, "h200:8x8", 2048), (5_000, "h200:8x16", 2048), (10_000, "h200:8x32", 2048),
         (100_000, "h200:8x512", 256))  # fmt: skip
ON_256 = tuple((count, "h200:8x32", 2048) for count in (5_000, 10_000, 20_000, 40_000))
ROOM = ("--hbm", "1TiB")  # of each of these 256 devices: 40,000 tables need 192 GiB
STARTS = ("--help", "plan dlrm-v2 --cluster h100:8 --cost-model analytic",
          "plan criteo-kaggle --cluster h100:4 --cost-model analytic")  # fmt: skip


def generate(count: int, batch: int, path: Path) -> None:
    draw = random.Random(0)
    tables = [
        {
            "name": f"table_{i}",
            "num_embeddings": round(math.exp(draw.uniform(math.log(100), math.log(3e7)))),
            "embedding_dim": draw.choice(DIMS),
            "pooling_factor": round(math.exp(draw.uniform(math.log(0.5), math.log(50))), 3),
        }
        for i in range(count)
    ]
    workload = {"schema": "recsmith/workload/1", "batch_size": batch, "optimizer": "rowwise_adagrad", "tables": tables}
    path.write_text(json.dumps(workload))


def measure(words: Sequence[str], **environment: str) -> tuple[float, float, str]:
    """(CPU seconds, peak MB, standard output) of one whole command."""
    command = [sys.executable, "-m", "recsmith", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output


def starts() -> None:
    print("| command | warm, median of 5 (CPU s) | without bytecode caches (CPU s) |\n|---|---|---|")
    for text in STARTS:
        measure(text.split())
        warm = statistics.median(measure(text.split())[0] for _ in range(RUNS))
        with tempfile.TemporaryDirectory() as empty:
            cold = measure(text.split(), PYTHONPYCACHEPREFIX=empty)[0]
        print(f"| `recsmith {text}` | {warm:.2f} | {cold:.2f} |", flush=True)


def growth(sizes: Sequence[tuple[int, str, int]], *more: str) -> list[tuple[float, float]]:
    """Logarithms of tables and seconds."""
    print("\n| tables | devices | whole command (CPU s) | peak (MB) | step | gap at most |\n|---|---|---|---|---|---|")
    points: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for count, cluster, batch in sizes:
            file = Path(folder) / f"{count}.json"
            generate(count, batch, file)
            words = ["plan", str(file), "--cluster", cluster, "--cost-model", "torchrec", *more]
            seconds, peak, output = min(measure(words) for _ in range(3))
            step, gap = (_after(word, output) for word in ("step ", "at most "))
            devices = _after(" devices:", output, before=True)
            print(f"| {count:,} | {devices} | {seconds:.2f} | {peak:.0f} | {step} | {gap} |", flush=True)
            points.append((math.log(count), math.log(seconds)))
    return points


def files() -> None:
    """What the plan file of the largest size takes to write, to read and to report."""
    count, cluster, batch = SIZES[-1]
    print("| command | CPU s | peak (MB) |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        tables, plan = Path(folder) / "tables.json", Path(folder) / "plan.json"
        generate(count, batch, tables)
        planned = ["plan", str(tables), "--cluster", cluster, "--cost-model", "torchrec", "-o", str(plan)]
        reported = ["report", str(plan), "-o", str(Path(folder) / "report.html")]
        for words in (planned, ["simulate", str(plan)], reported):
            seconds, peak, _ = measure(words)
            print(f"| `recsmith {words[0]}` | {seconds:.1f} | {peak:,.0f} |", flush=True)
        print(f"\nThe file has {plan.stat().st_size / 1e6:.0f} MB.")


def _after(mark: str, output: str, *, before: bool = False) -> str:
    """What the first line with a mark says after it, up to a bracket, or the word before it."""
    head, _, tail = output.partition(mark)
    return head.split()[-1] if before else tail.splitlines()[0].split("(")[0].split(" above")[0].strip()


if __name__ == "__main__":
    if "files" in sys.argv[1:]:
        files()
        sys.exit()
    if "growth" not in sys.argv[1:]:
        starts()
        growth(SIZES)
    slope, _ = statistics.linear_regression(*zip(*growth(ON_256, *ROOM), strict=True))
    print(f"\nOn 256 devices seconds grow as tables ^ {slope:.2f}.")
