"""Whether two checkouts make the same plans: 60 problems, planned by every planner, compared to the last bit.

python benchmarks/identical_plans.py record before.json     # in one checkout, or with PYTHONPATH=other/src
python benchmarks/identical_plans.py record after.json      # in the other
python benchmarks/identical_plans.py compare before.json after.json

What is compared of each plan: its digest, the seconds of its step, the bound and the space that it holds for, all
written with every bit; and of each refusal, its kind. The problems are the built-in workloads, samples, tight memory,
sequences, host caches and table rules, under the cost models analytic, torchrec and neural:cpu. A restructuring of the
code must change none of it. `record` writes after every plan and goes on where it stopped; it takes about half an hour.

Last compared: 442 of the 514 answers (393 plans), from before keys of systems came from their records to after it: of
all planners but auto, and of neuroshard and exact those to the problems of fewer tables. None differs. The rooms that
plan have not changed since, so the other answers were not waited for.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import recsmith
from recsmith import Cluster, Constraints, Feature, RecSmithError, Space, Table, TableRule, Workload

GREEDIES = ("cost_greedy", "size_greedy", "dim_greedy", "lookup_greedy", "size_lookup_greedy", "random")
FEW = ("auto", "cost_greedy", "size_lookup_greedy")
ALL = ("auto", "neuroshard", "ldm", *GREEDIES)
MODELS = ("analytic", "torchrec")


@dataclass(frozen=True)
class Case:
    """A problem, and the planners that answer it."""

    name: str
    workload: Workload
    cluster: Cluster
    cost_model: str
    space: Space | None = None
    constraints: Constraints | None = None
    planners: tuple[str, ...] = ALL


def builtins() -> Iterator[Case]:
    """The built-in workloads; the largest by few planners."""
    where = {
        "criteo-kaggle": ("h100:2", ALL), "criteo-1tb": ("h100:8", ALL), "dlrm-v2": ("a100-40:8x2", ALL),
        "nvidia-tiny": ("h100:4", ALL), "nvidia-small": ("h100:8", ALL), "nvidia-medium": ("a100-80:8x2", ALL),
        "nvidia-large": ("h100:8x8", FEW),
    }  # fmt: skip
    for name, (cluster, planners) in where.items():
        for model in MODELS:
            case = Case(name, recsmith.load_workload(name), recsmith.load_cluster(cluster), model, planners=planners)
            yield replace(case, name=f"{name} {cluster}")


def samples() -> Iterator[Case]:
    """Samples like a production model's: few tables to many."""
    for seed, (tables, cluster) in enumerate(
        ((10, "h100:4"), (20, "h100:8"), (40, "a100-40:4x2"), (60, "h200:8"), (120, "a100-80:8"), (400, "h100:8x4"))
    ):
        work = recsmith.sample_workload(tables, seed=seed)
        for model in MODELS:
            yield Case(f"sample {tables} {cluster}", work, recsmith.load_cluster(cluster), model)


def tight() -> Iterator[Case]:
    """Little more memory than the tables need, and less."""
    for seed, (tables, share) in enumerate(((12, 1.02), (12, 1.15), (30, 1.05), (30, 1.3), (80, 1.1), (80, 0.9))):
        work, cluster = recsmith.sample_workload(tables, seed=40 + seed), recsmith.load_cluster("h100:4")
        need = sum(table.weight_bytes for table in work.tables)
        small = replace(cluster, hbm_bytes=int(need * share / cluster.world_size))
        for model in MODELS:
            yield Case(f"tight {tables} {share}", work, small, model)


def sequences() -> Iterator[Case]:
    """Sequence and pooled tables of several collections and data types."""
    for seed in range(5):
        work = _mixed(np.random.default_rng(seed), 6 + 4 * seed)
        for model in MODELS:
            yield Case(f"sequences {seed}", work, recsmith.load_cluster("h100:2x2"), model)


def _mixed(rng: np.random.Generator, count: int) -> Workload:
    tables: list[Table] = []
    for i in range(count):
        name, pooling = f"t{i}", str(rng.choice(["sum", "mean", "none"]))
        feature = Feature(name=name, pooling_factor=float(rng.integers(1, 40)), weighted=False)
        fields: dict[str, Any] = {
            "pooling": pooling, "data_type": str(rng.choice(["fp32", "fp16"])),
            "collection": "abc"[int(rng.integers(2))],
        }  # fmt: skip
        rows, dim = int(10 ** rng.uniform(2, 6.5)), int(rng.choice([16, 64, 128, 192]))
        tables.append(Table(name=name, num_embeddings=rows, embedding_dim=dim, features=(feature,), **fields))
    return Workload(batch_size=2048, optimizer="rowwise_adagrad", tables=tuple(tables))


def spaces() -> Iterator[Case]:
    """Other spaces and rules, host caches, and exact proofs of small problems."""
    work, cluster = recsmith.sample_workload(24, seed=7), recsmith.load_cluster("h100:8")
    kernels = ("fused", "dense", "fused_uvm_caching")
    scarce = replace(cluster, hbm_bytes=sum(t.weight_bytes for t in work.tables) // 16, ddr_bytes_per_host=2**41)
    rules = Constraints(rules=(TableRule(tables="*1", min_width=32),), keep_exact=True)
    for model in MODELS:
        yield Case("caches", work, scarce, model, Space(kernels=kernels))
        yield Case("torchrec widths", work, cluster, model, Space(widths="torchrec"))
        yield Case("two types", work, cluster, model, Space(types=("table_wise", "column_wise")))
        yield Case("rules", work, cluster, model, constraints=rules)
        small = recsmith.sample_workload(5, seed=3)
        yield Case("exact", small, recsmith.load_cluster("h100:2"), model, planners=("exact", "auto"))
    work = recsmith.sample_workload(16, seed=9)
    work = replace(work, optimizer="sgd", batch_size=1024)
    for name in ("neural:cpu", "neural:simulated-h100"):
        yield Case("learned", work, recsmith.load_cluster("cpu:4" if "cpu" in name else "h100:4"), name)


def cases() -> list[Case]:
    """All problems, in a fixed order."""
    return [*builtins(), *samples(), *tight(), *sequences(), *spaces()]


def answer(case: Case, planner: str) -> dict[str, str]:
    """What a planner says of a problem; numbers with all their bits."""
    words: dict[str, Any] = {"iterations": 3} if planner == "exact" else {}
    try:
        result = recsmith.plan(
            case.workload, case.cluster, planner=planner, cost_model=case.cost_model, space=case.space,
            constraints=case.constraints, **words,
        )  # fmt: skip
    except RecSmithError as error:
        return {"error": type(error).__name__}
    plan, bound = result.plan, result.plan.bound
    return {
        "digest": plan.digest, "total_s": plan.cost.total_s.hex(), "space": bound.space,
        "bound_s": "none" if bound.value_s is None else bound.value_s.hex(),
    }  # fmt: skip


def record(path: Path, only: str) -> None:
    """Answers to all problems whose name holds a word, written after each."""
    known: dict[str, dict[str, str]] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    for case in (each for each in cases() if only in each.name):
        for planner in case.planners:
            key = f"{case.name} | {case.cost_model} | {planner}"
            if key not in known:
                known[key] = answer(case, planner)
                path.write_text(json.dumps(known, indent=1), "utf-8")
                print(key, known[key].get("digest", known[key].get("error")), flush=True)


def compare(before: Path, after: Path) -> int:
    """How many answers differ; 0 is what a restructuring must show."""
    one, other = (json.loads(path.read_text("utf-8")) for path in (before, after))
    differ = [key for key in one.keys() & other.keys() if one[key] != other[key]]
    for key in sorted(differ):
        print(f"{key}\n  before {one.get(key)}\n  after  {other.get(key)}")
    plans = sum("digest" in each for each in one.values())
    problems = len({key.rpartition(" | ")[0] for key in one})
    missing = len(one.keys() ^ other.keys())
    refusals = len(one) - plans
    print(f"{problems} problems, {len(one)} answers ({plans} plans, {refusals} refusals): {len(differ)} differ, "
          f"{missing} stand in one file only")  # fmt: skip
    return len(differ) + missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("record", "compare"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--only", default="", help="record: problems whose name holds this word")
    words = parser.parse_args()
    if words.verb == "record":
        record(words.files[0], words.only)
    else:
        sys.exit(bool(compare(*words.files)))


if __name__ == "__main__":
    main()
