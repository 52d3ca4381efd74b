"""Seconds of collectives, and of the synchronisation of a 2D job's replicas.

Alpha-beta: t = alpha + bytes / bandwidth, with the links inside a host and between hosts busy at the same time, so that
the slower one decides. With equal batches, the bytes that a rank receives do not depend on the plan; the bytes that it
sends do.

Sources: an all-to-all sends each of W ranks its share, (L - 1) / W of it inside the host of L ranks and (W - L) / W
over its own network card; rings move (W - 1) / W of the data through every link, and between hosts each of the L rings
uses its own card (nccl-tests, doc/PERFORMANCE.md, and docs/cost-models.md).

DMPCollection.sync() averages weights and optimizer state of replicas: each rank all-reduces what it holds with the
ranks that hold the same shards in the other sharding groups, in place and after its own backward pass, every
`steps_per_sync` steps. Each step is charged its share: a ring moves 2 (n - 1) / n of the bytes through every link.
Fully sharded replicas reduce-scatter weights after the lookup and all-gather them before the update, in every step,
which moves as many bytes; optimizer state is not synchronised (ShardedBatchedFusedEmbeddingBag). All of it is counted
as if nothing hid it. data_parallel tables take no part: DDP all-reduces their gradients over all groups. Source:
torchrec 1.8, distributed/model_parallel.py, DMPCollection.sync with its default include_optimizer_state=True.

Legend: N pieces.
"""

from typing import TypeVar

import numpy as np

from recsmith._types import Floats, Ints, noun
from recsmith.clusters import Cluster, replica_ring
from recsmith.costs.embedding_kernels import LINK_EFFICIENCY
from recsmith.plans import Plan
from recsmith.problems import Problem
from recsmith.sharding import DATA_PARALLEL, UVM, Collective
from recsmith.sharding.memory import STATE_BYTES
from recsmith.workloads.data_types import ELEMENT_BYTES
from recsmith.workloads.optimizers import OPTIMIZER_NAMES, OPTIMIZERS

INTRA_HOST_LATENCY_S = 20e-6  # 10.5 us of an 8-rank all-to-all (deepseek-ai/DeepEP#303), and two kernels to pack it
INTER_HOST_LATENCY_S = 70e-6  # 61.6 us over hosts of H100 (NVIDIA/nccl#1453), and the same two kernels
INTRA_HOST_EFFICIENCY = 0.75  # share of the line rate: 0.63-0.65 on A100, 0.74-0.80 on H100 (docs/cost-models.md)
INTER_HOST_EFFICIENCY = 0.94  # 24 of 25 GB/s HDR, 46 to 49 of 50 NDR (NVIDIA/nccl#1048, nccl-tests#267)
Number = TypeVar("Number", int, Ints)
_ALL_REDUCE = Collective("all_reduce", "world", "table")


def ranks_per_host(ranks: int, most: int) -> int:
    """The largest number of ranks per host, at most `most`, that divides the ranks into full hosts."""
    return next(local for local in range(min(ranks, most), 0, -1) if ranks % local == 0)


def latency(call: Collective, cluster: Cluster) -> float:
    """Seconds of a collective call without payload; 0 if only one rank takes part."""
    links = cluster.links
    if call.scope == "host":
        return (links.intra_host_latency_s or INTRA_HOST_LATENCY_S) if cluster.local_world_size > 1 else 0.0
    if cluster.hosts > 1:
        return links.inter_host_latency_s or INTER_HOST_LATENCY_S
    alone = call.scope == "across_hosts" or cluster.world_size == 1
    return 0.0 if alone else links.intra_host_latency_s or INTRA_HOST_LATENCY_S


def seconds_per_byte(call: Collective, cluster: Cluster) -> float:
    """Seconds per byte that a rank holds before a reducing or sending call, or after a gathering one."""
    if call.op == "all_to_all":
        return _all_to_all(call, cluster)
    return _ring(call, cluster) * (2 if call.op == "all_reduce" else 1)


def _all_to_all(call: Collective, cluster: Cluster) -> float:
    local, hosts = cluster.local_world_size, cluster.hosts
    if call.scope == "across_hosts":  # ranks at the same position on their hosts
        return (hosts - 1) / hosts / _inter(cluster)
    world = local if call.scope == "host" else cluster.world_size
    return max((local - 1) / world / _intra(cluster), (world - local) / world / _inter(cluster))


def _ring(call: Collective, cluster: Cluster) -> float:
    local, world = cluster.local_world_size, cluster.world_size
    if call.scope == "host" or cluster.hosts == 1:
        return (local - 1) / local / _intra(cluster)
    between = (world - 1) / world / (local * _inter(cluster))
    return max((world - 1) / world / _intra(cluster) if local > 1 else 0.0, between)


def _intra(cluster: Cluster) -> float:
    """Bandwidth between the devices that take part; in a mesh with a link per pair, of the links that these have."""
    mesh, local = cluster.links.mesh_devices, cluster.local_world_size
    share = 1.0 if mesh is None or local == 1 else min(1.0, (local - 1) / (mesh - 1))
    return cluster.links.intra_host_bandwidth * INTRA_HOST_EFFICIENCY * share


def _inter(cluster: Cluster) -> float:
    return cluster.links.inter_host_bandwidth * INTER_HOST_EFFICIENCY


# --- replicas of a 2D job --------------------------------------------------------------------------------------------


def synchronisation_seconds(problem: Problem, modes: Ints, widths: Ints) -> Floats:
    """Seconds (N,) that the synchronisation of pieces adds to a step on each rank that they cover."""
    table = problem.modes.table[modes]
    rows, element_bytes = problem.modes.head_rows[modes], problem.demand.element_bytes[table]
    size, optimizers = np.zeros(len(modes)), problem.demand.optimizer[table]
    numbers: list[int] = np.unique(optimizers).tolist()
    for number in numbers:
        mine, name = optimizers == number, OPTIMIZER_NAMES[number]
        averaged = "sgd" if problem.cluster.fully_sharded else name  # an optimizer without state
        size[mine] = _bytes_of(rows[mine], widths[mine], element_bytes[mine], averaged)
    per_byte = np.where(problem.modes.kernel[modes] == UVM.number, *_seconds_per_byte(problem.cluster))
    return np.where(problem.modes.type[modes] == DATA_PARALLEL, 0.0, size * per_byte)


def _bytes_of(rows: Number, width: Number, element_bytes: Number, optimizer: str) -> Number:
    """Bytes of weights and optimizer state of fused shards that one synchronisation averages."""
    state = OPTIMIZERS[optimizer]
    return rows * (width * (element_bytes + STATE_BYTES * state.element_states) + STATE_BYTES * state.row_states)


def _seconds_per_byte(cluster: Cluster) -> tuple[float, float]:
    """Seconds per byte and step of weights in host memory, which also cross the host link, and on the device."""
    assert cluster.replication is not None
    ring, steps = replica_ring(cluster), cluster.replication.steps_per_sync
    on_device = seconds_per_byte(_ALL_REDUCE, ring)
    link = cluster.device.host_link_bandwidth
    crossing = 2 * (ring.world_size - 1) / ring.world_size / (link * LINK_EFFICIENCY) if link else 0.0
    return max(on_device, crossing) / steps, on_device / steps


def synchronisation_latency(cluster: Cluster) -> float:
    """Seconds of latency in a step for each fusion group of sharded tables in use; 0 without replicas.

    TorchRec makes one call for all weights of a data type and one for all state, whatever the number of groups. One
    call per group is the same number for a job with two groups (one with whole rows and one with rows split), and more
    for more groups.
    """
    if cluster.replication is None:
        return 0.0
    calls = 2 if cluster.fully_sharded else 1
    return calls * latency(_ALL_REDUCE, replica_ring(cluster)) / cluster.replication.steps_per_sync


@noun
class Synchronisation:
    """The synchronisation of a plan's replicas on the rank for which it takes longest.

    size: bytes of weights and optimizer state that are averaged at once.
    seconds: its share of each step, without latencies.
    """

    size: int
    seconds: float


def synchronisation_of(plan: Plan) -> Synchronisation | None:
    """The synchronisation of a plan's replicas; None if the plan is for one sharding group."""
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
            averaged = "sgd" if plan.cluster.fully_sharded else plan.workload.optimizer_of(table)
            held = _bytes_of(rows, width, ELEMENT_BYTES[table.data_type], averaged)
            size[shard.rank] += held
            seconds[shard.rank] += held * (hosted if placement.compute_kernel == UVM.name else on_device)
    longest = int(seconds.argmax())
    return Synchronisation(size=int(size[longest]), seconds=float(seconds[longest]))
