"""Steps of jobs with tables on disk beside one with all rows in memory, in turns, and beside their predictions.

    python benchmarks/tiers_steps.py --folder FOLDER   # 4 GiB of tables, 1 GiB a job; root, on a quiet machine
    python benchmarks/tiers_steps.py --folder FOLDER --rows 20000 --limit 0 --warm 60 --window 12   # small

Four jobs are started and trained until their caches are full. Then they train in turns, a window of steps each, five
times over, and all others stand still: what else happens on the machine hits all of them alike. Of each window the
first step is left out, whose rows came while the job stood still. The job in memory captures some steps when it is
alone, and `predict` prices the other ones from them, by the disk's figures, which are measured here before and after.
Prints tables; with -o writes all windows as JSON.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from tiers import limited, write_run

from recsmith.clusters import Disk
from recsmith.measuring.disk import measure_disk
from recsmith.planning.simulate import price
from recsmith.plans import Cache, load_plan
from recsmith.prediction.predictions import predict_capture
from recsmith.units import format_speed

ROOT = Path(__file__).parent
ZIPF = 1.05
ALONE = 45  # steps of the job in memory before the others start: it captures some of them
WATCHERS = ["tiers_steps:turn"]
NAMES = ("memory", "waiting", "prefetch", "small cache")


def turn(step: int, _: float, samples: object) -> None:
    """The watcher of every job: at the end of a window, stand still until it is this job's turn."""
    del samples
    folder, name = Path(os.environ["TURNS"]), os.environ["TURN_OF"]
    begin, window = int(os.environ["WARM"]), int(os.environ["WINDOW"])
    if step < begin or (step - begin) % window:
        return
    (folder / f"{name}.done").write_text(str(step))
    while (folder / "turn").read_text() != f"{name} {step}":
        time.sleep(0.02)


def jobs(asked: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What each run says."""
    folder = asked.folder

    def stored(cache: float) -> dict[str, Any]:
        return {"name": "tiered", "folder": str(folder / "rows"), "cache": cache}

    ahead = {"pipeline": "prefetch_sparse_dist"}
    return {
        "memory": {"pipeline": "base", "capture": str(folder / "trace")},
        "waiting": {"rows": stored(asked.cache), "pipeline": "base"},
        "prefetch": {"rows": stored(asked.cache), **ahead},
        "small cache": {"rows": stored(asked.small_cache), **ahead},
    }


def started(name: str, of: dict[str, Any], asked: argparse.Namespace, warm: int) -> subprocess.Popen[bytes]:
    """A job of one rank under its limit, which trains until it is warm."""
    folder = asked.folder / name.replace(" ", "-")
    steps = warm + asked.rounds * asked.window + 4
    run = write_run(folder, asked.rows, steps, 1, "rowwise_adagrad", {**of, "watchers": WATCHERS}, ZIPF)
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    port = 20_000 + (os.getpid() * len(NAMES) + NAMES.index(name)) % 20_000
    words = {"TURNS": str(asked.folder), "TURN_OF": name, "WARM": str(warm), "WINDOW": str(asked.window)}
    python = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-m", "recsmith", "train", str(run)]
    group = f"recsmith-{os.getpid()}-{NAMES.index(name)}"
    with (folder / "said.txt").open("wb") as said:
        return subprocess.Popen(
            limited(command, group, 0 if name == "memory" else asked.limit),
            env={**os.environ, **rank, **words, **python}, stdout=said, stderr=said,
        )  # fmt: skip


def reached(folder: Path, name: str, step: int, job: subprocess.Popen[bytes]) -> None:
    """Wait until a job has trained so many steps."""
    while not (folder / f"{name}.done").exists() or int((folder / f"{name}.done").read_text() or 0) < step:
        if job.poll() is not None:
            said = (folder / name.replace(" ", "-") / "said.txt").read_text()[-1500:]
            raise SystemExit(f"job '{name}' ended:\n{said}")
        time.sleep(0.02)


def window_of(folder: Path, name: str, begin: int, end: int) -> dict[str, float]:
    """Mean milliseconds of the steps of a window but its first, and how long they waited for rows."""
    lines = [json.loads(line) for line in (folder / name.replace(" ", "-") / "out/log.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["event"] == "train" and begin + 1 < line["step"] < end]
    return {
        "ms": 1e3 * mean(line["step_s"] for line in steps),
        "waited_ms": 1e3 * mean(line.get("rows_wait_s", 0.0) for line in steps),
        "hits": mean(line.get("hit_share", 1.0) for line in steps),
    }


def measured(asked: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """The windows of all jobs."""
    folder, running, warm = asked.folder, dict[str, subprocess.Popen[bytes]](), dict[str, int]()
    (folder / "turn").write_text("nobody")
    for name in NAMES:
        (folder / f"{name}.done").unlink(missing_ok=True)
    try:
        for name, of in jobs(asked).items():
            warm[name] = ALONE if name == "memory" else asked.warm
            running[name] = started(name, of, asked, warm[name])
            if name == "memory":
                reached(folder, name, ALONE, running[name])
        for name, job in running.items():
            reached(folder, name, warm[name], job)
        print(f"caches are full after {asked.warm} steps", file=sys.stderr)
        rows: dict[str, list[dict[str, float]]] = {name: [] for name in NAMES}
        for number in range(asked.rounds):
            for name, job in running.items():
                begin = warm[name] + number * asked.window
                (folder / "turn").write_text(f"{name} {begin}")
                reached(folder, name, begin + asked.window, job)
                rows[name].append(window_of(folder, name, begin, begin + asked.window))
        return rows
    finally:
        for job in running.values():
            job.kill()
            job.wait()


def predicted(asked: argparse.Namespace, disk: Disk) -> dict[str, float]:
    """Milliseconds of the jobs with tables on disk, from the capture of the job in memory."""
    plan = load_plan(asked.folder / "memory" / "plan.json")
    cluster = replace(plan.cluster, ssd_bytes_per_host=2**40, disk=disk)
    made: dict[str, float] = {}
    for name, share in (("waiting", asked.cache), ("prefetch", asked.cache), ("small cache", asked.small_cache)):
        workload = replace(plan.workload, pipeline="none" if name == "waiting" else "prefetch_sparse_dist")
        placed = [replace(each, compute_kernel="key_value", cache=Cache(load_factor=share)) for each in plan.placements]
        told = price(workload, cluster, placed)
        [(_, found)] = predict_capture(asked.folder / "trace", plan=told)
        made[name] = 1e3 * found.step_s
    return made


def main() -> None:
    """Measure, predict, and print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=2_097_152, help="of each of eight tables of 64 columns")
    parser.add_argument("--limit", type=int, default=2**30, help="bytes of memory of a job with tables on disk")
    parser.add_argument("--cache", type=float, default=0.075)
    parser.add_argument("--small-cache", type=float, default=0.01)
    parser.add_argument("--warm", type=int, default=800, help="steps until caches are full")
    parser.add_argument("--window", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    before = measure_disk(asked.folder)
    rows = measured(asked)
    after = measure_disk(asked.folder)
    disk = replace(before, reads_per_s=(before.reads_per_s + after.reads_per_s) / 2)
    said = predicted(asked, disk)
    if asked.output:
        asked.output.write_text(json.dumps({"windows": rows, "predicted_ms": said, "reads_per_s": disk.reads_per_s}))
    print(f"random reads of 4 KiB a second: {before.reads_per_s:,.0f} before, {after.reads_per_s:,.0f} after; "
          f"{format_speed(disk.bandwidth)}\n")  # fmt: skip
    head = ("job", "hits", "step", "windows", "times memory", "waited for rows", "predicted step", "off")
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for name, windows in rows.items():
        steps = [each["ms"] for each in windows]
        ratio = mean(a["ms"] / b["ms"] for a, b in zip(windows, rows["memory"], strict=True))
        told = f"{said[name]:.1f} ms | {said[name] / mean(steps) - 1:+.1%}" if name in said else "|"
        hits, waited = (mean(each[what] for each in windows) for what in ("hits", "waited_ms"))
        print(f"| {name} | {hits:.1%} | {mean(steps):.1f} ms | {min(steps):.1f} to {max(steps):.1f} | {ratio:.2f} | "
              f"{waited:.2f} ms | {told} |")  # fmt: skip
    waits = [mean(each["waited_ms"] for each in rows[name]) for name in ("waiting", "prefetch")]
    print(f"\nprefetch hides {1 - waits[1] / waits[0]:.1%} of the wait for rows")


if __name__ == "__main__":
    main()
