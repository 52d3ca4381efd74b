"""Gaps of planner auto where tables are many, or few and huge: a part of optimality.py, which names the command."""

import time
from dataclasses import replace

import numpy as np
from production import simplified

import recsmith
from recsmith import Feature, Table, Workload
from recsmith.workloads import load_workload
from recsmith.workloads.sample import sample_workload

HUGE, HUGE_SEED, HUGE_BATCH = 7, 5, 2048  # tables of 100 M to 1 B rows, the draw of them, and samples of a device

PUBLIC = (("nvidia-medium", "h100:8x4"), ("nvidia-large", "h100:8x8"))


TARGETS = {"dlrm-v2": 0.02, "7 of 100 M to 1 B rows": 0.05, "510 sampled": 0.04, "nvidia-jumbo": 0.03,
           "1,933 of production": 0.03, "nvidia-colossal": 0.05}  # fmt: skip
"""The gaps that we aimed at."""
HEADS = ("tables", "cluster", "aim", "bound (ms)", "plan (ms)", "gap", "seconds", "CPU s")


def large(report: str) -> None:
    """A row for each problem: its bound, auto's plan, the gap, and seconds of one `recsmith.plan` call."""
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for name, (workload, cluster) in {**large_problems(report), **_others()}.items():
        begun, cpu = time.perf_counter(), time.process_time()
        plan = recsmith.plan(workload, cluster, cost_model="analytic").plan
        took, spent = time.perf_counter() - begun, time.process_time() - cpu
        bound = plan.bound.value_s or 0.0
        aim = f"{TARGETS[name]:.0%}" if name in TARGETS else "-"
        cells = f"{aim} | {bound * 1e3:.4g} | {plan.cost.total_s * 1e3:.4g} | {plan.gap:.2%} | {took:.1f} | {spent:.1f}"
        print(f"| {name} | {cluster} | {cells} |", flush=True)


def large_problems(report: str) -> dict[str, tuple[Workload, str]]:
    """The problems of TARGETS, and their clusters; report: that of the production tables."""
    return {
        "dlrm-v2": (load_workload("dlrm-v2"), "h100:8"),
        "7 of 100 M to 1 B rows": (huge_tables(), "h100:8x4"),
        "510 sampled": (replace(sample_workload(510, seed=11), batch_size=1024), "h100:8x8"),
        "nvidia-jumbo": (load_workload("nvidia-jumbo"), "h100:8x16"),
        "1,933 of production": (simplified(report), "h100:8x12"),
        "nvidia-colossal": (load_workload("nvidia-colossal"), "h200:8x64"),
    }


def _others() -> dict[str, tuple[Workload, str]]:
    """Problems that no setting of the searches was chosen on."""
    sampled = {
        f"{tables} sampled": (replace(sample_workload(tables, seed=seed), batch_size=1024), cluster)
        for tables, seed, cluster in ((400, 13, "h100:8x4"), (600, 12, "h100:8x8"), (800, 14, "h100:8x16"))
    }
    return sampled | {name: (load_workload(name), cluster) for name, cluster in PUBLIC}


def huge_tables() -> Workload:
    """A few tables of which none fits a device."""
    rng = np.random.default_rng(HUGE_SEED)
    tables: list[Table] = []
    for i in range(HUGE):
        rows, dim = int(rng.integers(100, 1001)) * 1_000_000, int(rng.choice([128, 192, 256]))
        feature = Feature(name=f"f{i}", pooling_factor=float(rng.integers(1, 100)))
        tables.append(Table(name=f"t{i}", num_embeddings=rows, embedding_dim=dim, features=(feature,)))
    return Workload(tables=tuple(tables), batch_size=HUGE_BATCH, optimizer="rowwise_adagrad", name="huge")
