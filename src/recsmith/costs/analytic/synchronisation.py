"""Seconds in which the replicas of a 2D job synchronise: DMPCollection.sync() averages weights and optimizer state.

Each rank all-reduces what it holds with the ranks that hold the same shards in the other sharding groups, in place and
after its own backward pass, every `steps_per_sync` steps. A step carries its share: a ring moves 2 (n - 1) / n of the
bytes through every link (links.py). data_parallel tables take no part: DDP all-reduces their gradients over all groups.

Source: torchrec 1.8, distributed/model_parallel.py, DMPCollection.sync with its default include_optimizer_state=True.

Legend: N pieces.
"""

from typing import TypeVar

import numpy as np

from recsmith._types import Floats, Ints, noun
from recsmith.clusters import Cluster, replica_ring
from recsmith.costs.analytic.kernels import LINK_EFFICIENCY
from recsmith.costs.analytic.links import latency, seconds_per_byte
from recsmith.plans import Plan
from recsmith.problems import Problem
from recsmith.sharding import TYPE_NAMES, UVM, Collective
from recsmith.sharding.memory import STATE_BYTES
from recsmith.workloads.optimizers import OPTIMIZERS
from recsmith.workloads.table import ELEMENT_BYTES

Number = TypeVar("Number", int, Ints)
_ALL_REDUCE = Collective("all_reduce", "world", "table")
_DATA_PARALLEL = TYPE_NAMES.index("data_parallel")


def synchronisation_seconds(problem: Problem, modes: Ints, widths: Ints) -> Floats:
    """Seconds (N,) that pieces add to a step on each rank that they cover."""
    table = problem.modes.table[modes]
    rows, element_bytes = problem.modes.head_rows[modes], problem.demand.element_bytes[table]
    size = _bytes_of(rows, widths, element_bytes, problem.workload.optimizer).astype(np.float64)
    per_byte = np.where(problem.modes.kernel[modes] == UVM.number, *_seconds_per_byte(problem.cluster))
    return np.where(problem.modes.type[modes] == _DATA_PARALLEL, 0.0, size * per_byte)


def _bytes_of(rows: Number, width: Number, element_bytes: Number, optimizer: str) -> Number:
    """Bytes of weights and optimizer state of fused shards that one synchronisation averages."""
    state = OPTIMIZERS[optimizer]
    return rows * (width * (element_bytes + STATE_BYTES * state.element_states) + STATE_BYTES * state.row_states)


def _seconds_per_byte(cluster: Cluster) -> tuple[float, float]:
    """Seconds per byte and step of weights in host memory, which cross the host link as well, and on the device."""
    assert cluster.replication is not None
    ring, steps = replica_ring(cluster), cluster.replication.steps_per_sync
    on_device = seconds_per_byte(_ALL_REDUCE, ring)
    link = cluster.device.host_link_bandwidth
    crossing = 2 * (ring.world_size - 1) / ring.world_size / (link * LINK_EFFICIENCY) if link else 0.0
    return max(on_device, crossing) / steps, on_device / steps


def synchronisation_latency(cluster: Cluster) -> float:
    """Seconds of a step for each fusion group of sharded tables in use; 0 without replicas.

    TorchRec makes one call for all weights of a data type and one for all state, whatever the number of groups. A call
    for each group is as many for a job with two groups, one with whole rows and one with rows split, and more for more.
    """
    if cluster.replication is None:
        return 0.0
    return latency(_ALL_REDUCE, replica_ring(cluster)) / cluster.replication.steps_per_sync


@noun
class Synchronisation:
    """What the synchronisation of a plan's replicas takes on the rank that it takes longest on.

    size: bytes of weights and optimizer state that are averaged at once. seconds: its share of each step, without
    latencies.
    """

    size: int
    seconds: float


def synchronisation_of(plan: Plan) -> Synchronisation | None:
    """The synchronisation of a plan's replicas; None of a plan for one sharding group."""
    if plan.cluster.replication is None:
        return None
    tables = {table.name: table for table in plan.workload.tables}
    placements = {placement.table: placement for placement in plan.placements}
    hosted, on_device = _seconds_per_byte(plan.cluster)
    size, seconds = np.zeros(plan.cluster.world_size), np.zeros(plan.cluster.world_size)
    for shard in plan.shards():
        placement, table = placements[shard.table], tables[shard.table]
        if placement.sharding_type != "data_parallel":
            rows, width = shard.rows[1] - shard.rows[0], shard.columns[1] - shard.columns[0]
            held = _bytes_of(rows, width, ELEMENT_BYTES[table.data_type], plan.workload.optimizer)
            size[shard.rank] += held
            seconds[shard.rank] += held * (hosted if placement.compute_kernel == UVM.name else on_device)
    longest = int(seconds.argmax())
    return Synchronisation(size=int(size[longest]), seconds=float(seconds[longest]))
