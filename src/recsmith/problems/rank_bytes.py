"""The bytes of each rank of a planned job in memory and on disk, in the `real` accounting on CPU."""

import math

import numpy as np

from recsmith._types import Ints
from recsmith.plans import Plan
from recsmith.problems.batch_parts import batch_parts
from recsmith.problems.drawn import most_ids, most_rows
from recsmith.problems.modes import Demand
from recsmith.sharding import KERNEL_NAMES, Shard
from recsmith.sharding.memory import Pieces, bytes_of, real_parts
from recsmith.workloads import Table
from recsmith.workloads.access import HotRows
from recsmith.workloads.optimizers import OPTIMIZER_NAMES
from recsmith.workloads.reuse import Reuse
from recsmith.workloads.row_blocks import busiest_deviation, unique_before


def predicted_bytes(plan: Plan) -> list[tuple[int, int]]:
    """(bytes of its shards in the `real` accounting on CPU, bytes of its batch and outputs) of each rank.

    Tables that the plan keeps on disk count with their bytes in memory.
    """
    shards = plan.shards()
    pieces, pipeline = _pieces_of(plan, shards), plan.workload.pipeline
    sort = real_parts(pieces, plan.workload.optimizer, pipeline).sort  # equal for all optimizers
    whole = bytes_of("real", pieces, _optimizers(plan, shards), pipeline).device
    ranks = np.array([shard.rank for shard in shards])
    return [
        (int(whole[ranks == rank].sum()), _batch_bytes(plan, int(sort[ranks == rank].sum())))
        for rank in range(plan.cluster.world_size)
    ]


def bytes_on_disk(plan: Plan) -> list[int]:
    """Bytes of each rank's file for tables that the plan keeps on disk, including optimizer state."""
    shards = plan.shards()
    stored = bytes_of("real", _pieces_of(plan, shards), _optimizers(plan, shards), plan.workload.pipeline).host
    ranks = np.array([shard.rank for shard in shards])
    return [int(stored[ranks == rank].sum()) for rank in range(plan.cluster.world_size)]


def _optimizers(plan: Plan, shards: tuple[Shard, ...]) -> Ints:
    """The optimizer of each shard, as an index in OPTIMIZER_NAMES."""
    of = {table.name: OPTIMIZER_NAMES.index(plan.workload.optimizer_of(table)) for table in plan.workload.tables}
    return np.array([of[shard.table] for shard in shards], dtype=np.int64)


def _pieces_of(plan: Plan, shards: tuple[Shard, ...]) -> Pieces:
    """All shards, each on its own rank, with the lookups in it."""
    tables = {table.name: table for table in plan.workload.tables}
    kinds = {placement.table: placement.kind for placement in plan.placements}
    kernels = {placement.table: KERNEL_NAMES.index(placement.compute_kernel) for placement in plan.placements}
    factors = {placement.table: placement.load_factor for placement in plan.placements}
    policies = {placement.table: placement.cache_policy for placement in plan.placements}
    mine = [tables[shard.table] for shard in shards]
    types = [kinds[shard.table] for shard in shards]
    demand = Demand.of(plan.workload, tuple(mine))
    times = np.array([kind.samples_share(plan.cluster) for kind in types])
    spreads = [
        kind.spread(table, shard.rows, plan.cluster, plan.workload.hot_rows, ids if repeats > 1 else None)
        for kind, table, shard, ids, repeats in zip(
            types, mine, shards, (demand.ids * demand.repeats).tolist(), demand.repeats.tolist(), strict=True
        )
    ]
    shares = 1 / np.array(spreads)
    blocks = [kind.blocks(plan.cluster) for kind in types]
    deviations = np.array([busiest_deviation(table, count) for table, count in zip(mine, blocks, strict=True)])
    ids = most_ids(demand.ids * shares * times, shares, deviations)
    rows = np.array([shard.rows[1] - shard.rows[0] for shard in shards])
    lookups = demand.ids * demand.repeats * times
    different = [
        _different_rows(table, shard, float(each), count, plan.workload.hot_rows)
        for table, shard, each, count in zip(mine, shards, lookups, blocks, strict=True)
    ]
    return Pieces(
        rows=rows,
        width=np.array([shard.columns[1] - shard.columns[0] for shard in shards]),
        table_rows=demand.rows, table_dim=demand.dim, element_bytes=demand.element_bytes,
        ids=ids, bags=np.where(demand.pooled, demand.bags * times, ids),
        outputs=np.where(demand.pooled, demand.outputs * times, ids),
        weighted=demand.weighted, int8=demand.int8,
        data_parallel=np.array([kind.name == "data_parallel" for kind in types]),
        kernel=np.array([kernels[shard.table] for shard in shards]),
        cache_load_factor=np.array([factors[shard.table] for shard in shards]),
        on_cpu=True, counted=np.array([policies[shard.table] == "static" for shard in shards]),
        sequence=~demand.pooled, mean=np.array([table.pooling == "mean" for table in mine]),
        gathered=np.array([kind.splits_rows for kind in types]) & demand.pooled,
        different=most_rows(rows, ids, np.array(different)),
    )  # fmt: skip


def _different_rows(table: Table, shard: Shard, lookups: float, blocks: int, assumed: HotRows | None) -> float:
    """The different rows of a shard in `lookups` lookups of its table; infinite without Zipf exponent or reuse bins."""
    access = table.access
    if access is None or (access.zipf is None and access.reuse_bins is None):
        return math.inf
    if blocks == 1:
        return float(Reuse.of((table,)).unique_rows(np.zeros(1, dtype=np.int64), np.array([lookups]))[0])
    before, until = unique_before(table, np.array(shard.rows, dtype=np.float64), lookups, assumed).tolist()
    return until - before


def _batch_bytes(plan: Plan, sort: int) -> int:
    """Bytes of the local batch, its outputs and their gradients at the peak of a step; all ranks have the same batch.

    Gradients of outputs (and their copy sorted by rank, if they are sent by an all-to-all) are freed before FBGEMM
    sorts ids, so only what exceeds the sort counts. For sequences, one copy is still there while rows are looked up,
    and one more earlier, while gradients are sorted by row blocks (measured, docs/memory.md). A single rank sends
    nothing: its lookups are its outputs.
    """
    own = batch_parts(plan.workload, plan.placements, plan.cluster.world_size)
    return int(own.ids + own.outputs + own.kept + max(0.0, own.gradients - sort))
