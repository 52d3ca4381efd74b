"""Prices tables of several sizes: their bytes, the share of lookups they serve, and the step time of their plan."""

import math
from collections.abc import Callable

import numpy as np

from recsmith._types import noun
from recsmith.clusters import Cluster
from recsmith.errors import Infeasible, NoPlanFound
from recsmith.planning import plan
from recsmith.sharding.memory import STATE_BYTES
from recsmith.streaming.capacity.capacity import Capacity, FeatureCapacity
from recsmith.workloads import Feature, Table, Workload
from recsmith.workloads.optimizers import OptimizerName, find_optimizer

TIMES = (0.25, 0.5, 1.0, 2.0)  # table sizes, as multiples of the rows that serve the requested share
ITERATIONS = 200  # iterations of a plan search, which are enough for a few tables


@noun
class SizedTables:
    """The tables of all features at one size.

    times: size as a multiple of the rows that serve the requested share. rows, bytes: of all tables together; bytes are
    those of weights and optimizer state. served: share of all lookups that is served. step_s, device_bytes: step time
    of the plan and memory of its fullest device; None if no cluster is given, or the tables do not fit, which `problem`
    explains.
    """

    times: float
    rows: int
    bytes: int
    served: float
    step_s: float | None = None
    device_bytes: int | None = None
    problem: str = ""


def row_bytes(dim: int, optimizer: str, element_bytes: int = 4) -> int:
    """Bytes of a row: its weights and its optimizer state."""
    kept = find_optimizer(optimizer)
    return dim * element_bytes + STATE_BYTES * (kept.element_states * dim + kept.row_states)


def sized_tables(
    capacity: Capacity, make: Callable[[float], Workload], cluster: Cluster | None = None
) -> tuple[SizedTables, ...]:
    """The tables at several sizes, with the cost of a plan for the cluster. make: makes the workload of a size."""
    return tuple(_sized(capacity, times, make(times), cluster) for times in TIMES)


def workload_of(
    capacity: Capacity, times: float, *, batch_size: int, embedding_dim: int, optimizer: OptimizerName
) -> Workload:
    """A workload with one table per feature, of `times` times the rows that it needs."""
    tables = tuple(
        Table(
            name=each.feature,
            num_embeddings=rows_at(each, times),
            embedding_dim=embedding_dim,
            features=(Feature(name=each.feature, pooling_factor=each.lookups / max(capacity.samples, 1)),),
        )
        for each in capacity.features
    )
    return Workload(batch_size=batch_size, optimizer=optimizer, tables=tables, source=capacity.source)


def rows_at(feature: FeatureCapacity, times: float) -> int:
    """`times` times the rows that a feature needs."""
    return max(1, math.ceil(times * feature.needed))


def served_at(feature: FeatureCapacity, times: float) -> float:
    """Share of all lookups served by a table of `times` times the rows that its feature needs, by the first policy.

    The curve is interpolated in the logarithm of the rows. A longer stream has the same curve, stretched.
    """
    first = feature.policies[0]
    rows = math.log(max(1.0, times * first.rows))
    return float(np.interp(rows, np.log(feature.sizes), first.served))


def _sized(capacity: Capacity, times: float, workload: Workload, cluster: Cluster | None) -> SizedTables:
    lookups = np.array([each.lookups for each in capacity.features], dtype=np.float64)
    served = np.array([served_at(each, times) for each in capacity.features])
    made = {
        "times": times, "rows": sum(table.num_embeddings for table in workload.tables),
        "bytes": sum(
            table.num_embeddings * row_bytes(table.embedding_dim, workload.optimizer, table.element_bytes)
            for table in workload.tables
        ),
        "served": float(lookups @ served / lookups.sum()),
    }  # fmt: skip
    if cluster is None:
        return SizedTables(**made)
    try:
        cost = plan(workload, cluster, iterations=ITERATIONS).plan.cost
    except (Infeasible, NoPlanFound) as error:
        return SizedTables(**made, problem=str(error))
    fullest = max(device.hbm_bytes for device in cost.per_device)
    return SizedTables(**made, step_s=cost.step_s, device_bytes=fullest)
