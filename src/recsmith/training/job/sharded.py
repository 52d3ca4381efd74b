"""A run's model on this rank: sharded by its plan, with initial weights and its optimizer."""

import hashlib
import os
import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from fbgemm_gpu.split_table_batched_embeddings_ops_training import SplitTableBatchedEmbeddingBagsCodegen
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchrec.distributed.model_parallel import (
    DataParallelWrapper,
    DefaultDataParallelWrapper,
    DistributedModelParallel,
)
from torchrec.distributed.planner import ParameterConstraints
from torchrec.distributed.types import CacheParams, ShardedModule, ShardingPlan
from torchrec.optim.keyed import CombinedOptimizer
from torchrec.optim.optimizers import in_backward_optimizer_filter

from recsmith.adapters.convert import to_sharding_plan
from recsmith.adapters.feature_order import keep_feature_order
from recsmith.adapters.workload import read_workload
from recsmith.clusters import Cluster
from recsmith.errors import CorruptFile, PlanMismatch
from recsmith.jobs.sharded_model import replicated
from recsmith.plans import Plan
from recsmith.sharding import UVM_CACHING
from recsmith.training.batches import TrainingBatch
from recsmith.training.collectives import collectives_of, sharders_of
from recsmith.training.job.replicas import ONE_GROUP, Replicas
from recsmith.training.optimizers.building import combined_optimizer, fuse
from recsmith.training.optimizers.dense import prepare_weights
from recsmith.training.optimizers.settings import DenseOptimizer
from recsmith.training.run import MADE_HERE, Run
from recsmith.training.run.refusals import check_together, layer_parts, placed_parts
from recsmith.training.seams.registry import first_of, systems, trains_layers
from recsmith.training.stores import store_of
from recsmith.training.stores.kernels import kernels_in, kernels_of, own_kernels
from recsmith.training.stores.protocol import HostParts, RowStore
from recsmith.training.tables.plain import initial_weights_of
from recsmith.training.tables.protocol import InitialWeights, table_of
from recsmith.workloads.optimizers import OPTIMIZERS
from recsmith.workloads.workload import AHEAD

UNUSED = DenseOptimizer(name="sgd")  # optimizer of dense layers that a step trains itself: it keeps no state
BLOCK = 4096  # rows drawn at once: a few megabytes at any width, and few blocks are used only in part


@dataclass(frozen=True)
class ShardedJob:
    """What a rank trains: the sharded model and its optimizer. replicas: copies of its shards in other groups."""

    model: DistributedModelParallel
    optimizer: CombinedOptimizer
    rows: RowStore
    initial: dict[str, InitialWeights]
    device: torch.device
    hook: Any = None  # state of the hook that sums dense gradients, if a collective has one
    replicas: Replicas = ONE_GROUP


def shard(run: Run, plan: Plan, task: nn.Module, device: torch.device) -> ShardedJob:
    """The model sharded by the plan, on this rank. Its table weights are then drawn by `draw_weights`, or loaded."""
    plan, collectives = with_collections(plan, run, task), collectives_of(run.comms)
    check_together(placed_parts(run, plan, device.type))
    initial = initial_weights_of(task)
    codecs = collectives.codecs()
    mine: HostParts = first_of(each.host_parts(task, plan, device, codecs) for each in systems()) or HostParts()
    copied = {placement.table for placement in plan.placements if placement.sharding_type == "data_parallel"}
    names = [name for name, _ in task.named_parameters() if table_of(name) in initial]
    parameters = dict(task.named_parameters())
    named = [(table_of(name), parameters[name]) for name in names]
    fuse([(table, each) for table, each in named if table not in copied], run.optimizers.sparse)
    dense = [parameter for name, parameter in parameters.items() if table_of(name) not in initial]
    check_together(layer_parts(run, [tuple(each.shape) for each in dense]))
    prepare_weights(dense, run.optimizers.dense)
    sharders = sharders_of(collectives, index_dedup=plan.workload.index_dedup == "on")
    worded, limits = first_of(each.worded_plan(run, plan, device.type) for each in systems()) or (
        plan, {} if device.type == "cpu" else _fetched_ahead(run, plan))  # fmt: skip
    facts = {name: fact for each in systems() for name, fact in each.kernel_facts(run, plan).items()}
    with warnings.catch_warnings(), own_kernels(kernels_of(run.rows, **facts)):
        warnings.simplefilter("ignore")
        placed = to_sharding_plan(worded, task, sharders=sharders, constraints=limits)
        wrapper = data_parallel(params_to_ignore=list(mine.local))
        model, replicas = _on_ranks(task, placed, plan.cluster, device, mine.sharders(sharders), wrapper)
    keep_feature_order(model)
    if any("beta1" in OPTIMIZERS[name].settings for name in run.optimizers.sparse.names):
        for tables in kernels_in(model, SplitTableBatchedEmbeddingBagsCodegen):
            tables.register_forward_pre_hook(uncounted)
    hook = collectives.attach(model)
    if hook is not None:
        _ddp_of(model).register_comm_hook(*hook)
    rest = dict(in_backward_optimizer_filter(model.named_parameters()))
    copies = {name: parameter for name, parameter in rest.items() if table_of(name) in copied}
    others = {name: parameter for name, parameter in rest.items() if name not in copies}
    across = mine.average(model.module)
    optimizers = replace(run.optimizers, dense=UNUSED) if trains_layers(run) else run.optimizers
    optimizer = combined_optimizer(model.fused_optimizer, copies, others, optimizers, across)
    rows = store_of(run.rows, model, optimizer)
    return ShardedJob(model, optimizer, rows, initial, device, None if hook is None else hook[0], replicas)


def _on_ranks(
    task: nn.Module, placed: ShardingPlan, cluster: Cluster, device: torch.device, sharders: list[Any],
    wrapper: DataParallelWrapper,
) -> tuple[DistributedModelParallel, Replicas]:  # fmt: skip
    """The model on its ranks by a TorchRec plan, in the cluster's sharding groups."""
    if cluster.replication is None:
        return DistributedModelParallel(
            task, device=device, plan=placed, sharders=sharders, data_parallel_wrapper=wrapper
        ), ONE_GROUP  # fmt: skip
    made = replicated(task, placed, cluster, device=device, sharders=sharders, data_parallel_wrapper=wrapper)
    return made, Replicas(made, cluster.replication.steps_per_sync)


def with_collections(plan: Plan, run: Run, model: nn.Module) -> Plan:
    """The plan with the paths of this model's modules, which a file may lack; PlanMismatch if it is of other tables."""
    sharders, asked = sharders_of(collectives_of(run.comms)), plan.workload
    found = read_workload(model, sharders, batch_size=asked.batch_size, optimizer=asked.optimizer)
    paths = {table.name: table.collection for table in found.tables}
    pooled = {table.name: table.pooled for table in found.tables}
    sizes = {table.name: (table.num_embeddings, table.embedding_dim) for table in found.tables}
    planned = {table.name for table in plan.workload.tables}
    named = "the plan" if run.plan in MADE_HERE else f"the plan '{run.plan}'"
    if planned != set(paths) and run.plan in MADE_HERE:  # the checkpoint's plan: a plan made now has these tables
        raise CorruptFile(
            f"the checkpoint in '{run.output}' is of another model: its tables are {', '.join(sorted(planned))}, and "
            f"those of the run {', '.join(sorted(paths))}; give another output folder (docs/daily.md says how to take "
            "along what fits), or train the model as it was"
        )
    if planned != set(paths):
        odd = min(planned ^ set(paths))
        where = f"{named} places and the model lacks" if odd in planned else f"the model has and {named} does not place"
        raise PlanMismatch(f"table '{odd}' is one that {where}; plan again for this run")
    for table in plan.workload.tables:
        rows, columns = sizes[table.name]
        if run.plan not in MADE_HERE and (table.num_embeddings, table.embedding_dim) != (rows, columns):
            raise PlanMismatch(
                f"table '{table.name}' has {rows} x {columns} weights in the model and {table.num_embeddings} x "
                f"{table.embedding_dim} in {named}; plan again for this run"
            )
        if table.pooled != pooled[table.name]:
            kinds = ("a sequence table", "a pooled one")
            raise PlanMismatch(
                f"table '{table.name}' is {kinds[table.pooled]} in the plan and {kinds[pooled[table.name]]} in the "
                "model; plan again for this run"
            )
    tables = tuple(replace(table, collection=paths[table.name]) for table in plan.workload.tables)
    return replace(plan, workload=replace(plan.workload, tables=tables))


def data_parallel(params_to_ignore: list[str]) -> DefaultDataParallelWrapper:
    """A DDP wrapper that sums over ranks in the same order in every step of every process.

    DDP rearranges its buckets after the first step, unless it looks for parameters without a gradient. More than two
    ranks sum a number in an order that depends on its place in a bucket, so a resumed job would not be bit-identical to
    one that was never interrupted.
    """
    kept = dist.get_world_size() > 2
    return DefaultDataParallelWrapper(
        params_to_ignore=params_to_ignore, static_graph=not kept, find_unused_parameters=kept
    )


def _fetched_ahead(run: Run, plan: Plan) -> dict[str, ParameterConstraints]:
    """TorchRec's constraints for cached tables on a GPU if rows of coming batches are fetched ahead."""
    if run.step_named[0] != AHEAD:
        return {}
    cached = [each.table for each in plan.placements if each.compute_kernel == UVM_CACHING.name]
    return {name: ParameterConstraints(cache_params=CacheParams(prefetch_pipeline=True)) for name in cached}


def numbers_across(task: nn.Module, plan: Plan) -> int:
    """Count of gradient values that are sent between ranks: of dense layers, and of tables copied to every rank."""
    placed = {placement.table: placement.sharding_type for placement in plan.placements}
    parameters = task.named_parameters()
    return sum(each.numel() for name, each in parameters if placed.get(table_of(name) or "") in (None, "data_parallel"))


def dense_shapes(task: nn.Module) -> list[tuple[int, ...]]:
    """Shapes of the parameters of dense layers."""
    initial = initial_weights_of(task)
    return [tuple(each.shape) for name, each in task.named_parameters() if table_of(name) not in initial]


def _ddp_of(model: DistributedModelParallel) -> Any:
    """The DistributedDataParallel in which TorchRec wraps everything but sharded tables."""
    return next(module for module in model.modules() if isinstance(module, DistributedDataParallel))


def draw_weights(rows: RowStore, initial: dict[str, InitialWeights], seed: int) -> None:
    """Draw initial weights by seed, table and row, so that they do not depend on the plan or the number of ranks."""
    with torch.no_grad():
        for shard in rows.shards():
            table = table_of(shard.parameter)
            if table is not None and table in initial:
                _fill(shard.tensor, table, shard.corner, initial[table], seed)
    rows.flush()


def _fill(tensor: torch.Tensor, table: str, corner: tuple[int, ...], start: InitialWeights, seed: int) -> None:
    """Draw a shard's weights, block by block of whole rows. corner: (row, column) of its first weight in the table."""
    first, left = corner
    for block in range(first // BLOCK, -(-(first + tensor.shape[0]) // BLOCK)):
        begin, end = block * BLOCK, min((block + 1) * BLOCK, start.rows)
        drawn = torch.rand(end - begin, start.columns, generator=_generator(seed, table, block))
        drawn.mul_(2 * start.reach).sub_(start.reach).add_(start.center)
        top, bottom = max(begin, first), min(end, first + tensor.shape[0])
        tensor[top - first : bottom - first].copy_(drawn[top - begin : bottom - begin, left : left + tensor.shape[1]])


def _generator(seed: int, table: str, block: int) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}/{block}/{table}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def settle(job: ShardedJob, batch: TrainingBatch) -> None:
    """Run one backward pass with a loss of zero, on every rank, before weights are drawn or loaded.

    DDP fixes the arrangement of the gradients that it sums after the first backward pass, and the order of a sum
    affects its last bits. After this, a resumed job sums in the same order as one that was never interrupted. Learning
    rates are zero during the pass; afterwards the optimizers' step counts are reset, and buffers are restored.
    """
    groups: list[tuple[Any, float]] = [(group, group["lr"]) for group in job.optimizer.param_groups]
    kept = [(buffer, buffer.clone()) for buffer in _buffers_of_layers(job.model)]
    for group, _ in groups:
        group["lr"] = 0.0
    job.optimizer.zero_grad()
    job.rows.prefetch(batch)
    loss, _ = job.model(batch.to(job.device))
    (loss * 0.0).backward()
    for group, rate in groups:
        group["lr"] = rate
    for buffer, before in kept:
        buffer.copy_(before)
    job.optimizer.zero_grad(set_to_none=True)
    set_steps(job, 0)


def _buffers_of_layers(model: nn.Module) -> list[torch.Tensor]:
    """Buffers of dense layers, such as running means; not those of tables."""
    sharded = (each for each in model.modules() if isinstance(each, ShardedModule))
    of_tables = {id(buffer) for each in sharded for buffer in each.buffers()}
    return [buffer for buffer in model.buffers() if id(buffer) not in of_tables]


def uncounted(tables: Any, *_: Any) -> None:
    """Pre-lookup hook that keeps evaluations out of FBGEMM's step count, by which it corrects means."""
    if not (tables.training and torch.is_grad_enabled()):
        tables.iter_cpu -= 1
        tables.iter -= 1


def set_steps(job: ShardedJob, step: int) -> None:
    """Set the optimizers' step counts. FBGEMM has two counts; its own call sets only the one that is saved."""
    job.optimizer.set_optimizer_step(step)
    for tables in kernels_in(job.model, SplitTableBatchedEmbeddingBagsCodegen):
        tables.iter_cpu.fill_(step)


def rank_device() -> torch.device:
    """This rank's device."""
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", dist.get_rank() % torch.cuda.device_count())))
    return torch.device("cpu")
