"""2D parallelism in a TorchRec job: the arguments of DMPCollection that belong to a plan for one sharding group."""

from typing import TypedDict

from recsmith.clusters import Cluster
from recsmith.errors import UsageError


class CollectionArguments(TypedDict):
    """Keyword arguments of DMPCollection that the plan's cluster decides."""

    world_size: int
    sharding_group_size: int
    node_group_size: int
    use_inter_host_allreduce: bool


def collection_arguments(cluster: Cluster) -> CollectionArguments:
    """How DMPCollection must lay out its groups, so that a plan for this cluster runs on the links that it counts on.

    node_group_size: the ranks of a group that table_row_wise and grid_shard take for a host. DMPCollection would take
    LOCAL_WORLD_SIZE of the job, whose ranks are of several groups.

    Raises:
        UsageError: the cluster is not a sharding group of a 2D job.
    """
    if cluster.replication is None:
        raise UsageError(
            "the cluster is one sharding group, which DistributedModelParallel trains; "
            "give the planner a sharding_group_size below the job's number of devices"
        )
    return {
        "world_size": cluster.job_world_size,
        "sharding_group_size": cluster.world_size,
        "node_group_size": cluster.local_world_size,
        "use_inter_host_allreduce": cluster.replication.use_inter_host_allreduce,
    }
