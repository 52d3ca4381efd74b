"""Small problems of many kinds for contract tests, identical in every run."""

from functools import cache

import numpy as np

from recsmith.clusters import Cluster, load_cluster
from recsmith.problems import Problem, Space, build_problem
from recsmith.workloads import Feature, Table, Workload

PROBLEMS = 5
SPACES = (("table_wise",), ("table_wise", "column_wise"), None)  # sharding types, used in turn; None for all
CLUSTERS = ("h100:2", "h100:4", "h100:2x2")
ROOM = (50.0, 2.0, 1.5)  # memory of all devices divided by the weights of all tables, used in turn


@cache
def sample_problems() -> tuple[Problem, ...]:
    """Problems with a few tables on two to four devices, some with memory to spare; every one has a plan."""
    return tuple(_problem(number) for number in range(PROBLEMS))


def _problem(number: int) -> Problem:
    random = np.random.default_rng(number)
    tables = tuple(_table(i, random) for i in range(5 + number))
    workload = Workload(batch_size=256, optimizer="sgd", tables=tables)
    types = SPACES[number % len(SPACES)]
    return build_problem(workload, _cluster(number, workload), Space(types=types) if types else None)


def _table(number: int, random: np.random.Generator) -> Table:
    name = f"t{number}"
    feature = Feature(name=name, pooling_factor=float(random.integers(1, 40)))
    rows, dim = int(10 ** random.uniform(5, 6.5)), 4 * int(random.integers(1, 33))
    return Table(name=name, num_embeddings=rows, embedding_dim=dim, features=(feature,))


def _cluster(number: int, workload: Workload) -> Cluster:
    """A cluster with memory for a multiple of all weights, and always for the largest table."""
    cluster = load_cluster(CLUSTERS[number % len(CLUSTERS)])
    largest = max(table.weight_bytes for table in workload.tables)
    share = ROOM[number // 2 % len(ROOM)] * workload.weight_bytes / cluster.world_size
    return cluster.with_memory(int(max(share, 2 * largest)) + 2**28)
