"""Random tasks like NeuroShard's, tables and a cluster: of optimality.py, planned_under.py and scratch_annealing.py."""

from dataclasses import replace
from functools import cache

import numpy as np

from recsmith.bounds.relaxation import Relaxation
from recsmith.costs import Evaluator
from recsmith.workloads import Workload
from recsmith.workloads.sample import shared_pool

GLOBAL_BATCH = 65_536  # samples over all devices, as in the NeuroShard paper
LEAST_TABLES, MOST_TABLES, DEVICES = 10, 60, (4, 8)  # of a task
LARGEST_SHARE = 0.7  # of the mean load: tasks with a larger piece that cannot be split say little about a search


def draw_task(seed: int, attempt: int, device: str = "h100", batch: int = GLOBAL_BATCH) -> tuple[Workload, str]:
    """Tables of the shared pool, each at most once, and a cluster; batch: samples of all devices."""
    rng, pool = np.random.default_rng([seed, attempt]), _pool()
    tables = rng.choice(len(pool.tables), int(rng.integers(LEAST_TABLES, MOST_TABLES + 1)), replace=False)
    devices = int(rng.choice(DEVICES))
    chosen = tuple(pool.tables[i] for i in sorted(tables.tolist()))
    workload = replace(pool, tables=chosen, batch_size=batch // devices, name=f"task-{seed}-{attempt}")
    return workload, f"{device}:{devices}"


@cache
def _pool() -> Workload:
    return shared_pool()


def largest_share(evaluator: Evaluator) -> float:
    """The dearest piece that cannot be split, over the mean load of a device with every table at its cheapest.

    Each table counts with the option whose largest piece is cheapest.
    """
    relaxation = Relaxation(evaluator)
    largest = np.where(relaxation.option_fits, relaxation.option_largest, np.inf)
    unsplittable = np.minimum.reduceat(largest, evaluator.problem.options.start[:-1]).max()
    mean = relaxation.choose().seconds.sum() / evaluator.problem.cluster.world_size
    return float(unsplittable / mean)
