"""Seconds in which the replicas of a 2D job synchronise: DMPCollection.sync() averages weights and optimizer state.

Each rank all-reduces what it holds with the ranks that hold the same shards in the other sharding groups, in place and
after its own backward pass, every `steps_per_sync` steps. A step carries its share: a ring moves 2 (n - 1) / n of the
bytes through every link (links.py). data_parallel tables take no part: DDP all-reduces their gradients over all groups.

Source: torchrec 1.8, distributed/model_parallel.py, DMPCollection.sync with its default include_optimizer_state=True.

Legend: N pieces.
"""

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.clusters import Cluster, replica_ring
from recsmith.costs.analytic.kernels import LINK_EFFICIENCY
from recsmith.costs.analytic.links import latency, seconds_per_byte
from recsmith.problems import Problem
from recsmith.sharding import TYPE_NAMES, UVM, Collective
from recsmith.sharding.memory import STATE_BYTES
from recsmith.workloads.optimizers import OPTIMIZERS

_ALL_REDUCE = Collective("all_reduce", "world", "table")
_DATA_PARALLEL = TYPE_NAMES.index("data_parallel")


def synchronised_bytes(rows: Ints, widths: Ints, element_bytes: Ints, optimizer: str) -> Floats:
    """Bytes (N,) of weights and optimizer state that one synchronisation averages of fused shards."""
    state = OPTIMIZERS[optimizer]
    per_row = widths * (element_bytes + STATE_BYTES * state.element_states) + STATE_BYTES * state.row_states
    return (rows * per_row).astype(np.float64)


def synchronisation_seconds(problem: Problem, modes: Ints, widths: Ints) -> Floats:
    """Seconds (N,) that pieces add to a step on each rank that they cover."""
    table = problem.modes.table[modes]
    size = synchronised_bytes(
        problem.modes.head_rows[modes], widths, problem.demand.element_bytes[table], problem.workload.optimizer
    )
    per_byte = np.where(problem.modes.kernel[modes] == UVM.number, *_seconds_per_byte(problem.cluster))
    return np.where(problem.modes.type[modes] == _DATA_PARALLEL, 0.0, size * per_byte)


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
