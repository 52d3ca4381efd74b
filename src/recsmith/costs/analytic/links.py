"""Seconds of collectives: a latency for the call, and seconds per byte that a rank hands to it.

Alpha-beta: t = alpha + bytes / bandwidth, with the links inside a host and between hosts busy at the same time, so that
the slower one decides. What a rank receives does not depend on the plan when batches are equal; what it sends does.

Sources: an all-to-all sends each of W ranks its share, (L - 1) / W of it inside the host of L ranks and (W - L) / W
over its own network card; rings move (W - 1) / W of the data through every link, and between hosts each of the L rings
uses a card of its own (nccl-tests, doc/PERFORMANCE.md, and docs/cost-models.md).
"""

from recsmith.clusters import Cluster
from recsmith.sharding import Collective

INTRA_HOST_LATENCY_S = 20e-6  # 10.5 us of an 8-rank all-to-all (deepseek-ai/DeepEP#303), and two kernels to pack it
INTER_HOST_LATENCY_S = 70e-6  # 61.6 us over hosts of H100 (NVIDIA/nccl#1453), and the same two
INTRA_HOST_EFFICIENCY = 0.75  # of the line rate: 0.63 to 0.65 on A100, 0.74 to 0.80 on H100 (docs/cost-models.md)
INTER_HOST_EFFICIENCY = 0.94  # 24 of 25 GB/s HDR, 46 to 49 of 50 NDR (NVIDIA/nccl#1048, nccl-tests#267)


def ranks_per_host(ranks: int, most: int) -> int:
    """The largest number of ranks a host, at most `most`, that divides the ranks into full hosts."""
    return next(local for local in range(min(ranks, most), 0, -1) if ranks % local == 0)


def latency(call: Collective, cluster: Cluster) -> float:
    """Seconds of a collective call however little it carries; 0 where only one rank takes part."""
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
    if call.scope == "across_hosts":  # ranks of the same place on their hosts
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
    return cluster.links.intra_host_bandwidth * INTRA_HOST_EFFICIENCY


def _inter(cluster: Cluster) -> float:
    return cluster.links.inter_host_bandwidth * INTER_HOST_EFFICIENCY
