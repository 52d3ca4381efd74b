"""A drop-in replacement for TorchRec's planner: `RecSmithPlanner(...).collective_plan(model, sharders, pg)`."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Unpack

import torch.distributed as dist
from torch import nn
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.types import StorageReservation
from torchrec.distributed.types import DMPCollectionConfig, ModuleSharder, ShardingPlan, ShardingPlanner

from recsmith.adapters.constraints import check_constraints, rules_of
from recsmith.adapters.convert import to_sharding_plan
from recsmith.adapters.dense_memory import ASSUMED_OPTIMIZER
from recsmith.adapters.embedding_collections import collections
from recsmith.adapters.managed_collisions import remapping_bytes
from recsmith.adapters.module_groups import left_beside, module_config, sharders_for, space_in_group
from recsmith.adapters.rank_0 import from_rank_0
from recsmith.adapters.reserve import Reserve, ReserveRequest
from recsmith.adapters.sharders import check_sharders, sharder_rules
from recsmith.adapters.topology import CollectionArguments, check_hosts, collection_arguments, find_cluster
from recsmith.adapters.virtual_tables import virtual_bytes, virtual_tables, virtual_words
from recsmith.adapters.workload import read_workload
from recsmith.clusters import Cluster, sharding_group
from recsmith.errors import PlanMismatch, RecSmithError, UsageError
from recsmith.files import Source, did_you_mean
from recsmith.planners import Planner
from recsmith.planning import Result, SearchArguments, SearchOptions, plan_with
from recsmith.plans import Plan, inexact_optimizers, inexact_tables, plan_from_raw, plan_to_raw, wide_tables
from recsmith.problems import Constraints, Space, load_constraints
from recsmith.sharding import NOTED_ON_CUDA
from recsmith.workloads import AccessProfile
from recsmith.workloads.optimizers import OptimizerName
from recsmith.workloads.workload import IndexDedup

TORCHREC_BATCH_SIZE = 512  # samples per rank and step: BATCH_SIZE of torchrec/distributed/planner/constants.py
OWN_ARGUMENTS = (
    "cluster", "batch_size", "constraints", "optimizer", "reserve_bytes", "storage_reservation", "dense_optimizer",
    "fully_sharded", "only", "beside", "limits", "planner", "sharding_group_size", "steps_per_sync",
    "use_inter_host_allreduce", "index_dedup", "access", "table_optimizers",
)  # fmt: skip
TORCHREC_ARGUMENTS = {  # arguments of TorchRec's EmbeddingShardingPlanner, and what RecSmith offers instead
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


def check_search_arguments(search: Mapping[str, Any]) -> None:
    """Raise UsageError for an argument that is not one of SearchArguments, and name what to use instead."""
    for name in search:
        if name in TORCHREC_ARGUMENTS:
            raise UsageError(f"RecSmithPlanner takes no '{name}'; {TORCHREC_ARGUMENTS[name]}")
        if name not in SearchArguments.__annotations__:
            known = [*OWN_ARGUMENTS, *SearchArguments.__annotations__]
            raise UsageError(f"RecSmithPlanner takes no '{name}'{did_you_mean(name, known)}")


class RecSmithPlanner(ShardingPlanner):
    """Plans a model's embedding tables near-optimally, in TorchRec's own terms.

    After planning, `result` holds the plan with its cost, bound and gap, and `reserve` the memory that was kept free.

    Args:
        cluster: a RecSmith cluster, its name ('h100:8x12') or a TorchRec Topology; for a 2D job, of the whole job.
        batch_size: samples per rank and step.
        constraints: TorchRec's ParameterConstraints by table name. Each field is carried into the sharding plan,
            counted in planning, or refused (`FIELDS` of adapters/constraints.py), and so is each setting of a sharder
            (`SETTINGS` of adapters/sharders.py).
        optimizer: RecSmith's or FBGEMM's name, or an EmbOptimType; replaces the optimizer that is attached to the
            parameters or named by fused_params.
        reserve_bytes: memory of each device that is kept free of tables: bytes, or a size such as '10GiB'; 0 reserves
            nothing.
        storage_reservation: one of TorchRec's reservations, in place of reserve_bytes. With neither, and no reserve in
            the cluster, the memory for the rest of the model is estimated, and logged on rank 0.
        dense_optimizer: the optimizer for which it is estimated (`DENSE_OPTIMIZERS` of adapters/dense_memory.py).
        limits: RecSmith's own constraints.
        planner, search: as in `recsmith.plan` (cost_model, seed, iterations, time_limit_s and space).
        index_dedup: whether equal ids of a rank are looked up once in sequence tables, in place of what the sharders
            say. 'auto' does so if it pays; `result.plan.workload.index_dedup` is then the use_index_dedup to give to
            EmbeddingCollectionSharder.
        access: how unevenly rows are read, by table name.
        table_optimizers: optimizers of the tables whose optimizer differs from the rest, by table name.
        sharding_group_size: devices of a sharding group of a 2D job (DMPCollection).
        steps_per_sync: steps between two calls of `sync()` in a 2D job.
        use_inter_host_allreduce: TorchRec's layout of the groups of a 2D job.
        fully_sharded: whether the replicas of a 2D job share one copy of the weights while dense layers run
            (ShardingStrategy).
        only: plan only modules of this type, whose groups may have their own size (`submodule_config`).
        beside: planners that have already planned other modules of the same job; their memory is not used.

    Raises:
        UsageError: an argument is not known, the reserve is given twice or leaves no memory, or the groups do not
            divide the job.
    """

    def __init__(
        self,
        cluster: Cluster | Topology | Source | None = None,
        *,
        batch_size: int = TORCHREC_BATCH_SIZE,
        constraints: Mapping[str, ParameterConstraints] | None = None,
        optimizer: str | Enum | None = None,
        reserve_bytes: int | str | None = None,
        storage_reservation: StorageReservation | None = None,
        dense_optimizer: str = ASSUMED_OPTIMIZER,
        limits: Constraints | Source | None = None,
        planner: str | Planner = "auto",
        sharding_group_size: int | None = None,
        steps_per_sync: int = 1,
        use_inter_host_allreduce: bool = False,
        fully_sharded: bool = False,
        only: type[nn.Module] | None = None,
        beside: Sequence["RecSmithPlanner"] = (),
        index_dedup: IndexDedup | None = None,
        access: Mapping[str, AccessProfile] | None = None,
        table_optimizers: Mapping[str, OptimizerName] | None = None,
        **search: Unpack[SearchArguments],
    ) -> None:
        check_search_arguments(search)
        job = find_cluster(cluster, reserve_bytes)
        self.cluster = sharding_group(
            job, job.world_size if sharding_group_size is None else sharding_group_size,
            steps_per_sync=steps_per_sync, use_inter_host_allreduce=use_inter_host_allreduce,
            fully_sharded=fully_sharded,
        )  # fmt: skip
        self.reserving = ReserveRequest(reserve_bytes is not None, storage_reservation, dense_optimizer)
        self.batch_size = batch_size
        self.constraints = constraints
        self.optimizer = optimizer
        self.limits = Constraints() if limits is None else load_constraints(limits)
        self.planner, self.options = planner, SearchOptions(**search)
        self.index_dedup, self.access = index_dedup, access or {}
        self.only, self.beside = only, tuple(beside)
        if self.beside:  # then DMPCollection gives the modules of this planner their own groups
            self.options = replace(self.options, space=space_in_group(self.options.space, self.cluster))
        self.table_optimizers = table_optimizers or {}
        self.result: Result | None = None
        self.reserve: Reserve | None = None

    def plan(self, module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]] | None = None) -> ShardingPlan:  # type: ignore[override]
        """The sharding plan of a model, made in this process without communication."""
        self.result = self.make(module, sharders)
        if not dist.is_initialized() or dist.get_rank() == 0:
            if self.reserve is not None:
                self.reserve.log()
            _warn(self.result.plan)
        mine = sharders_for(self.only, sharders)
        return to_sharding_plan(self.result.plan, module, sharders=mine, constraints=self.constraints)

    def make(self, module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]] | None = None) -> Result:
        """RecSmith's own result for a model: the plan with its cost, bound and gap."""
        everything = collections(module, sharders_for(None, sharders))  # all embeddings, whichever planner plans them
        sharders, constraints = sharders_for(self.only, sharders), self.constraints or {}
        found = collections(module, sharders)
        check_constraints(constraints, found, self.cluster)
        check_sharders(found)
        workload = read_workload(
            module, sharders, batch_size=self.batch_size, constraints=constraints, optimizer=self.optimizer,
            table_optimizers=self.table_optimizers,
        )  # fmt: skip
        tables = tuple(
            replace(table, access=self.access[table.name]) if table.name in self.access else table
            for table in workload.tables
        )
        workload = replace(workload, tables=tables, index_dedup=self.index_dedup or workload.index_dedup)
        rules = (
            *rules_of(constraints, found),
            *sharder_rules(found, constraints, self.cluster, self.options.space or Space()),
        )
        limits = replace(self.limits, rules=(*self.limits.rules, *rules))
        reserve = self.reserving.of(self.cluster, module, everything, workload, sharders, constraints)
        world, virtual = self.cluster.world_size, virtual_tables(found, constraints, self.cluster)
        self.reserve = reserve.with_remapping(
            remapping_bytes(found, workload, world, self.cluster.device.kind if limits.memory == "real" else None)
        )
        if virtual:
            size = sum(virtual_bytes(table, self.batch_size, world) for table in virtual)
            self.reserve = self.reserve.with_more(size, virtual_words(virtual, size))
        there = left_beside(self.reserve.cluster, [_planned(each) for each in self.beside])
        with self.reserve.explained():
            return plan_with(self.options, workload, there, planner=self.planner, constraints=limits)

    def collective_plan(  # type: ignore[override]
        self,
        module: nn.Module,
        sharders: Sequence[ModuleSharder[nn.Module]] | None = None,
        pg: dist.ProcessGroup | None = None,
    ) -> ShardingPlan:
        """The same sharding plan on every rank: rank 0 plans and sends its plan to all ranks, which compare digests.

        pg: the process group of all ranks of the job. This holds for a 2D job, too: its plan is for one sharding group,
        and all groups receive it.

        Raises:
            UsageError: no process group, its size is not the cluster's, or the plan does not run on the job's hosts.
            Infeasible, NoPlanFound: rank 0 raised it; every rank raises the same.
            PlanMismatch: a rank's model differs from rank 0's, or its own constraints are refused.
        """
        group = pg or (dist.group.WORLD if dist.is_initialized() else None)
        if group is None:
            raise UsageError("collective_plan needs a process group; call torch.distributed.init_process_group() first")
        if dist.get_world_size(group) != self.cluster.job_world_size:
            raise UsageError(
                f"the process group has {dist.get_world_size(group)} ranks, the cluster {self.cluster.job_world_size}; "
                "give the planner the cluster that the job runs on, and here the group of all its ranks"
            )
        plan = _plan_of_rank_0(self, module, sharders, group)
        made = _agreed(plan, module, sharders_for(self.only, sharders), group, self.constraints)
        if dist.get_rank(group) == 0:  # only now: if warnings are errors, the other ranks must not wait for this one
            _warn(plan)
            if problem := check_hosts(plan):
                warnings.warn(f"{problem}; predicted seconds are those of the cluster", stacklevel=2)
        return made

    def dmp_collection_arguments(self) -> CollectionArguments:
        """The keyword arguments of DMPCollection that fit the plans; UsageError if the job has a single group."""
        return collection_arguments(self.cluster)

    def submodule_config(self, plan: ShardingPlan) -> DMPCollectionConfig:
        """The entry of DMPCollection's `submodule_configs` for the modules that this planner plans (`only`).

        Raises:
            UsageError: the planner plans all modules, whose groups DMPCollection's own arguments define; or a table is
                split by hosts, although TorchRec counts such a group as one host.
        """
        if self.only is None:
            raise UsageError(
                "this planner plans all modules; give it only=EmbeddingCollection, say, for modules with groups of "
                "their own"
            )
        return module_config(self.only, plan, self.cluster)


def _planned(planner: RecSmithPlanner) -> Plan:
    if planner.result is None:
        raise UsageError("a planner of beside= has planned nothing yet; call its plan() or collective_plan() first")
    return planner.result.plan


def _warn(plan: Plan) -> None:
    """Warn of tables that train differently than unsharded, and of pieces too wide for some CUDA kernels."""
    if tables := inexact_tables(plan):
        many = f"{len(tables)} tables are" if len(tables) > 1 else f"table {tables[0]} is"
        warnings.warn(
            f"{many} split by columns under {inexact_optimizers(plan)}: each shard keeps row statistics of its own, so "
            "training differs from the unsharded model; limits=Constraints(keep_exact=True) forbids such splits",
            stacklevel=3,  # where plan() or collective_plan() is called
        )
    if tables := wide_tables(plan):
        many = f"{len(tables)} tables have" if len(tables) > 1 else f"table {tables[0]} has"
        warnings.warn(
            f"{many} pieces of more than {NOTED_ON_CUDA:,} columns, for which releases of FBGEMM returned zeros "
            "(meta-pytorch/torchrec#3673); check yours, or limit widths by rules of limits=Constraints(rules=...)",
            stacklevel=3,  # where plan() or collective_plan() is called
        )


def _plan_of_rank_0(
    planner: RecSmithPlanner,
    module: nn.Module,
    sharders: Sequence[ModuleSharder[nn.Module]] | None,
    group: dist.ProcessGroup,
) -> Plan:
    """Rank 0's plan on every rank."""

    def make() -> dict[str, Any]:
        planner.result = planner.make(module, sharders)
        check_hosts(planner.result.plan)
        if planner.reserve is not None:
            planner.reserve.log()
        return plan_to_raw(planner.result.plan)

    return plan_from_raw(from_rank_0(make, group), "rank 0's plan")


def _agreed(
    plan: Plan,
    module: nn.Module,
    sharders: Sequence[ModuleSharder[nn.Module]] | None,
    group: dist.ProcessGroup,
    constraints: Mapping[str, ParameterConstraints] | None,
) -> ShardingPlan:
    """This rank's sharding plan, returned once every rank has made one from a plan of the same digest."""
    problem: str | None = None
    made: ShardingPlan | None = None
    try:
        made = to_sharding_plan(plan, module, sharders=sharders, constraints=constraints)
    except RecSmithError as error:
        problem = str(error)
    answers: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(answers, (plan.digest, problem), group=group)
    for rank, (digest, trouble) in enumerate(answers):
        if trouble is not None or digest != plan.digest:
            raise PlanMismatch(f"rank {rank} cannot use the plan of rank 0: {trouble or 'its digest differs'}")
    assert made is not None
    return made
