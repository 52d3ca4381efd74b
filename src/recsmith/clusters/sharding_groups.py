"""The clusters of a 2D job: the sharding group for which plans are made, and the devices its ranks communicate with.

group = sharding_group(load_cluster("h100:8x12"), 32)   # ranks 0 .. 31: a plan is made for these
whole_job(group)                                        # all 96 devices: data_parallel gradients
replica_ring(group)                                     # the 3 devices with the same shards: their synchronisation
"""

from collections.abc import Iterator
from dataclasses import replace

from recsmith.clusters.cluster import Cluster, Replication
from recsmith.errors import UsageError


def sharding_group(
    job: Cluster, group_size: int, *, steps_per_sync: int = 1, use_inter_host_allreduce: bool = False,
    fully_sharded: bool = False,
) -> Cluster:  # fmt: skip
    """The cluster of one sharding group of a job, with its replication; the job itself if it is one group.

    The hosts of this cluster are blocks of neighbouring ranks that share a host of the job in every group. If no two
    ranks always do, each rank counts as a host of its own, behind the slower link. Host memory is shared evenly. If
    ranks differ in memory, a rank has the least memory of its replicas. The other arguments are fields of
    `Replication`.

    Raises:
        UsageError: the group size does not divide the devices, or the cluster is a sharding group already.
    """
    if job.replication is not None:
        raise UsageError("the cluster is a sharding group of a 2D job already; give the cluster of the whole job")
    if group_size < 1 or job.world_size % group_size:
        raise UsageError(
            f"sharding groups of {group_size} devices do not divide the job's {job.world_size}; "
            f"take one of {', '.join(str(size) for size in _divisors(job.world_size))}"
        )
    if steps_per_sync < 1:
        raise UsageError(f"steps_per_sync is {steps_per_sync}; replicas sync every so many steps, at least 1")
    if group_size == job.world_size:
        return job
    replication = Replication(
        replicas=job.world_size // group_size, job_local_world_size=job.local_world_size,
        steps_per_sync=steps_per_sync, use_inter_host_allreduce=use_inter_host_allreduce, fully_sharded=fully_sharded,
    )  # fmt: skip
    local = replication.group_local_world_size(group_size)
    return replace(
        job, local_world_size=local, hosts=group_size // local, replication=replication, devices_per_tray=None,
        hbm_bytes=_least_of_replicas(job, replication),
        ddr_bytes_per_host=_share(job.ddr_bytes_per_host, local, job),
        ssd_bytes_per_host=_share(job.ssd_bytes_per_host, local, job),
    )  # fmt: skip


def larger_groups(cluster: Cluster) -> Iterator[Cluster]:
    """Clusters of all larger sharding groups that the same job can have, from small to large.

    There are none if ranks differ in memory, because a group does not know the memory of its replicas.
    """
    if cluster.replication is None or isinstance(cluster.hbm_bytes, tuple):
        return
    job = _with_its_memory(cluster, cluster.job_world_size)
    for size in _divisors(job.world_size):
        if size > cluster.world_size:
            yield _group_as(job, size, cluster.replication)


def of_ranks(cluster: Cluster, ranks: int) -> Cluster:
    """A sharding group of the same size, in a job of `ranks` ranks; the job itself if it is one group.

    Raises:
        UsageError: the group size does not divide the ranks.
    """
    assert cluster.replication is not None
    return _group_as(_with_its_memory(cluster, ranks), cluster.world_size, cluster.replication)


def _group_as(job: Cluster, size: int, made: Replication) -> Cluster:
    """A sharding group of a job, with the replication settings of another group."""
    return sharding_group(
        job, size, steps_per_sync=made.steps_per_sync, use_inter_host_allreduce=made.use_inter_host_allreduce,
        fully_sharded=made.fully_sharded,
    )  # fmt: skip


def _with_its_memory(cluster: Cluster, devices: int) -> Cluster:
    """A whole job of `devices` devices, on hosts like those of a sharding group's job."""
    local = cluster.job_local_world_size
    return replace(
        cluster, local_world_size=local, hosts=devices // local, replication=None,
        ddr_bytes_per_host=_share(cluster.ddr_bytes_per_host, local, cluster),
        ssd_bytes_per_host=_share(cluster.ssd_bytes_per_host, local, cluster),
    )  # fmt: skip


def whole_job(cluster: Cluster) -> Cluster:
    """All devices of a sharding group's job and their links; the cluster itself if nothing is replicated."""
    if cluster.replication is None:
        return cluster
    return _linked(cluster, cluster.job_local_world_size, cluster.job_world_size)


def group_and_rank(cluster: Cluster, job_rank: int) -> tuple[int, int]:
    """The sharding group of a rank of the job, and its rank in that group, which the plan names."""
    if cluster.replication is None:
        return 0, job_rank
    if cluster.replication.use_inter_host_allreduce:
        return divmod(job_rank, cluster.world_size)
    rank, group = divmod(job_rank, cluster.replication.replicas)
    return group, rank


def replica_ring(cluster: Cluster) -> Cluster:
    """The devices that hold the same shards, one in each sharding group, and their links."""
    if cluster.replication is None:
        return _linked(cluster, 1, 1)
    return _linked(cluster, cluster.replication.replicas_on_a_host(cluster.world_size), cluster.replication.replicas)


def _linked(cluster: Cluster, local: int, devices: int) -> Cluster:
    """A cluster of this many devices that keeps the links but not the memory."""
    return replace(
        cluster, local_world_size=local, hosts=devices // local, replication=None, hbm_bytes=None, reserve_bytes=0
    )


def _least_of_replicas(job: Cluster, replication: Replication) -> int | tuple[int, ...] | None:
    if not isinstance(job.hbm_bytes, tuple):
        return job.hbm_bytes
    size, replicas = job.world_size // replication.replicas, replication.replicas
    if replication.use_inter_host_allreduce:
        return tuple(min(job.hbm_bytes[rank::size]) for rank in range(size))
    return tuple(min(job.hbm_bytes[rank * replicas : (rank + 1) * replicas]) for rank in range(size))


def _share(size: int | None, local: int, job: Cluster) -> int | None:
    """The share of a host's bytes that `local` of its devices may take."""
    return None if size is None else size * local // job.local_world_size


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]
