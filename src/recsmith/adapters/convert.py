"""RecSmith's placements to TorchRec's ShardingPlan and back, without loss."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharding_spec.api import EnumerableShardingSpec
from torch.distributed.remote_device import _remote_device
from torchrec.distributed.planner import ParameterConstraints
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.sharding_plan import placement as device_word
from torchrec.distributed.types import (
    CacheParams,
    EmbeddingModuleShardingPlan,
    ModuleSharder,
    ParameterSharding,
    ShardingPlan,
)

from recsmith.adapters.constraints import carried_fields, check_constraints
from recsmith.adapters.embedding_collections import Collection, collections, table_names
from recsmith.adapters.field_policies import remaps_ids
from recsmith.adapters.stashed_tables import check_stashed
from recsmith.adapters.topology import device_type
from recsmith.adapters.virtual_tables import virtual_entries, virtual_tables
from recsmith.clusters import Cluster
from recsmith.errors import PlanMismatch
from recsmith.plans import Cache, Placement, Plan, check_placements
from recsmith.plans.check import check_uneven_on_cpu
from recsmith.sharding import CACHED_KERNELS, KEY_VALUE
from recsmith.workloads import Table, Workload


def to_sharding_plan(
    plan: Plan,
    module: nn.Module,
    *,
    sharders: Sequence[ModuleSharder[nn.Module]] | None = None,
    device: str | None = None,
    constraints: Mapping[str, ParameterConstraints] | None = None,
) -> ShardingPlan:
    """TorchRec's ShardingPlan of a plan, for DistributedModelParallel(module, plan=...).

    Args:
        plan: the plan to convert.
        module: the model whose tables the plan places.
        sharders: the sharders of the job; TorchRec's defaults by default.
        device: 'cuda' or 'cpu'; by default the kind that PyTorch sees.
        constraints: TorchRec's, by table name; fields that a plan does not hold, such as output_dtype, are written to
            the table's ParameterSharding.

    Raises:
        PlanMismatch: the placements cannot be run, or plan and module disagree about a table.
        UsageError: the constraints ask for something that a plan would drop.
    """
    check_placements(plan.placements, plan.workload, plan.cluster)
    check_uneven_on_cpu(plan)
    found = collections(module, sharders or get_default_sharders())
    limits = constraints or {}
    check_constraints(limits, found, plan.cluster)
    names = table_names(found)
    _check_tables(plan.workload, found, names)
    placements = {placement.table: placement for placement in plan.placements}
    tables = {table.name: table for table in plan.workload.tables}
    kind = device or device_type()
    if kind == "cuda":  # on CPU TorchRec stashes no weights; a run with `rows: stashed` does so itself
        check_stashed(found, {key: placements[name] for key, name in names.items()})
    made: dict[str, Any] = {}
    for collection in found:
        made[collection.path] = EmbeddingModuleShardingPlan()
        for name in collection.configs:
            known = names[collection.path, name]
            _check_remapped(collection, placements[known], tables[known])
            made[collection.path][name] = _parameter(
                placements[known], tables[known], plan.cluster, kind, limits.get(name)
            )
    for path, name, entry in virtual_entries(virtual_tables(found, limits, plan.cluster), plan.cluster, kind):
        made[path][name] = entry
    return ShardingPlan(made)


def _check_tables(workload: Workload, found: Sequence[Collection], names: Mapping[tuple[str, str], str]) -> None:
    """Refuse a plan whose tables differ from the module's in name, shape or collection."""
    planned = {table.name: table for table in workload.tables}
    for collection in found:
        for name, config in collection.configs.items():
            table = planned.pop(names[collection.path, name], None)
            if table is None:
                raise PlanMismatch(f"the module has table '{name}' ({collection.path}), which the plan does not place")
            shape = table.num_embeddings, table.embedding_dim
            if shape != (config.num_embeddings, config.embedding_dim):
                raise PlanMismatch(
                    f"table '{name}' has {config.num_embeddings} x {config.embedding_dim} weights in the module "
                    f"and {shape[0]} x {shape[1]} in the plan; plan again for this module"
                )
    if planned:
        raise PlanMismatch(f"the plan places table '{min(planned)}', which the module does not have; plan again")


def _check_remapped(collection: Collection, placement: Placement, table: Table) -> None:
    """Refuse a dynamic table in a module that does not remap ids, and remapped tables that are not row_wise."""
    if table.dynamic is not None and not remaps_ids(collection.outer):
        raise PlanMismatch(
            f"table '{placement.table}' has ids without end in the plan, and module '{collection.path}' gives no id a "
            "row; put it into a ManagedCollisionEmbeddingBagCollection, or plan the table without `dynamic`"
        )
    if remaps_ids(collection.outer) and placement.sharding_type != "row_wise":
        raise PlanMismatch(
            f"table '{placement.table}' is {placement.sharding_type}, and its ids are remapped by row in module "
            f"'{collection.path}'; plan again with RecSmithPlanner, which keeps it row_wise"
        )


def _parameter(
    placement: Placement, table: Table, cluster: Cluster, device: str, limits: ParameterConstraints | None
) -> ParameterSharding:
    widths = placement.widths_of(table.embedding_dim)
    shards = placement.kind.shards(table, placement.ranks, widths, cluster)
    metadata = [
        ShardMetadata(
            shard_offsets=[shard.rows[0], shard.columns[0]],
            shard_sizes=[shard.rows[1] - shard.rows[0], shard.columns[1] - shard.columns[0]],
            placement=device_word(device, shard.rank, cluster.machine_devices),
        )
        for shard in shards
    ]
    return ParameterSharding(
        sharding_type=placement.sharding_type,
        compute_kernel=placement.compute_kernel,
        ranks=list(placement.ranks),
        sharding_spec=None if placement.sharding_type == "data_parallel" else EnumerableShardingSpec(metadata),
        **carried_fields(limits, placement.cache),
    )


def from_sharding_plan(plan: ShardingPlan, workload: Workload, cluster: Cluster) -> tuple[Placement, ...]:
    """Placements of a TorchRec ShardingPlan, in order of table names.

    A table's `collection` is the path of its module in the ShardingPlan.

    Raises:
        PlanMismatch: the plan lacks a table of the workload, or holds shards that do not follow from the sharding type.
    """
    made: list[Placement] = []
    for table in sorted(workload.tables, key=lambda table: table.name):
        module = plan.plan.get(table.collection)
        own = table.name.removeprefix(f"{table.collection}.")
        if not isinstance(module, EmbeddingModuleShardingPlan) or own not in module:
            raise PlanMismatch(f"the sharding plan has no table '{own}' in module '{table.collection}'")
        made.append(_placement(table, module[own], cluster))
    check_placements(made, workload, cluster)
    return tuple(made)


def _placement(table: Table, parameter: ParameterSharding, cluster: Cluster) -> Placement:
    spec = parameter.sharding_spec
    shards = list(spec.shards) if isinstance(spec, EnumerableShardingSpec) else []
    lefts = {shard.shard_offsets[1]: shard.shard_sizes[1] for shard in shards}
    widths = tuple(lefts[left] for left in sorted(lefts)) or (table.embedding_dim,)
    ranks = parameter.ranks or [_rank(shard) for shard in shards]
    everywhere = parameter.sharding_type in ("data_parallel", "row_wise")
    dropped = (
        parameter.compute_kernel == KEY_VALUE.name and cluster.device.kind == "cuda"
    )  # TorchRec uses its own cache size for this kernel
    cached = (
        parameter.compute_kernel in CACHED_KERNELS and parameter.cache_params and not dropped
    )  # kernels without a cache ignore cache_params
    cache = parameter.cache_params.load_factor if cached and parameter.cache_params else None
    placement = Placement(
        table=table.name,
        sharding_type=parameter.sharding_type,
        compute_kernel=parameter.compute_kernel,
        ranks=tuple(range(cluster.world_size)) if everywhere else tuple(ranks),
        widths=widths if len(widths) > 1 else (),
        cache=Cache(load_factor=cache) if cache is not None else None,
    )
    _check_rectangles(placement, table, cluster, shards)
    return placement


def _rank(shard: ShardMetadata) -> int:
    place = shard.placement
    rank = place.rank() if isinstance(place, _remote_device) else None
    if rank is None:
        raise PlanMismatch(f"the sharding plan places a shard on {place}, which names no rank")
    return rank


def _check_rectangles(placement: Placement, table: Table, cluster: Cluster, shards: Sequence[ShardMetadata]) -> None:
    """Refuse shards that TorchRec would not derive itself: it runs some of them, and trains wrong weights silently."""
    if placement.sharding_type == "data_parallel":
        return
    derived = placement.kind.shards(table, placement.ranks, placement.widths_of(table.embedding_dim), cluster)
    given = [(tuple(shard.shard_offsets), tuple(shard.shard_sizes)) for shard in shards]
    expected = [
        ((s.rows[0], s.columns[0]), (s.rows[1] - s.rows[0], s.columns[1] - s.columns[0])) for s in derived
    ]  # fmt: skip
    if given != expected:
        raise PlanMismatch(
            f"table '{table.name}' ({placement.sharding_type}): the sharding plan's shards are not those of its type, "
            f"such as offsets and sizes {next((g for g in given if g not in expected), given[:1])}"
        )


def to_parameter_constraints(plan: Plan) -> dict[str, ParameterConstraints]:
    """The plan as ParameterConstraints for TorchRec's own planner: type, kernel, width and features of each table.

    TorchRec's planner chooses the ranks itself and knows one width per table, so the widest of uneven widths is passed.
    """
    placements = {placement.table: placement for placement in plan.placements}
    return {
        table.name.removeprefix(f"{table.collection}."): _constraints(
            table, placements[table.name], plan.workload.batch_size
        )
        for table in plan.workload.tables
    }


def _constraints(table: Table, placement: Placement, batch_size: int) -> ParameterConstraints:
    has_own_batch = any(feature.batch_size for feature in table.features)
    return ParameterConstraints(
        sharding_types=[placement.sharding_type],
        compute_kernels=[placement.compute_kernel],
        min_partition=max(placement.widths) if placement.widths else None,
        pooling_factors=[feature.pooling_factor for feature in table.features],
        num_poolings=[feature.num_poolings for feature in table.features],
        batch_sizes=[feature.batch_size or batch_size for feature in table.features] if has_own_batch else None,
        is_weighted=table.weighted,
        cache_params=CacheParams(load_factor=placement.cache.load_factor) if placement.cache else None,
    )
