"""Replanned steps of ten small jobs, half of which run what a greedy planner made.

    python benchmarks/replan_greedy.py                 # two minutes; a line for each job and limit
    python benchmarks/replan_greedy.py --first 12 --count 1     # one more, like the third, of other tables

Tables are those of `recsmith workload sample --max-bytes 4GiB`, seed 7100 of the first job, 7101 of the next and so on,
at 2,048 samples a device. Since the old plan was made, a tenth of the tables is read twice as often. Printed are the
replanned step, the bound of a fresh plan, the share of the bytes that moves, and CPU seconds.
"""

import argparse
import random
import time
import warnings
from dataclasses import replace

import recsmith
from recsmith import Workload

JOBS = (  # tables, cluster, cost model, planner of the plan that runs
    (24, "h100:4x2", "best", "size_greedy"), (40, "h100:8", "best", "auto"),
    (60, "h100:8x2", "analytic", "size_greedy"), (100, "h100:8", "torchrec", "auto"),
    (100, "h100:8x2", "best", "auto"), (150, "h100:4x4", "best", "size_lookup_greedy"),
    (200, "h100:8x2", "torchrec", "size_greedy"), (300, "h100:8x4", "best", "auto"),
    (400, "h100:8", "best", "auto"), (80, "h100:8", "fitted", "cost_greedy"),
)  # fmt: skip
SEED, BATCH, LARGEST, LIMITS = 7100, 2048, 2**32, ("5%", "20%")


def busier(workload: Workload, seed: int) -> Workload:
    """A tenth of the tables, two at least, is read twice as often."""
    tables = list(workload.tables)
    for number in random.Random(seed).sample(range(len(tables)), max(2, len(tables) // 10)):
        (feature,) = tables[number].features
        more = replace(feature, pooling_factor=2 * feature.pooling_factor)
        tables[number] = replace(tables[number], features=(more,))
    return replace(workload, tables=tuple(tables))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="number of the first job; after ten they begin again")
    parser.add_argument("--count", type=int, default=len(JOBS), help="how many jobs")
    words = parser.parse_args()
    warnings.simplefilter("ignore")  # of learned models, beyond what they know
    print("| tables, cluster, cost model | old plan by | limit | step | bound of a fresh plan | moves | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for number in range(words.first, words.first + words.count):
        count, cluster, model, planner = JOBS[number % len(JOBS)]
        tables = recsmith.sample_workload(count, SEED + number, batch_size=BATCH, max_bytes=LARGEST)
        old, now = recsmith.plan(tables, cluster, planner=planner, cost_model=model).plan, busier(tables, number)
        for limit in LIMITS:
            begun = time.process_time()
            found = recsmith.replan(old, now, max_moved=limit)
            step_s, bound_s = found.result.plan.cost.total_s, found.result.plan.bound.value_s or 0.0
            share, spent = found.moved_bytes / found.staying_bytes, time.process_time() - begun
            print(f"| {count}, {cluster}, {model} | {planner} | {limit} | {step_s * 1e3:.4f} ms "
                  f"| {bound_s * 1e3:.4f} ms | {share:.1%} | {spent:.1f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
