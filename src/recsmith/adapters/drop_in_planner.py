"""RecSmith in the place of TorchRec's planner: `RecSmithPlanner(...).collective_plan(model, sharders, pg)`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import torch.distributed as dist
from torch import nn
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ModuleSharder, ShardingPlan, ShardingPlanner

from recsmith.adapters.convert import to_sharding_plan
from recsmith.adapters.topology import read_cluster
from recsmith.adapters.workload import read_workload
from recsmith.clusters import Cluster, load_cluster
from recsmith.errors import Infeasible, NoPlanFound, PlanMismatch, RecSmithError, UsageError
from recsmith.planning import Result, SearchOptions, SearchWords, plan_with
from recsmith.plans import Plan, plan_from_raw, plan_to_raw
from recsmith.problems import Constraints, TableRule

TORCHREC_BATCH_SIZE = 512  # samples of a rank and step: BATCH_SIZE of torchrec/distributed/planner/constants.py


class RecSmithPlanner(ShardingPlanner):
    """Plans a model's embedding tables near-optimally, in TorchRec's own terms.

    cluster: a RecSmith cluster, its name ('h100:8x12') or a TorchRec Topology. batch_size: local. constraints:
    TorchRec's ParameterConstraints by table name: how much is looked up, and which types, kernels, least widths and
    cache load factors a table may have. limits: RecSmith's own constraints. planner and search (cost_model, seed,
    iterations, time_limit_s and space) are those of `recsmith.plan`. After planning, `result` holds cost, bound and
    gap.
    """

    def __init__(
        self,
        cluster: Cluster | Topology | str,
        *,
        batch_size: int = TORCHREC_BATCH_SIZE,
        constraints: Mapping[str, ParameterConstraints] | None = None,
        optimizer: str | None = None,
        limits: Constraints | None = None,
        planner: str = "auto",
        **search: Unpack[SearchWords],
    ) -> None:
        if isinstance(cluster, Topology):
            cluster = read_cluster(cluster)
        self.cluster = load_cluster(cluster) if isinstance(cluster, str) else cluster
        self.batch_size = batch_size
        self.constraints = constraints
        self.optimizer = optimizer
        self.limits = limits or Constraints()
        self.planner, self.options = planner, SearchOptions(**search)
        self.result: Result | None = None

    def plan(self, module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]] | None = None) -> ShardingPlan:  # type: ignore[override]
        """The sharding plan of a model, planned in this process."""
        self.result = self.make(module, sharders)
        return to_sharding_plan(self.result.plan, module, sharders=sharders)

    def make(self, module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]] | None = None) -> Result:
        """RecSmith's own result for a model: the plan with cost, bound and gap."""
        workload = read_workload(
            module,
            sharders or get_default_sharders(),
            batch_size=self.batch_size,
            constraints=self.constraints,
            optimizer=self.optimizer,
        )
        rules = (*self.limits.rules, *_rules(self.constraints or {}))
        limits = replace(self.limits, rules=rules)
        return plan_with(self.options, workload, self.cluster, planner=self.planner, constraints=limits)

    def collective_plan(  # type: ignore[override]
        self,
        module: nn.Module,
        sharders: Sequence[ModuleSharder[nn.Module]] | None = None,
        pg: dist.ProcessGroup | None = None,
    ) -> ShardingPlan:
        """The same plan on every rank: rank 0 plans, the others receive it, and all compare digests.

        Raises:
            UsageError: no process group, or its size is not the cluster's.
            Infeasible, NoPlanFound: on every rank, whatever rank 0 met.
            PlanMismatch: a rank's model differs from rank 0's.
        """
        group = pg or (dist.group.WORLD if dist.is_initialized() else None)
        if group is None:
            raise UsageError("collective_plan needs a process group; call torch.distributed.init_process_group() first")
        if dist.get_world_size(group) != self.cluster.world_size:
            raise UsageError(
                f"the process group has {dist.get_world_size(group)} ranks, the cluster {self.cluster.world_size}; "
                "give the planner the cluster that the job runs on"
            )
        plan = _plan_of_rank_0(self, module, sharders, group)
        return _agreed(plan, module, sharders, group)


def _rules(constraints: Mapping[str, ParameterConstraints]) -> list[TableRule]:
    """Types, kernels, widths and caches of TorchRec's constraints as RecSmith's rules."""
    return [
        TableRule(
            tables=name,
            sharding_types=tuple(limits.sharding_types) if limits.sharding_types else None,
            compute_kernels=tuple(limits.compute_kernels) if limits.compute_kernels else None,
            min_width=limits.min_partition,
            cache_factors=_cache_factors(limits),
        )
        for name, limits in constraints.items()
        if limits.sharding_types or limits.compute_kernels or limits.min_partition or _cache_factors(limits)
    ]


def _cache_factors(limits: ParameterConstraints) -> tuple[float, ...] | None:
    """The one load factor that the constraints give a cache, if they do."""
    factor = limits.cache_params.load_factor if limits.cache_params else None
    return None if factor is None else (factor,)


def _plan_of_rank_0(
    planner: RecSmithPlanner,
    module: nn.Module,
    sharders: Sequence[ModuleSharder[nn.Module]] | None,
    group: dist.ProcessGroup,
) -> Plan:
    """Rank 0's plan on every rank, as JSON text; an error of rank 0 is raised everywhere, so that no rank waits."""
    said: list[str | None] = [None]
    if dist.get_rank(group) == 0:
        try:
            planner.result = planner.make(module, sharders)
            said = [json.dumps({"plan": plan_to_raw(planner.result.plan)})]
        except RecSmithError as error:
            said = [json.dumps({"error": type(error).__name__, "message": str(error)})]
    dist.broadcast_object_list(said, group=group, group_src=0)
    heard = json.loads(said[0] or "{}")
    if "error" in heard:
        kinds = {"Infeasible": Infeasible, "NoPlanFound": NoPlanFound, "PlanMismatch": PlanMismatch}
        raise kinds.get(heard["error"], UsageError)(heard["message"])
    return plan_from_raw(heard["plan"], "rank 0's plan")


def _agreed(
    plan: Plan, module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]] | None, group: dist.ProcessGroup
) -> ShardingPlan:
    """This rank's sharding plan, once every rank has made one of the same digest."""
    problem: str | None = None
    made: ShardingPlan | None = None
    try:
        made = to_sharding_plan(plan, module, sharders=sharders)
    except RecSmithError as error:
        problem = str(error)
    answers: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(answers, (plan.digest, problem), group=group)
    for rank, (digest, trouble) in enumerate(answers):
        if trouble is not None or digest != plan.digest:
            raise PlanMismatch(f"rank {rank} cannot use the plan of rank 0: {trouble or 'its digest differs'}")
    assert made is not None
    return made
