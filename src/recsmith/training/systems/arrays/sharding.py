"""The models of an array on this rank, sharded by one plan, each with the optimizers of its own run.

Other code sees each member as a job of its own, whose parameters have the names that they have in the member's own run.

K number of members
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torchrec import EmbeddingCollection
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizer
from torchrec.optim.optimizers import in_backward_optimizer_filter

from recsmith.adapters.convert import to_sharding_plan
from recsmith.errors import PlanMismatch
from recsmith.jobs.sharded_model import NamedShard
from recsmith.planning.simulate import price
from recsmith.plans import Placement, Plan
from recsmith.training.batches import TrainingBatch
from recsmith.training.collectives import collectives_of, sharders_of
from recsmith.training.job.models import Unsharded
from recsmith.training.job.sharded import ShardedJob, table_of, with_collections
from recsmith.training.optimizers.building import combined_optimizer, fuse
from recsmith.training.optimizers.settings import RunOptimizers
from recsmith.training.run.refusals import check_together, placed_parts
from recsmith.training.stores.device import DeviceRows
from recsmith.training.stores.kernels import kernels_of, own_kernels
from recsmith.training.stores.protocol import WholeTensor
from recsmith.training.systems.arrays.kernel import MembersTables, kernel
from recsmith.training.systems.arrays.model import Member, UnshardedArray
from recsmith.training.systems.arrays.settings import WHOLE_ROWS
from recsmith.training.tables.plain import plain
from recsmith.workloads import Table
from recsmith.workloads.optimizers import CPU_OPTIMIZERS


class MemberModel(nn.Module):
    """One model of an array; a forward pass computes all members, because they share one lookup."""

    def __init__(self, model: DistributedModelParallel, number: int) -> None:
        super().__init__()
        self.model, self.number = model, number

    def forward(self, batch: TrainingBatch) -> Any:
        """(loss, outcome) of this member."""
        _, (losses, logits, labels, place) = self.model(batch)
        loss = losses[self.number]
        return loss, (loss, logits[self.number], labels, place)


class MemberRows(DeviceRows):
    """The row store of one member: its parameters, and the state of its optimizers."""

    def __init__(self, model: nn.Module, optimizer: CombinedOptimizer, member: Member) -> None:
        super().__init__(model, optimizer)
        self.member = member

    def shards(self) -> Iterator[NamedShard]:
        """Yield the member's shards, under the names of its own run."""
        for shard in super().shards():
            name = self.member.alone(shard.parameter)
            if name is not None:
                yield shard._replace(parameter=name)

    def whole(self) -> dict[str, WholeTensor]:
        """Type and shape of each of the member's parameters."""
        return self._mine(super().whole())

    def state_dict(self) -> dict[str, Any]:
        """The state, in the form of a checkpoint of the member's own run."""
        state = super().state_dict()
        return {**state, "model": self._mine(state["model"])}

    def _mine(self, named: dict[str, Any]) -> dict[str, Any]:
        found = {self.member.alone(name): value for name, value in named.items()}
        return {name: value for name, value in found.items() if name is not None}


ONE_CALL = ("adam", "adamw", "sgd", "adagrad")  # optimizers of torch.optim that can update a group in one kernel


def shard_array(array: UnshardedArray, plan: Plan, device: torch.device) -> tuple[ShardedJob, list[ShardedJob]]:
    """The job of all members, and each member as a job of its own; tables are not initialized or loaded yet."""
    task, run = array.parts.task, array.parts.run
    plan, collectives = with_collections(plan, run, task), collectives_of(run.comms)
    check_together(placed_parts(run, plan, device.type))
    copied = {placement.table for placement in plan.placements if placement.sharding_type == "data_parallel"}
    optimizers = [member.run.optimizers.sparse for member in array.members]
    as_one = looked_up_as_one(plan, run.optimizers.sparse.name, device)
    for member, optimizer in zip(array.members, optimizers, strict=True):
        own = [(None, each) for name, each in task.named_parameters() if _table_in(member, name, without=copied)]
        fuse(own, optimizers[0] if as_one else optimizer)
    sharders = sharders_of(collectives)
    kernels = partial(kernel, optimizers=optimizers) if as_one else kernels_of(run.rows)
    with warnings.catch_warnings(), own_kernels(kernels):
        warnings.simplefilter("ignore")
        model = DistributedModelParallel(
            task, device=device, sharders=sharders, plan=to_sharding_plan(plan, task, sharders=sharders)
        )
    made = [_optimizer_of(member, model, copied) for member in array.members]
    together = CombinedOptimizer([(member.name, each) for member, each in zip(array.members, made, strict=True)])
    jobs = [
        ShardedJob(
            MemberModel(model, member.number), optimizer, MemberRows(model, optimizer, member),  # type: ignore[arg-type]
            dict(member.initial), device,
        )
        for member, optimizer in zip(array.members, made, strict=True)
    ]  # fmt: skip
    return ShardedJob(model, together, DeviceRows(model, together), {}, device), jobs


def _table_in(member: Member, parameter: str, without: set[str]) -> bool:
    """Whether a parameter belongs to a table of the member that is not among `without`."""
    return parameter in member.names() and table_of(parameter) not in without


def _optimizer_of(member: Member, model: DistributedModelParallel, copied: set[str]) -> CombinedOptimizer:
    """The optimizer of one member, with parameters under the names of its own run."""
    rest = {
        alone: (name, each)
        for name, each in in_backward_optimizer_filter(model.named_parameters())
        if (alone := member.alone(name)) is not None
    }
    tables = {alone: each for alone, (name, each) in rest.items() if table_of(name) in copied}
    dense = {alone: each for alone, (_, each) in rest.items() if alone not in tables}
    return combined_optimizer(
        MemberTables(model.fused_optimizer, member), tables, dense, in_one_call(member.run.optimizers)
    )


def in_one_call(optimizers: RunOptimizers) -> RunOptimizers:
    """The settings with the fused update of torch.optim for dense layers, if the optimizer has one."""
    dense, arguments = optimizers.dense, optimizers.dense.arguments or {}
    if dense.name.lower() not in ONE_CALL or {"fused", "foreach"} & arguments.keys():
        return optimizers
    return replace(optimizers, dense=replace(dense, arguments={**arguments, "fused": True}))


class MemberTables(KeyedOptimizer):
    """One member's part of the fused table optimizers of an array, with tables under the names of its own run."""

    def __init__(self, fused: KeyedOptimizer, member: Member) -> None:
        names = {each: alone for each in fused.params if (alone := member.alone(each)) is not None}
        self.fused = [each for each in leaves(fused) if names.keys() & _whole_names(fused, each)]
        params = {alone: fused.params[each] for each, alone in names.items()}
        mine = set(params.values())
        self.kernels = [each._emb_module for each in self.fused if isinstance(each._emb_module, MembersTables)]
        self.number = member.number
        groups = [{"params": list(params.values()), "lr": member.run.optimizers.sparse.learning_rate}]
        super().__init__(params, {key: value for key, value in fused.state.items() if key in mine}, groups)
        self.tables = {member.table(config.name): config.name for config in member.configs}

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameter of each table. A copy, as in TorchRec's fused optimizers: a schedule adds an entry to it."""
        return dict(self._params)

    @params.setter
    def params(self, params: Mapping[str, Any]) -> None:  # type: ignore[override]
        self._params = params

    @property
    def state(self) -> Mapping[Any, Any]:
        """The optimizer state of each table; also a copy."""
        return dict(self._state)

    @state.setter
    def state(self, state: Mapping[Any, Any]) -> None:  # type: ignore[override]
        self._state = state

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Pass learning rates to the kernels; gradients of tables are consumed in the backward pass."""
        self.step()

    def step(self, closure: Any = None) -> None:
        """Pass learning rates to the kernels; tables are updated in the backward pass."""
        rate = next(iter(self.param_groups))["lr"]
        for tables in self.kernels:
            tables.rates[self.number] = rate
        for each in self.fused if not self.kernels else ():  # members whose settings are alike
            each.param_groups[0]["lr"] = rate
            each.step(closure)

    def set_optimizer_step(self, step: int) -> None:
        """Pass the number of steps to the kernels."""
        for each in self.fused:
            if hasattr(each, "set_optimizer_step"):
                each.set_optimizer_step(step)  # type: ignore[attr-defined]

    def state_dict(self) -> dict[str, Any]:
        """The optimizer state, under the table names of the member's own run."""
        made = super().state_dict()
        return {**made, "state": {name: self._renamed(each) for name, each in made["state"].items()}}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load state that has the table names of the member's own run."""
        back = {alone: name for name, alone in self.tables.items()}
        states = {
            name: {_put(key, back): value for key, value in each.items()} for name, each in state_dict["state"].items()
        }
        super().load_state_dict({**state_dict, "state": states})

    def _renamed(self, state: Mapping[str, Any]) -> dict[str, Any]:
        return {_put(key, self.tables): value for key, value in state.items()}


def _put(key: str, names: Mapping[str, str]) -> str:
    """A key of a table's state, such as t0__slow.momentum1, with its table renamed."""
    table, dot, rest = key.partition(".")
    return f"{names.get(table, table)}{dot}{rest}"


def leaves(optimizer: Any) -> list[Any]:
    """The optimizers that a combined optimizer consists of, at any depth; an optimizer alone consists of itself."""
    if isinstance(optimizer, CombinedOptimizer):
        return [leaf for _, each in optimizer.optimizers for leaf in leaves(each)]
    return [optimizer]


def _whole_names(fused: KeyedOptimizer, leaf: Any) -> set[str]:
    mine = {id(each) for each in leaf.params.values()}
    return {name for name, each in fused.params.items() if id(each) in mine}


def member_plan(plan: Plan, member: Member) -> Plan:
    """The part of an array's plan that places one member's tables, under the names of its own run."""
    names, paths = {member.table(config.name): config.name for config in member.configs}, member.paths()
    tables = tuple(
        replace(table, name=names[table.name], collection=paths[table.name]) for table in plan.workload.tables
        if table.name in names
    )  # fmt: skip
    placements = [replace(each, table=names[each.table]) for each in plan.placements if each.table in names]
    workload = replace(plan.workload, tables=tables)
    made = price(workload, plan.cluster, placements, cost_model=plan.cost_model, bound=False)
    return replace(made, planner=plan.planner)


def with_members(plan: Plan, members: Sequence[Member]) -> Plan:
    """The plan of an array that places all members as a plan places one member, or the wide tables that hold all.

    Raises:
        PlanMismatch: the plan has other tables than a member.
    """
    dims = {config.name: config.embedding_dim for config in members[0].configs}
    named = {table.name for table in plan.workload.tables}
    if dims.keys() != named:
        odd = min(dims.keys() ^ named)
        raise PlanMismatch(f"table '{odd}' is not both in the plan and in the array's members; plan for one member")
    tables, placements = list[Table](), list[Placement]()
    for member in members:
        tables += [replace(each, name=member.table(each.name), embedding_dim=dims[each.name])
                   for each in plan.workload.tables]  # fmt: skip
        placements += [replace(each, table=member.table(each.table)) for each in plan.placements]
    workload = replace(plan.workload, tables=tuple(tables))
    made = price(workload, plan.cluster, placements, cost_model=plan.cost_model, bound=False)
    return replace(made, planner=plan.planner)


def wide_tables(array: UnshardedArray) -> Unsharded:
    """The tables that a plan is made for: those of one member, each as wide as those of all members together."""
    members = array.members
    bags, sequences = (
        [replace(each, embedding_dim=each.embedding_dim * len(members)) for each in members[0].configs_of(pooled=kind)]
        for kind in (True, False)
    )
    task: Any = nn.Module()
    if bags:
        tables: Any = array.parts.task.tables
        task.tables = plain(bags, torch.device("meta"), tables.is_weighted())
    if sequences:
        task.sequences = EmbeddingCollection(tables=sequences, device=torch.device("meta"))
    return replace(array.parts, task=task)


def looked_up_as_one(plan: Plan, optimizer: str, device: torch.device) -> bool:
    """Whether the tables of all members are looked up by one kernel (kernel.py)."""
    widths = {table.embedding_dim for table in plan.workload.tables}
    whole = all(placement.sharding_type in WHOLE_ROWS for placement in plan.placements)
    narrow = any(table.data_type != "fp32" or not table.pooled for table in plan.workload.tables)
    return device.type == "cpu" and len(widths) == 1 and whole and not narrow and optimizer in CPU_OPTIMIZERS
