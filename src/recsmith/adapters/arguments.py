"""The arguments of RecSmithPlanner: its cluster, and errors that help those who come from TorchRec's planner."""

from collections.abc import Mapping
from typing import Any

from torchrec.distributed.planner import Topology

from recsmith.adapters.topology import read_cluster
from recsmith.clusters import Cluster, load_cluster
from recsmith.errors import UsageError
from recsmith.files import Source, did_you_mean
from recsmith.planning import SearchArguments
from recsmith.units import parse_size

OWN_ARGUMENTS = (
    "cluster", "batch_size", "constraints", "optimizer", "reserve_bytes", "storage_reservation", "dense_optimizer",
    "limits", "planner", "sharding_group_size", "steps_per_sync", "use_inter_host_allreduce",
)  # fmt: skip
TORCHREC_ARGUMENTS = {  # of TorchRec's EmbeddingShardingPlanner: what takes their place
    "topology": "give the topology first: RecSmithPlanner(topology, batch_size=...)",
    "reserve": "reserve_bytes='10GiB' or storage_reservation= keeps memory of each device free of tables",
    "timeout_seconds": "time_limit_s= ends the search",
    "performance_model": "cost_model= names what predicts a step",
    "enumerator": "space= and limits= say which placements are chosen from",
    "proposer": "planner= names the search",
    "partitioner": "planner= names the search",
    "stats": "after planning, the result's plan holds cost, bound and gap",
    "debug": "after planning, the result's plan holds cost, bound and gap",
    "callbacks": "space= and limits= say which placements are chosen from",
    "plan_loader": "to_sharding_plan(load_plan(file), model) uses a plan that was made before",
}


def check_search_words(search: Mapping[str, Any]) -> None:
    """Refuse arguments that are not SearchArguments (UsageError), and say what takes their place."""
    for name in search:
        if name in TORCHREC_ARGUMENTS:
            raise UsageError(f"RecSmithPlanner takes no '{name}'; {TORCHREC_ARGUMENTS[name]}")
        if name not in SearchArguments.__annotations__:
            known = [*OWN_ARGUMENTS, *SearchArguments.__annotations__]
            raise UsageError(f"RecSmithPlanner takes no '{name}'{did_you_mean(name, known)}")


def find_cluster(cluster: Cluster | Topology | Source | None, reserve_bytes: int | str | None) -> Cluster:
    """The cluster that is planned for, with the reserve.

    Raises:
        UsageError: no cluster, an unknown name, or a reserve that leaves no memory.
    """
    if cluster is None:
        raise UsageError("RecSmithPlanner needs a cluster first: a name such as 'h100:8x12', or a TorchRec Topology")
    cluster = read_cluster(cluster) if isinstance(cluster, Topology) else load_cluster(cluster)
    reserve = parse_size(reserve_bytes) if isinstance(reserve_bytes, str) else reserve_bytes
    return cluster.with_memory(reserve_bytes=reserve)
