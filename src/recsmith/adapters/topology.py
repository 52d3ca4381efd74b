"""Clusters to and from TorchRec's Topology, the arguments of DMPCollection, and the kind of device that is present."""

from typing import TypedDict

import torch
from torchrec.distributed.comm import get_local_size, get_topology_group_world_size
from torchrec.distributed.planner import Topology
from torchrec.distributed.types import ShardingStrategy

from recsmith.clusters import Cluster, Device, Links, load_cluster
from recsmith.errors import UsageError
from recsmith.files import Source
from recsmith.plans import Plan
from recsmith.units import counted, parse_size

ON_HOSTS = ("table_row_wise", "grid_shard")  # sharding types that split a table by what TorchRec takes for a host
PER_S = 1000  # TorchRec's bandwidths are bytes per millisecond


def read_cluster(topology: Topology) -> Cluster:
    """The cluster of a TorchRec topology: counts, capacities and bandwidths.

    A pod of several hosts that share fast links becomes one host of the cluster, and its hosts become the trays.
    TorchRec's planner treats a pod in the same way; so do its jobs if TORCHREC_RESOLVED_POD_SIZE gives the number of
    hosts in a pod.

    Disks, multipliers of TorchRec's estimate and bandwidths of single collectives are not read.

    Raises:
        UsageError: the topology's hosts or pods do not tile its ranks, or its devices are neither cuda nor cpu.
    """
    tray, pod = topology.local_world_size, topology.intra_group_size
    if topology.compute_device not in ("cpu", "cuda"):
        raise UsageError(f"the topology has devices of kind {topology.compute_device}; cuda and cpu are planned")
    if topology.world_size % tray:
        raise UsageError(
            f"hosts of {tray} devices do not tile the topology's {topology.world_size}; give a local_world_size that "
            "divides its world_size"
        )
    if topology.world_size % pod:
        raise UsageError(
            f"pods of {pod // tray} hosts of {tray} devices do not tile the topology's {topology.world_size}; give a "
            f"pod_size that divides its {topology.world_size // tray} hosts, or leave it out"
        )
    on_device = topology.compute_device != "cpu"
    sizes = tuple(device.storage.hbm if on_device else device.storage.ddr for device in topology.devices)
    ddr = [device.storage.ddr for device in topology.devices]
    per_host = min(sum(ddr[first : first + pod]) for first in range(0, topology.world_size, pod))
    return Cluster(
        device=Device(
            name=f"topology-{topology.compute_device}",
            kind="cuda" if on_device else "cpu",
            hbm_bytes=max(sizes),
            hbm_bandwidth=(topology.hbm_mem_bw if on_device else topology.ddr_mem_bw) * PER_S,
            host_link_bandwidth=topology.hbm_to_ddr_mem_bw * PER_S if on_device else None,
        ),
        local_world_size=pod,
        hosts=topology.world_size // pod,
        devices_per_tray=tray if tray < pod else None,
        links=Links(
            intra_host_bandwidth=topology.intra_host_bw * PER_S, inter_host_bandwidth=topology.inter_host_bw * PER_S
        ),
        hbm_bytes=sizes if len(set(sizes)) > 1 else None,
        ddr_bytes_per_host=per_host if on_device else None,
    )


def check_hosts(plan: Plan) -> str | None:
    """A sentence on how TorchRec's hosts in this job differ from those of the plan's cluster; None if they agree.

    Raises:
        UsageError: the plan cannot run on these hosts: on CUDA its shards name devices of a host, or a table has a type
            that splits it by hosts.
    """
    cluster = plan.cluster
    if cluster.replication is not None:  # a group of a 2D job: its hosts are passed to DMPCollection
        return None
    local = get_local_size(cluster.world_size)
    try:
        joined = get_topology_group_world_size(cluster.world_size)
    except ValueError as error:
        raise UsageError(f"TORCHREC_RESOLVED_POD_SIZE is not of this job: {error}") from None
    moved = local != cluster.machine_devices and device_type() == "cuda"
    if joined == cluster.local_world_size and not moved:
        return None
    split = next((each for each in plan.placements if each.sharding_type in ON_HOSTS), None)
    text = (
        f"a host of the cluster has {cluster.local_world_size} devices, and in this job TorchRec takes {joined} ranks "
        "for a host (LOCAL_WORLD_SIZE, times TORCHREC_RESOLVED_POD_SIZE where that is set)"
    )
    if moved or split is not None:
        what = f"table '{split.table}' is {split.sharding_type}" if split else "shards name devices of a host"
        raise UsageError(
            f"{text}; {what}, which does not run so: give the planner the cluster that the job runs on, with "
            f"{counted(cluster.world_size // joined, 'host')} of {counted(joined, 'device')}"
        )
    return text


def find_cluster(cluster: Cluster | Topology | Source | None, reserve_bytes: int | str | None) -> Cluster:
    """The cluster to plan for, with `reserve_bytes` of each device reserved if given.

    Raises:
        UsageError: no cluster, an unknown name, or a reserve that leaves no memory.
    """
    if cluster is None:
        raise UsageError("RecSmithPlanner needs a cluster first: a name such as 'h100:8x12', or a TorchRec Topology")
    cluster = read_cluster(cluster) if isinstance(cluster, Topology) else load_cluster(cluster)
    reserve = parse_size(reserve_bytes) if isinstance(reserve_bytes, str) else reserve_bytes
    return cluster.with_memory(reserve_bytes=reserve)


class TopologyShape(TypedDict, total=False):
    """Arguments of a Topology: how many devices share a machine, and how many machines share fast links."""

    local_world_size: int
    pod_size: int


def counts_of(cluster: Cluster) -> TopologyShape:
    """The number of devices in a machine, and the number of machines in a pod if it has several."""
    machine, host = cluster.machine_devices, cluster.local_world_size
    if machine == host:
        return TopologyShape(local_world_size=machine)
    return TopologyShape(local_world_size=machine, pod_size=host // machine)


def to_topology(cluster: Cluster) -> Topology:
    """A TorchRec topology with the counts of a cluster and the full memory of its devices, the reserve included.

    Bandwidths are TorchRec's defaults.
    """
    on_cpu = cluster.device.kind == "cpu"
    per_rank = (cluster.ddr_bytes_per_host or 0) // cluster.local_world_size
    topology = Topology(
        world_size=cluster.world_size,
        **counts_of(cluster),
        compute_device=cluster.device.kind,
        ddr_cap=per_rank,
    )
    for device, size in zip(topology.devices, cluster.hbm_per_rank, strict=True):
        setattr(device.storage, "ddr" if on_cpu else "hbm", size)
    return topology


def device_type() -> str:
    """'cuda' if PyTorch sees a GPU, else 'cpu'."""
    return "cuda" if torch.cuda.is_available() else "cpu"


class CollectionArguments(TypedDict, total=False):
    """Keyword arguments of DMPCollection that follow from the plan's cluster."""

    world_size: int
    sharding_group_size: int
    node_group_size: int
    use_inter_host_allreduce: bool
    sharding_strategy: ShardingStrategy


def collection_arguments(cluster: Cluster) -> CollectionArguments:
    """Arguments with which DMPCollection lays out its groups on the links that a plan for this cluster assumes.

    node_group_size is the number of ranks in a group that table_row_wise and grid_shard take for a host. By default
    DMPCollection would take the job's LOCAL_WORLD_SIZE, whose ranks belong to several groups.

    Raises:
        UsageError: the cluster is not a sharding group of a 2D job.
    """
    if cluster.replication is None:
        raise UsageError(
            "the cluster is one sharding group, which DistributedModelParallel trains; "
            "give the planner a sharding_group_size below the job's number of devices"
        )
    made: CollectionArguments = {
        "world_size": cluster.job_world_size,
        "sharding_group_size": cluster.world_size,
        "node_group_size": cluster.local_world_size,
        "use_inter_host_allreduce": cluster.replication.use_inter_host_allreduce,
    }
    if cluster.fully_sharded:
        made["sharding_strategy"] = ShardingStrategy.FULLY_SHARDED
    return made
