"""Modules of a 2D job with their own sharding groups: their configurations, and the memory that plans leave each other.

DMPCollection takes a plan for each type of module (`submodule_configs`), whose groups may differ in size from those of
the rest of the model. Each is planned separately, in the memory that earlier plans leave on the shared devices.
Source: torchrec 1.8, DMPCollection of distributed/model_parallel.py.
"""

from collections.abc import Sequence
from dataclasses import replace

from torch import nn
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import DMPCollectionConfig, ModuleSharder, ShardingPlan, ShardingStrategy

from recsmith.adapters.topology import ON_HOSTS
from recsmith.clusters import Cluster
from recsmith.errors import UsageError
from recsmith.plans import Plan
from recsmith.problems import Space


def sharders_for(
    module: type[nn.Module] | None, sharders: Sequence[ModuleSharder[nn.Module]] | None
) -> list[ModuleSharder[nn.Module]]:
    """The sharders of one type of module, or all if `module` is None; UsageError if that type has no sharder."""
    known = list(sharders or get_default_sharders())
    if module is None:
        return known
    found = [each for each in known if each.module_type is module]
    if not found:
        names = ", ".join(sorted(each.module_type.__name__ for each in known))
        raise UsageError(f"no sharder shards {module.__name__}; give one, or plan one of {names}")
    return found


def left_beside(cluster: Cluster, plans: Sequence[Plan]) -> Cluster:
    """The cluster with the memory that other plans for the same devices leave.

    A rank of the group stands for several ranks of the job, and gets the memory of the fullest of them.

    Raises:
        UsageError: a plan is for another number of devices, or plans leave a device no memory.
    """
    left = list(cluster.hbm_per_rank)
    for plan in plans:
        if plan.cluster.job_world_size != cluster.job_world_size:
            raise UsageError(
                f"the plan beside is for {plan.cluster.job_world_size} devices, and this one for "
                f"{cluster.job_world_size}; all modules of a job share its devices"
            )
        taken = [device.hbm_bytes for device in plan.cost.per_device]
        most = [0] * cluster.world_size
        for rank in range(cluster.job_world_size):
            mine = cluster.rank_in_group(rank)
            most[mine] = max(most[mine], taken[plan.cluster.rank_in_group(rank)])
        left = [have - size for have, size in zip(left, most, strict=True)]
    return replace(cluster, hbm_bytes=tuple(left)) if plans else cluster


def space_in_group(space: Space | None, cluster: Cluster) -> Space:
    """The space of a module with its own groups; types that split by hosts are removed if its group has several.

    TorchRec counts such a group as one host.
    """
    made = space or Space()
    if cluster.hosts == 1:
        return made
    return replace(made, types=tuple(kind for kind in made.types if kind not in ON_HOSTS))


def module_config(module: type[nn.Module], plan: ShardingPlan, cluster: Cluster) -> DMPCollectionConfig:
    """The entry of DMPCollection's `submodule_configs` for a type of module.

    Raises:
        UsageError: a table is split by the hosts of a group that has several, although TorchRec counts them as one.
    """
    kinds = {name: each.sharding_type for part in plan.plan.values() for name, each in dict(part).items()}  # type: ignore[arg-type]
    odd = next((name for name, kind in kinds.items() if kind in ON_HOSTS and cluster.hosts > 1), None)
    if odd is not None:
        raise UsageError(
            f"table '{odd}' is {kinds[odd]} on {cluster.hosts} hosts, and TorchRec counts a module's own group as one; "
            "plan these modules after the others (beside=), or without such types (space=)"
        )
    replication = cluster.replication
    return DMPCollectionConfig(
        module=module, plan=plan, sharding_group_size=cluster.world_size, node_group_size=cluster.world_size,
        use_inter_host_allreduce=replication is not None and replication.use_inter_host_allreduce,
        sharding_strategy=ShardingStrategy.FULLY_SHARDED if cluster.fully_sharded else ShardingStrategy.DEFAULT,
    )  # fmt: skip
