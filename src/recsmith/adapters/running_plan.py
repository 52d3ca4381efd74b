"""The ShardingPlan of a running job as a Plan, with cost, bound and gap."""

from collections.abc import Mapping, Sequence
from enum import Enum

from torch import nn
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ModuleSharder, ShardingPlan

from recsmith.adapters.arguments import find_cluster
from recsmith.adapters.convert import from_sharding_plan
from recsmith.adapters.workload import read_workload
from recsmith.clusters import Cluster
from recsmith.costs import CostModel
from recsmith.files import Source
from recsmith.planning.simulate import price
from recsmith.plans import Plan


def import_plan(
    sharding_plan: ShardingPlan,
    module: nn.Module,
    cluster: Cluster | Topology | Source,
    *,
    batch_size: int,
    sharders: Sequence[ModuleSharder[nn.Module]] | None = None,
    constraints: Mapping[str, ParameterConstraints] | None = None,
    optimizer: str | Enum | None = None,
    cost_model: str | CostModel | None = None,
) -> Plan:
    """A Plan of a TorchRec ShardingPlan, whichever planner made it: save it, explain it, diff it, plan from it.

    sharding_plan: such as `model.plan` of a DistributedModelParallel. module: the model before it was sharded, which
    names tables and features; it may be on the meta device. The other words are those of RecSmithPlanner.

    Raises:
        UsageError: the model or an argument cannot be read.
        PlanMismatch: the plan misses a table of the model, or holds what cannot be run on the cluster.
    """
    machines = find_cluster(cluster, None)
    workload = read_workload(
        module,
        sharders or get_default_sharders(),
        batch_size=batch_size,
        constraints=constraints,
        optimizer=optimizer,
    )
    return price(workload, machines, from_sharding_plan(sharding_plan, workload, machines), cost_model=cost_model)
