"""Towers: exact losses, bytes between hosts and seconds of a step on links of a known rate, and what they cost in AUC.

    python benchmarks/towers.py exact     # losses of ratio 1 beside plain tables: 100 steps, 4 ranks on 2 hosts
    python benchmarks/towers.py steps     # bytes and seconds of a step, 4 ranks on 2 hosts that have a network each
    python benchmarks/towers.py loads     # how equally hosts work under `recsmith plan --towers`
    python benchmarks/towers.py auc       # of plain tables and towers on generated clicks, five seeds
    python benchmarks/towers.py auc --movielens ml-latest-small

Tables of docs/towers.md. `steps` needs what two_networks.py needs, and says so where it is missing.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from thresholding_scores import show_scores
from two_networks import INTERFACE, run_ranks, two_networks, why_not

import recsmith
from recsmith.analyses.tower_groups import Strategy, groups_of, interactions_of
from recsmith.analyses.towers import TowerRequest, imbalance, plan_towers
from recsmith.jobs.launch import launch
from recsmith.problems import Constraints, TableRule
from recsmith.training import (
    Run,
    RunData,
    RunMetrics,
    RunModel,
    RunOptimizers,
    SparseOptimizer,
    run_to_raw,
)
from recsmith.training.job.rank_times import BytesSent
from recsmith.training.results.variants import TrainBench, bench_train

HERE = Path(__file__).parent
SEEDS = (0, 1, 2, 3, 4)
GROUPED: tuple[Strategy, ...] = ("random", "coherent", "diverse")
CLICK_STEPS = 1000  # of 512 generated clicks
RANKS, HOSTS, FEATURES, COLUMNS, BATCH = 4, 2, 26, 64, 512
NAMES = [f"f{number}" for number in range(FEATURES)]
GROUPS = (tuple(NAMES[: FEATURES // 2]), tuple(NAMES[FEATURES // 2 :]))
RATES = (None, "400mbit", "200mbit", "100mbit")
STEPS, WARM, ROUNDS = 18, 4, 2  # of a job; the first ones are left out of its seconds
EXACT_STEPS = 100
LOADED, CLUSTERS = ("dlrm-v2", "criteo-kaggle"), ("h100:8x2", "h100:8x4")
JOBS: dict[str, int | None] = {"plain": None, "ratio 1": 1, "ratio 2": 2, "ratio 4": 4, "ratio 8": 8}
NOTES: list[tuple[float, int]] = []  # of this rank: when each step ended, and bytes that had left its host by then


def a_run(folder: Path, ratio: int | None, *, sparse: Any = "sgd", steps: int = STEPS, batch: int = BATCH) -> Run:
    """A DLRM of 26 tables, by towers of a ratio or without."""
    module = None if ratio is None else {"name": "towers", "ratio": ratio, "towers": [list(names) for names in GROUPS]}
    features = [{"name": name, "num_embeddings": 2000} for name in NAMES]
    return Run(
        data=RunData(
            train={"format": "generator", "seed": 7, "num_samples": 1_000_000, "dense": 4, "features": features},
            batch_size=batch,
        ),
        model=RunModel(embedding_dim=COLUMNS, bottom=(64,), top=(128,), table_module=module),
        output=str(folder), steps=steps, checkpoint=None, metrics=RunMetrics(every=1),
        optimizers=RunOptimizers(sparse=SparseOptimizer(name=sparse, learning_rate=0.05)),
    )  # fmt: skip


def placed(run: Run, plan: Path) -> Run:
    """The run under a plan of whole tables, the same for towers and without."""
    tables = [
        {"name": name, "num_embeddings": 2000, "embedding_dim": COLUMNS, "pooling_factor": 1, "pooling": "sum"}
        for name in NAMES
    ]
    if not plan.exists():
        workload = {"schema": "recsmith/workload/1", "batch_size": BATCH, "optimizer": "sgd", "tables": tables}
        plan.with_name("tables.json").write_text(json.dumps(workload))
        rules = [
            TableRule(tables=name, sharding_types=("table_wise",), hosts=(host,))
            for host, names in enumerate(GROUPS)
            for name in names
        ]
        made = recsmith.plan(
            plan.with_name("tables.json"), f"cpu:{RANKS // HOSTS}x{HOSTS}", constraints=Constraints(rules=tuple(rules))
        )
        recsmith.save_plan(made.plan, plan)
    return replace(run, plan=str(plan))


def show_exact(quick: bool) -> None:
    """How far losses of ratio 1 are from those of plain tables."""
    steps = 10 if quick else EXACT_STEPS
    print(
        "| optimizer of tables | steps | largest relative difference of losses | the last losses |\n|---|---|---|---|"
    )
    for sparse in ("sgd", "rowwise_adagrad"):
        with tempfile.TemporaryDirectory() as name:
            runs = [
                placed(
                    a_run(Path(name, f"ratio-{ratio}"), ratio, sparse=sparse, steps=steps, batch=64), Path(name, "plan")
                )
                for ratio in (None, 1)
            ]
            launch("towers:train_all", {"runs": [run_to_raw(run) for run in runs]}, ranks=RANKS, hosts=HOSTS)
            plain, one = (losses_of(Path(run.output)) for run in runs)
        apart = max(abs(a / b - 1) for a, b in zip(one, plain, strict=True))
        print(f"| {sparse} | {len(one)} | {apart:.1e} | {one[-1]:.7f} and {plain[-1]:.7f} |", flush=True)


def losses_of(folder: Path) -> list[float]:
    """Losses of all steps of a job."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line["logloss"] for line in lines if line["event"] == "train"]


def train_all(runs: list[dict[str, Any]]) -> None:
    """Train runs one after another on this rank of a job."""
    from recsmith.training.rank import train_on_rank

    for run in runs:
        train_on_rank(run)


def note(*_: object) -> None:
    """A watcher: when a step ended, and what had left this host."""
    NOTES.append((time.perf_counter(), left_host()))


def left_host() -> int:
    """Bytes that this network namespace has sent to the other host, headers included."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    found = [line for line in lines if line.strip().startswith(INTERFACE)]
    return int(found[0].partition(":")[2].split()[8]) if found else 0


class BytesBetweenHosts(BytesSent):
    """What this rank hands to all-to-alls for ranks of other hosts: whole numbers are ids, others pooled vectors."""

    last: ClassVar[dict[str, int]] = {}  # of the newest one

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count an all-to-all, and run it."""
        if str(getattr(func, "name", lambda: "")()).startswith("c10d::alltoall_base"):
            _, given, group, _, splits = args[:5]
            group = dist.ProcessGroup.unbox(group) if isinstance(group, torch.ScriptObject) else group
            ranks, rows = dist.get_process_group_ranks(group), list(splits)
            rows = rows or [given.shape[0] // len(ranks)] * len(ranks)
            here = dist.get_rank() // (RANKS // HOSTS)
            away = sum(count for rank, count in zip(ranks, rows, strict=True) if rank // (RANKS // HOSTS) != here)
            kind = "pooled" if given.is_floating_point() else "ids"
            size = away * given[0].numel() * given.element_size() if given.numel() else 0
            self.bytes[kind] = self.bytes.get(kind, 0) + size
        return func(*args, **(kwargs or {}))

    def __exit__(self, *error: Any) -> None:
        """Keep it."""
        BytesBetweenHosts.last = dict(self.bytes)
        super().__exit__(*error)


def as_rank(settings: dict[str, Any]) -> None:
    """Train runs on this rank; the first rank writes what each took."""
    import towers  # this file, as the watcher knows it

    from recsmith.jobs.worker import join, leave
    from recsmith.training import loop, rank

    join()
    torch.set_num_threads(1)
    loop.BytesSent = BytesBetweenHosts  # type: ignore[misc]
    said: list[dict[str, Any]] = []
    for run in settings["runs"]:
        towers.NOTES.clear()
        rank.train_on_rank(run)
        counted = torch.tensor([BytesBetweenHosts.last.get(kind, 0) for kind in ("pooled", "ids")])
        dist.all_reduce(counted)
        times, left = zip(*towers.NOTES[WARM:], strict=True)
        between = [after - before for before, after in pairwise(times)]
        said.append({
            "seconds": statistics.median(between), "left": (left[-1] - left[0]) / len(between),
            "pooled": int(counted[0]) // HOSTS, "ids": int(counted[1]) // HOSTS,
        })  # fmt: skip
    if dist.get_rank() == 0:
        Path(settings["file"]).write_text(json.dumps(said))
    leave()


def measured(rate: str | None, jobs: Sequence[str], rounds: int, steps: int) -> dict[str, list[dict[str, Any]]]:
    """What steps of jobs took on a link, in turn, in one job of two hosts."""
    order = [name for number in range(rounds) for name in list(jobs)[:: -1 if number % 2 else 1]]
    with tempfile.TemporaryDirectory() as folder, two_networks(rate) as hosts:
        runs = []
        for number, name in enumerate(order):
            run = placed(a_run(Path(folder, f"{number}"), JOBS[name], steps=steps), Path(folder, "plan.json"))
            runs.append(run_to_raw(replace(run, metrics=RunMetrics(every=steps), watchers=("towers:note",))))
        settings = {"runs": runs, "file": f"{folder}/said.json"}
        Path(folder, "settings.json").write_text(json.dumps(settings))
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-W", "ignore", __file__, "rank", "--settings", f"{folder}/settings.json"]
        if run_ranks(hosts, command, RANKS // HOSTS, environment={"PYTHONPATH": path, "GROUP_WORLD_SIZE": str(HOSTS)}):
            sys.exit("a rank failed")
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in jobs}
        for name, said in zip(order, json.loads(Path(folder, "said.json").read_text()), strict=True):
            found[name].append(said)
    return found


def show_steps(rates: Sequence[str | None], quick: bool) -> None:
    """Bytes and seconds of a step, by rate and ratio."""
    rounds, steps = (1, 12) if quick else (ROUNDS, STEPS)
    print("| link | tables | a step | of the jobs | times the samples/s | "
          "bytes of a host and step: pooled | ids "
          "| the rest, headers included |\n" + "|---" * 8 + "|")  # fmt: skip
    for rate in rates:
        found = measured(rate, list(JOBS), rounds, steps)
        middle = {name: statistics.fmean(each["seconds"] for each in said) for name, said in found.items()}
        for name, said in found.items():
            took = sorted(each["seconds"] * 1e3 for each in said)
            pooled, ids = said[0]["pooled"], said[0]["ids"]
            rest = statistics.fmean(each["left"] for each in said) - pooled - ids
            cells = [rate or "not throttled", name, f"{middle[name] * 1e3:.0f} ms", f"{took[0]:.0f} to {took[-1]:.0f}",
                     f"{middle['plain'] / middle[name]:.2f}",
                     f"{pooled:,}", f"{ids:,}", f"{rest:,.0f}"]  # fmt: skip
            print(f"| {' | '.join(cells)} |", flush=True)


def show_loads(quick: bool) -> None:
    """How much busier the busiest host is than the mean, under the cost model, and what towers cost the plan."""
    print("| tables | cluster | busiest host above the mean | step beside the plan without towers |\n|---|---|---|---|")
    for name, cluster in [(name, cluster) for name in LOADED for cluster in CLUSTERS][: 1 if quick else None]:
        words: dict[str, Any] = {"workload": name, "cluster": cluster, "cost_model": "analytic"}
        hosts = int(cluster.partition("x")[2])
        found, free = plan_towers(TowerRequest(hosts), **words).plan, recsmith.plan(**words).plan
        print(f"| {name} | {cluster} | {imbalance(found):.1%} | {found.cost.total_s / free.cost.total_s - 1:+.1%} |",
              flush=True)  # fmt: skip


def compare_auc(movielens: str | None, folder: Path, quick: bool) -> None:
    """AUC of towers beside plain tables, the same data and steps; groups follow from the first plain model."""
    base = HERE / ("train_movielens.yaml" if movielens else "thresholding_run.yaml")
    words = ["ranks=1", *(["model.top=[128,64]", f"steps={CLICK_STEPS}"] if movielens is None else [])]
    words += [f"data.{part}.path={movielens}" for part in ("train", "test") if movielens]
    words += ["steps=40", "metrics.every=20"] if quick else []
    seeds = SEEDS[: 1 if quick else None]

    def trained(variants: dict[str, tuple[str, ...]], seeds: Sequence[int]) -> None:
        bench = TrainBench(run=str(base), variants=variants, seeds=tuple(seeds))
        bench_train(bench, folder, on_progress=lambda line: print(line, file=sys.stderr, flush=True))

    plain = {"plain": tuple(words)}
    trained(plain, seeds[:1])
    names, found = interactions_of(folder / f"plain-{seeds[0]}" / "model")
    loads = dict.fromkeys(names, 1.0)
    groups = {kind: groups_of(names, loads, HOSTS, kind, 0, (names, found)) for kind in GROUPED}
    variants = plain | {
        f"ratio {ratio}, {kind}": (*words, f"model.table_module={towers_word(ratio, groups[kind])}")
        for ratio, kind in ((2, "random"), (4, "random"), (8, "random"), (4, "coherent"), (4, "diverse"))
    }
    for kind, towers in groups.items():
        print(f"{kind}: {' | '.join(', '.join(tower) for tower in towers)}", flush=True)
    for number, seed in enumerate(seeds):
        trained(dict(list(variants.items())[:: -1 if number % 2 else 1]), [seed])
    show_scores(list(variants), seeds, folder, base)


def towers_word(ratio: int, groups: Sequence[Sequence[str]]) -> str:
    """A table_module as --set takes it."""
    return json.dumps({"name": "towers", "ratio": ratio, "towers": [list(names) for names in groups]})


def main() -> int:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["exact", "steps", "loads", "auc", "rank"])
    parser.add_argument("--settings", help=argparse.SUPPRESS)
    parser.add_argument("--rates", nargs="*", default=[each or "none" for each in RATES], help="none: not throttled")
    parser.add_argument("--movielens", help="folder of MovieLens, instead of generated clicks")
    parser.add_argument("--folder", help="of trainings (bench/towers); those that are there are not trained again")
    parser.add_argument("--quick", action="store_true", help="few steps, to see that it runs")
    arguments = parser.parse_args()
    if arguments.table == "rank":
        as_rank(json.loads(Path(arguments.settings).read_text()))
        return 0
    if arguments.table == "steps" and (reason := why_not("1mbit")) is not None:
        print(f"two networks cannot be made here: {reason}")
        return 1
    if arguments.table == "steps":
        show_steps([None if rate == "none" else rate for rate in arguments.rates], arguments.quick)
    elif arguments.table == "loads":
        show_loads(arguments.quick)
    elif arguments.table == "auc":
        where = "movielens" if arguments.movielens else "clicks"
        compare_auc(arguments.movielens, Path(arguments.folder or "bench/towers") / where, arguments.quick)
    else:
        show_exact(arguments.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
