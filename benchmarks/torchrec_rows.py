"""TorchRec's own planner on big problems: each setting in a process of its own, ended at a hard cap, kept in a file.

Each proposer of TorchRec's planner has a limit of CPU seconds, so that a busy machine finds the same plans. It is
checked between proposals, after the enumeration; a process over the cap is killed, and its row says so. Seconds are of
the planner alone (wall clock and CPU), from the tables to the finished ShardingPlan, without imports. Steps are of
TorchRec's own estimator, also of plans that a job could not run. One result a line of the file (JSON), by problem and
setting; what is in it is not run again. Kernel dense is allowed where data_parallel is, which needs it.
"""

import json
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recsmith.adapters.torchrec_settings import TorchRecSettings
from recsmith.clusters import Cluster, load_cluster
from recsmith.errors import NoPlanFound
from recsmith.files import decode, encode
from recsmith.problems import Space
from recsmith.workloads import load_workload

TWO = ("table_wise", "column_wise")
THREE = (*TWO, "row_wise")
SIX = (*THREE, "table_column_wise", "table_row_wise", "grid_shard")
SEVEN = (*SIX, "data_parallel")
PROPOSER_CPU_S, CAP_S = 5.0, 120  # CPU seconds: of each proposer, and of a process, which is killed then
SAME = 1e-5  # steps that differ by less are called equal


@dataclass(frozen=True)
class Problem:
    """What TorchRec's planner is given. name: with which results are kept. workload: a file. gib: of a device."""

    name: str
    workload: str
    cluster: str
    gib: float

    @property
    def devices(self) -> Cluster:
        """The cluster with its memory."""
        return load_cluster(self.cluster).with_memory(int(self.gib * 2**30))


def stock(types: tuple[str, ...], cpu_s: float) -> TorchRecSettings:
    """TorchRec's planner as it ships, with these types, each proposer with a limit of CPU seconds."""
    return TorchRecSettings(types=types, proposer_cpu_s=cpu_s)


def settings_of(types: tuple[str, ...], cpu_s: float = PROPOSER_CPU_S) -> tuple[TorchRecSettings, ...]:
    """The list that a row with these types takes the best of, stock first.

    These types, and of them TW + CW, TW + CW + RW and TW + CW + data_parallel alone: by perf, and by perf with
    min_partition 64 for the tables that read a device's even share or more, each also with the uniform proposer alone,
    the quickest; the first two also with the partitioner's default order. By perf and TW + CW also min_partition 64 and
    32 for all tables, and for those that read half of a device's even share or more. The default proposers are grid,
    greedy by the largest shard, by the sum, and uniform.
    """
    sets = [each for each in (types, TWO, THREE, (*TWO, "data_parallel")) if set(each) <= set(types)]
    by_perf = [replace(stock(each, cpu_s), order="perf") for each in dict.fromkeys(sets)]
    found = [stock(each, cpu_s) for each in (types, TWO)] + by_perf
    found += [replace(each, min_partition=64, heavy=1.0) for each in by_perf]
    found += [replace(each, proposers="uniform") for each in found if each.order == "perf"]
    two = replace(stock(TWO, cpu_s), order="perf")
    found += [replace(two, min_partition=width, heavy=heavy) for heavy in (0.5, 0.0) for width in (64, 32)]
    return tuple(dict.fromkeys(found))


def run_all(
    problem: Problem, settings: Sequence[TorchRecSettings], file: Path, cap_s: int = CAP_S
) -> list[dict[str, Any]]:
    """The results of every setting, those that the file lacks run now."""
    kept = {(row["problem"], row["setting"]): row for row in map(json.loads, _lines(file))}
    found: list[dict[str, Any]] = []
    for each in settings:
        key = problem.name, _name(each)
        if key not in kept:
            row = {"problem": key[0], "setting": key[1], "cap_s": cap_s, **_run(problem, each, cap_s)}
            with file.open("a") as out:
                out.write(json.dumps(row) + "\n")
            kept[key] = row
            print(f"{key[0]}: {words(row)}", file=sys.stderr, flush=True)
        found.append(kept[key])
    return found


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def _name(settings: TorchRecSettings) -> str:
    return f"{settings.describe()}; {settings.proposer_cpu_s:g} CPU s"


def _run(problem: Problem, settings: TorchRecSettings, cap_s: int) -> dict[str, Any]:
    """One setting in a child process."""
    given = json.dumps({"problem": vars(problem), "settings": encode(settings), "cap_s": cap_s})
    done = subprocess.run([sys.executable, __file__], input=given, capture_output=True, text=True, check=False)
    if done.returncode == -signal.SIGXCPU:
        return {"error": f"no plan within {cap_s} CPU s"}
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1][:200]}
    return json.loads(done.stdout.splitlines()[-1])


def best(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The quickest of the rows with the least step, to SAME; the first where none has a plan."""
    least = min(row.get("step_ms", float("inf")) for row in rows)
    alike = [row for row in rows if row.get("step_ms", float("inf")) <= least * (1 + SAME)]
    return min(alike, key=lambda row: row.get("cpu_s", float("inf")))


def words(row: dict[str, Any]) -> str:
    """'165.3 ms in 154 s (CPU 150 s), stock', or why there is none."""
    if "error" in row:
        return f"{row['error']}, {row['setting']}"
    return f"{row['step_ms']:.3f} ms in {row['wall_s']:.1f} s (CPU {row['cpu_s']:.1f} s), {row['setting']}"


def cells(rows: Sequence[dict[str, Any]]) -> str:
    """Stock's step and CPU seconds, the best's, its setting, and the CPU seconds of all; rows: stock first."""
    first, top = rows[0], best(rows)
    spent = sum(row.get("cpu_s", row["cap_s"]) for row in rows)
    return f"{_cell(first)} | {_cell(top)} | {top['setting'].partition(';')[0]} | {spent:.0f}"


def _cell(row: dict[str, Any]) -> str:
    return f"{row['error']} | -" if "error" in row else f"{row['step_ms']:.3f} | {row['cpu_s']:.1f}"


def child() -> None:
    """Plan what standard input says and print the result."""
    from recsmith.adapters.torchrec_planner import rate_with_torchrec

    given = json.loads(sys.stdin.read())
    resource.setrlimit(resource.RLIMIT_CPU, (given["cap_s"], given["cap_s"] + 1))
    problem = Problem(**given["problem"])
    settings = decode(TorchRecSettings, given["settings"], "the settings")
    workload, types = load_workload(problem.workload), settings.types or SEVEN
    space = Space(types=types, kernels=("fused", "dense") if "data_parallel" in types else ("fused",))
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        found: dict[str, Any] = {"step_ms": rate_with_torchrec(workload, problem.devices, space, settings) * 1e3}
    except NoPlanFound as error:
        found = {"error": str(error)}
    print(json.dumps(found | {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    child()
