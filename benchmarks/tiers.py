"""Tables larger than memory: the same job with all rows in memory, and with `rows: tiered` under a memory limit.

    python benchmarks/tiers.py --folder FOLDER                     # 4 GiB of tables in 1 GiB, 40 steps; root
    python benchmarks/tiers.py --folder FOLDER --rows 20000 --limit 0   # small, without a limit

Prints a line of JSON for each variant: the mean of its steps after the first quarter, the largest memory of the job's
cgroup, its last loss and a hash of the exported tables. Hashes that differ end it with an error.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from recsmith.clusters import load_cluster
from recsmith.planning.simulate import price
from recsmith.plans import Placement, save_plan
from recsmith.workloads import AccessProfile, Feature, Table, Workload

ROOT = Path("/sys/fs/cgroup")
TABLES, DIM, BATCH = 8, 64, 1024


def variants(folder: Path, cache: float) -> dict[str, dict[str, Any]]:
    """What each run says of its rows and pipeline."""
    rows = {"name": "tiered", "folder": str(folder / "rows"), "cache": cache}
    return {
        "memory": {"pipeline": "prefetch_sparse_dist"},
        "tiered": {"rows": rows, "pipeline": "base"},
        "tiered, prefetch": {"rows": rows, "pipeline": "prefetch_sparse_dist"},
    }


def write_run(
    folder: Path, rows: int, steps: int, ranks: int, optimizer: str, of: dict[str, Any], zipf: float | None = None
) -> Path:  # fmt: skip
    """The run file of a variant, with a plan of whole tables, one rank after the other. zipf: of ids; None as drawn."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"t{i}" for i in range(TABLES)]
    feature = [Feature(name=name, pooling_factor=1.0) for name in names]
    access = None if zipf is None else AccessProfile(zipf=zipf)
    tables = tuple(
        Table(name=each.name, num_embeddings=rows, embedding_dim=DIM, features=(each,), access=access)
        for each in feature
    )
    workload = Workload(batch_size=BATCH // ranks, optimizer=optimizer, tables=tables)  # type: ignore[arg-type]
    placed = [
        Placement(table=name, sharding_type="table_wise", compute_kernel="fused", ranks=(i % ranks,))
        for i, name in enumerate(names)
    ]
    cluster = load_cluster(f"cpu:{ranks}").with_memory(hbm_bytes=64 * 2**30)
    save_plan(price(workload, cluster, placed), folder / "plan.json")
    features = [{"name": name, "num_embeddings": rows, "zipf": zipf} for name in names]
    data = {"format": "generator", "num_samples": BATCH * steps, "dense": 13, "features": features}
    run = {
        "schema": "recsmith/run/1", "data": {"train": data, "global_batch_size": BATCH}, "ranks": ranks,
        "model": {"embedding_dim": DIM, "bottom": [64, DIM], "top": [256]}, "plan": str(folder / "plan.json"),
        "output": str(folder / "out"), "metrics": {"every": 1}, "checkpoint": None,
        "optimizers": {"sparse": {"name": optimizer}}, **of,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(run))
    return folder / "run.json"


class Group:
    """A memory cgroup, of version 2 where the machine has its controller, or 1, with a limit in bytes."""

    def __init__(self, name: str, limit: int) -> None:
        whole = ROOT / "cgroup.controllers"
        second = whole.exists() and "memory" in whole.read_text().split()
        self.folder = (ROOT if second else ROOT / "memory") / name
        self._peak = "memory.peak" if second else "memory.max_usage_in_bytes"
        self.folder.mkdir(exist_ok=True)
        (self.folder / ("memory.max" if second else "memory.limit_in_bytes")).write_text(str(limit))

    def entering(self, command: list[str]) -> list[str]:
        """A command that runs in the group."""
        return ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs; exec "$@"', "sh", *command]

    def end(self) -> int:
        """Remove it, when its processes have ended; the most bytes that it held."""
        time.sleep(1)
        peak = int((self.folder / self._peak).read_text())
        self.folder.rmdir()
        return peak


def limited(command: list[str], name: str, limit: int) -> list[str]:
    """A command that runs in a memory cgroup of so many bytes; 0: as it is."""
    return Group(name, limit).entering(command) if limit else command


def run_limited(run: Path, limit: int, ranks: int) -> int | None:
    """Train in a memory cgroup of so many bytes (0: without one); the most that it held, in bytes.

    Each rank is one process, as under a launcher: recsmith's own takes 400 MiB of the limit.
    """
    group = Group(f"recsmith-{os.getpid()}", limit) if limit else None
    command = [sys.executable, "-m", "recsmith", "train", str(run)]
    command = group.entering(command) if group else command
    port = str(20_000 + os.getpid() % 20_000)
    names = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    shared = dict(zip(names, (str(ranks), str(ranks), "127.0.0.1", port), strict=True))
    started = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL,
                         env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(ranks)
    ]  # fmt: skip
    codes = [each.wait() for each in started]
    peak = group.end() if group else None
    if any(codes):
        raise SystemExit(f"ranks ended with {codes}")
    return peak


def exported(folder: Path) -> str:
    """A hash of all exported weights."""
    digest = hashlib.sha256()
    for file in sorted((folder / "out" / "model").rglob("*.safetensors")):
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()[:16]


def logged(folder: Path) -> list[dict[str, Any]]:
    """What the job has logged of its steps."""
    lines = [json.loads(line) for file in sorted((folder / "out").glob("*.jsonl")) for line in file.open()]
    return [line for line in lines if "step" in line and "loss" in str(line)]


def main() -> None:
    """Run all variants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=2_097_152)
    parser.add_argument("--limit", type=int, default=2**30)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--cache", type=float, default=0.05)
    parser.add_argument("--optimizer", default="rowwise_adagrad")
    parser.add_argument("--only", nargs="*")
    asked = parser.parse_args()
    seen: set[str] = set()
    for name, of in variants(asked.folder, asked.cache).items():
        if asked.only and name not in asked.only:
            continue
        folder = asked.folder / name.replace(", ", "-")
        run = write_run(folder, asked.rows, asked.steps, asked.ranks, asked.optimizer, of)
        began = time.perf_counter()
        peak = run_limited(run, 0 if name == "memory" else asked.limit, asked.ranks)
        lines, digest = logged(folder), exported(folder)
        seen.add(digest)
        steps = [line["step_s"] for line in lines if line.get("event") == "train"][asked.steps // 4 :]
        print(json.dumps({
            "variant": name, "gib": TABLES * asked.rows * DIM * 4 / 2**30, "peak_mib": peak and peak >> 20,
            "seconds": round(time.perf_counter() - began, 1), "step_ms_mean": round(1e3 * sum(steps) / len(steps), 1),
            "logloss": [line["logloss"] for line in lines if line.get("event") == "train"][-1], "export": digest,
        }), flush=True)  # fmt: skip
    if len(seen) > 1:
        raise SystemExit("tables differ between variants")


if __name__ == "__main__":
    main()
