"""Tables, clusters and problems of these tests."""

from typing import Any

import numpy as np

from recsmith import Cluster, Device, Feature, Links, Space, Table, Workload
from recsmith.problems import Problem, build_problem

WHOLE = Space(types=("table_wise",), kernels=("fused",))
BY_COLUMNS = Space(types=("table_wise", "column_wise"), kernels=("fused",))
BOTH = ("analytic", "torchrec")


def table(name: str, rows: int, dim: int, pooling_factor: float = 2.0) -> Table:
    """A table with one feature of its name."""
    features = (Feature(name=name, pooling_factor=pooling_factor),)
    return Table(name=name, num_embeddings=rows, embedding_dim=dim, features=features)


def workload(*tables: Table, batch_size: int = 4096) -> Workload:
    return Workload(batch_size=batch_size, optimizer="sgd", tables=tables)


def cluster(local: int, hbm: Any = 2**40) -> Cluster:
    device = Device(name="test", hbm_bytes=2**40, hbm_bandwidth=1e12, host_link_bandwidth=2e10)
    links = Links(intra_host_bandwidth=3e11, inter_host_bandwidth=2e10)
    return Cluster(device=device, local_world_size=local, hosts=1, links=links, hbm_bytes=hbm)


def problem_of_tables(count: int, hbm: int = 2**40, space: Space = WHOLE) -> Problem:
    """Tables of all sizes on four devices."""
    tables = [table(f"t{i}", 1000 * (i % 7 + 1), 32 * (i % 4 + 1), float(i % 11 + 1)) for i in range(count)]
    return build_problem(workload(*tables), cluster(4, hbm=hbm), space)


def problem_of_room(room: float, count: int = 7, devices: int = 3, space: Space = WHOLE) -> Problem:
    """Tables on devices that hold `room` of their even share each."""
    tables = [table(f"t{i}", 1000 * (i + 1), 32, float(i + 1)) for i in range(count)]
    hbm = int(room * sum(each.num_embeddings for each in tables) * 32 * 4 / devices)
    return build_problem(workload(*tables, batch_size=1), cluster(devices, hbm=hbm), space)


def drawn_problem(seed: int, room: float = 1.1, count: int = 20) -> Problem:
    """Tables drawn at random, on four devices that hold `room` of their even share each."""
    random = np.random.default_rng(seed)
    tables = [
        table(
            f"t{i}", int(10 ** random.uniform(5.5, 6.5)), 16 * int(random.integers(1, 9)), float(random.integers(1, 40))
        )
        for i in range(count)
    ]
    hbm = int(room * sum(each.weight_bytes for each in tables) / 4)
    return build_problem(workload(*tables), cluster(4, hbm=hbm), BY_COLUMNS)
