"""A TorchRec Topology as a Cluster and back, and the kind of device that PyTorch sees here."""

import torch
from torchrec.distributed.planner import Topology

from recsmith.clusters import Cluster, Device, Links
from recsmith.errors import UsageError

PER_S = 1000  # TorchRec's bandwidths are bytes per millisecond


def read_cluster(topology: Topology) -> Cluster:
    """The cluster of a TorchRec topology: counts, capacities and bandwidths.

    Raises:
        UsageError: the topology has pods of several hosts.
    """
    if topology.intra_group_size != topology.local_world_size:
        raise UsageError("the topology has pods of several hosts, which are not covered; leave pod_size out")
    on_device = topology.compute_device != "cpu"
    sizes = tuple(device.storage.hbm if on_device else device.storage.ddr for device in topology.devices)
    per_host = topology.devices[0].storage.ddr * topology.local_world_size
    return Cluster(
        device=Device(
            name=f"topology-{topology.compute_device}",
            kind="cuda" if on_device else "cpu",
            hbm_bytes=max(sizes),
            hbm_bandwidth=(topology.hbm_mem_bw if on_device else topology.ddr_mem_bw) * PER_S,
            host_link_bandwidth=topology.hbm_to_ddr_mem_bw * PER_S if on_device else None,
        ),
        local_world_size=topology.local_world_size,
        hosts=topology.world_size // topology.local_world_size,
        links=Links(
            intra_host_bandwidth=topology.intra_host_bw * PER_S, inter_host_bandwidth=topology.inter_host_bw * PER_S
        ),
        hbm_bytes=sizes if len(set(sizes)) > 1 else None,
        ddr_bytes_per_host=per_host if on_device else None,
    )


def to_topology(cluster: Cluster) -> Topology:
    """A TorchRec topology with the counts of a cluster and the memory of its devices, before the cluster's reserve.

    Bandwidths are TorchRec's own.
    """
    on_cpu = cluster.device.kind == "cpu"
    per_rank = (cluster.ddr_bytes_per_host or 0) // cluster.local_world_size
    topology = Topology(
        world_size=cluster.world_size,
        local_world_size=cluster.local_world_size,
        compute_device=cluster.device.kind,
        ddr_cap=per_rank,
    )
    for device, size in zip(topology.devices, cluster.hbm_per_rank, strict=True):
        setattr(device.storage, "ddr" if on_cpu else "hbm", size)
    return topology


def device_type() -> str:
    """'cuda' where PyTorch sees a GPU, 'cpu' elsewhere."""
    return "cuda" if torch.cuda.is_available() else "cpu"
