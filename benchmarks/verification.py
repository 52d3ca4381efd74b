"""Random and searched plans, measured beside what was predicted: the tables of docs/verification.md.

    taskset -c 0 python benchmarks/verification.py --records verification.jsonl [--cost-model neural:here.safetensors]

Thirty plans: ten of each of three workloads, drawn from the shared pool of 856 tables (those of up to 256 MiB), global
batch 4,096, sharded table- and column-wise over 4 or 8 CPU ranks and predicted by neural:cpu. Ten planners make them:
random with three seeds, the greedy ones, neuroshard and auto. Plans of one workload do equal work. A run that is ended
goes on with the workloads that the records lack. Best: the plan of the least measured step. Told apart: pairs of
plans whose paired interval leaves out 0.
"""

import argparse
import itertools
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from records import Row, resumed

import recsmith
from recsmith import Plan, Space, Workload, load_cluster
from recsmith.measuring.statistics import Interval
from recsmith.reports.verifications import difference, kernel_verification_to_raw
from recsmith.verifying.kernels import verify_kernels
from recsmith.verifying.visits import VISITS
from recsmith.workloads.sample import shared_pool

WORKLOADS = ((12, 4), (30, 4), (60, 8))  # tables, ranks
GLOBAL_BATCH = 4096
MOST_BYTES = 256 << 20  # of a table
COST_MODEL = "neural:cpu"
RANDOM_SEEDS = (0, 1, 2)
PLANNERS = ("size_greedy", "dim_greedy", "lookup_greedy", "size_lookup_greedy", "cost_greedy", "neuroshard", "auto")
LIMIT_S = 20.0  # of a search


def main() -> None:
    """Measure what the records lack, and print the tables."""
    parser = argparse.ArgumentParser(description="Measure random and searched plans.")
    parser.add_argument("--records", help="JSON lines of workloads that are measured")
    parser.add_argument("--visits", type=int, default=VISITS)
    parser.add_argument("--cost-model", default=COST_MODEL, help="that plans are searched under, and predicted by")
    options = parser.parse_args()
    keys = [(tables, ranks, options.visits, options.cost_model) for tables, ranks in WORKLOADS]
    rows = sorted(resumed(measure, keys, options.records, jobs=1), key=lambda row: keys.index(tuple(row["key"])))
    print(f"{rows[0]['device']}; {rows[0]['versions']}; {rows[0]['visits']} visits\n")
    heads = "workload, factor, probe moved, error at the median, largest, tau, tau of significant pairs, predicted best"
    print(f"| {heads.replace(', ', ' | ')} | compared with the measured best |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(summary(row))
    print(f"\n{conclusion(rows)}\n")
    print("| workload | plan | measured | 95 % interval | predicted | error | than predicted best | tau of ranks |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        for plan in sorted(row["plans"], key=lambda plan: plan["predicted_s"]):
            print(f"| {name_of(row)} | {plan_cells(row, plan)} |")


def conclusion(rows: Sequence[Row]) -> str:
    """What all workloads say together."""
    errors = [abs(plan["error"]) for row in rows for plan in row["plans"]]
    tau = statistics.fmean(row["tau"] for row in rows)
    told = statistics.fmean(told_apart(row)[0] for row in rows)
    lost = sum(found.low > 0 for found in map(apart, rows) if found)
    return (
        f"{len(errors)} plans: error {statistics.median(errors):.1%} median, {max(errors):.1%} largest; mean tau "
        f"{tau:.3f}, of significant pairs {told:.3f}; the predicted best is significantly slower than the "
        f"measured best in {lost} of {len(rows)} workloads"
    )


def measure(key: Any) -> Row:
    """A workload's plans side by side."""
    tables, ranks, visits, model = key
    return kernel_verification_to_raw(
        verify_kernels(plans_of(tables, ranks, model), "cpu", cost_model=model, visits=visits)
    )


def plans_of(tables: int, ranks: int, model: str) -> list[tuple[str, Plan]]:
    """Plans of ten planners."""
    work, cluster = drawn(tables, ranks), load_cluster(f"cpu:{ranks}")
    space = Space(types=("table_wise", "column_wise"), kernels=("fused",))
    wanted = [("random", seed) for seed in RANDOM_SEEDS] + [(name, 0) for name in PLANNERS]
    return [
        (
            f"{name} {seed}" if name == "random" else name,
            recsmith.plan(
                work, cluster, planner=name, seed=seed, cost_model=model, space=space, time_limit_s=LIMIT_S
            ).plan,
        )
        for name, seed in wanted
    ]


def drawn(tables: int, ranks: int) -> Workload:
    """Some tables of the pool; the seed is their number."""
    pool = shared_pool()
    light = [table for table in pool.tables if table.weight_bytes <= MOST_BYTES]
    chosen = np.random.default_rng(tables).choice(len(light), tables, replace=False)
    return Workload(
        batch_size=GLOBAL_BATCH // ranks, optimizer=pool.optimizer, tables=tuple(light[i] for i in sorted(chosen))
    )


def name_of(row: Row) -> str:
    """A workload in words."""
    tables, ranks, *_ = row["key"]
    return f"{tables} tables, {ranks} ranks"


def best_of(row: Row) -> Row:
    """The plan of the least measured median."""
    return min(row["plans"], key=lambda plan: plan["step"]["value"])


def apart(row: Row) -> Interval | None:
    """How much slower the predicted best is than the measured best; None where they are one."""
    winner, best = row["plans"][row["winner"]], best_of(row)
    return None if winner is best else Interval(**winner["slower"][row["plans"].index(best)])


def told_apart(row: Row) -> tuple[float, int, int]:
    """Kendall's tau of the pairs of plans whose paired interval leaves out 0, their number, and that of all pairs."""
    signs: list[float] = []
    pairs = list(itertools.combinations(range(len(row["plans"])), 2))
    for first, second in pairs:
        one, two = row["plans"][first], row["plans"][second]
        found = Interval(**one["slower"][second])
        if not found.holds_zero:
            signs.append(float(np.sign(found.value) * np.sign(one["predicted_s"] - two["predicted_s"])))
    return statistics.fmean(signs), len(signs), len(pairs)


def summary(row: Row) -> str:
    """The line of a workload."""
    factor, errors = row["factor"]["median"], [abs(plan["error"]) for plan in row["plans"]]
    found, (tau, told, pairs) = apart(row), told_apart(row)
    cells = (
        name_of(row), f"{factor['value']:.2f} [{factor['low']:.2f}, {factor['high']:.2f}]", f"{row['probe_moved']:.0%}",
        f"{statistics.median(errors):.1%}", f"{max(errors):.1%}", f"{row['tau']:.3f}",
        f"{tau:.3f} of {told} of {pairs} pairs", row["plans"][row["winner"]]["name"],
        "is the best" if found is None else f"{best_of(row)['name']} is the best: {difference(found)}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def plan_cells(row: Row, plan: Row) -> str:
    """The cells of a plan."""
    step, slower = plan["step"], Interval(**plan["slower"][row["winner"]])
    cells: Sequence[str] = (
        plan["name"], f"{step['value'] * 1e3:.1f} ms", f"{step['low'] * 1e3:.1f} to {step['high'] * 1e3:.1f} ms",
        f"{plan['predicted_s'] * 1e3:.1f} ms", f"{plan['error']:+.1%}",
        "-" if plan is row["plans"][row["winner"]] else difference(slower), f"{plan['tau']:.2f}",
    )  # fmt: skip
    return " | ".join(cells)


if __name__ == "__main__":
    main()
