"""The plan that TorchRec's own planner makes for a run, as it ships: what an `auto` plan is compared with."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import nn
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints
from torchrec.distributed.planner.types import PlannerError
from torchrec.distributed.types import ModuleSharder

from recsmith.adapters.convert import from_sharding_plan
from recsmith.adapters.topology import to_topology
from recsmith.adapters.torchrec_planner import quiet
from recsmith.adapters.workload import read_workload
from recsmith.clusters import Cluster
from recsmith.errors import NoPlanFound
from recsmith.planning.simulate import price
from recsmith.plans import Plan

TORCHREC = "torchrec"


def plan_as_torchrec(
    model: nn.Module,
    sharders: Sequence[ModuleSharder[nn.Module]],
    cluster: Cluster,
    lookups: Mapping[str, ParameterConstraints],
    *,
    batch_size: int,
    optimizer: str,
) -> Plan:
    """TorchRec's plan for a model, priced by RecSmith. lookups: ids of a bag of each feature, by table.

    Raises:
        NoPlanFound: TorchRec's planner found none.
    """
    workload = read_workload(model, sharders, batch_size=batch_size, constraints=lookups, optimizer=optimizer)
    try:
        with quiet():
            planner = EmbeddingShardingPlanner(
                topology=to_topology(cluster), batch_size=batch_size, constraints=dict(lookups), stats=[], debug=False
            )
            found = planner.plan(model, list(sharders))
    except PlannerError as error:
        raise NoPlanFound(f"TorchRec's planner: {str(error).splitlines()[0][:200]}; use plan: auto") from None
    return replace(price(workload, cluster, from_sharding_plan(found, workload, cluster)), planner=TORCHREC)
