"""The loads of a plan: the work of each rank's kernels in a step, as cases that hardware measures.

A rank runs one kernel for each of its fusion groups (collection, sharding type, data type and pooling; see
problems/modes.py), forward one after the other and backward in reverse. Every kernel serves the bags of all ranks; a
block of rows receives its share of their ids. Ids are drawn by the table's own law; a table whose reads were counted
uses the Zipf law fitted to the counts. If a table states how busy its blocks are, each block of a kernel is read by a
law of its own.

Ranks that hold the same shapes have equal loads, whatever the names of their tables, and in any plan.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple
from zlib import crc32

import numpy as np

from recsmith.errors import UsageError
from recsmith.hardware import Case, CaseScale, default_scale, scale_of
from recsmith.hardware.case import end_of
from recsmith.plans import Placement, Plan
from recsmith.sharding import FUSED, Shard, ShardingType
from recsmith.workloads import AccessProfile, Feature, Table, Workload
from recsmith.workloads.data_types import DataType, Pooling
from recsmith.workloads.reuse import Reuse
from recsmith.workloads.row_blocks import hot_rows_of, range_zipf

SMALLEST = 2**20  # ids, and elements, for which a scale always has room: its probe needs some

Load = tuple[Case, ...]
"""The cases that one rank runs in a step; none on a rank without shards. Equal loads take equally long."""


class _Group(NamedTuple):
    """What all shards have in common that a rank fuses into one kernel. blocks: number of row blocks of a table."""

    sharding_type: str
    collection: str
    data_type: DataType
    pooling: Pooling
    blocks: int


def loads_of(plan: Plan, seed: int = 0) -> tuple[Load, ...]:
    """The load of each rank (W,). seed: of the ids.

    Raises:
        UsageError: names a table that cannot be measured: one with a kernel other than fused (data_parallel, host
            memory), weights of ids, or several features or poolings; or ids are deduplicated.
    """
    tables = {table.name: table for table in plan.workload.tables}
    if any(plan.workload.deduplicates(table) for table in plan.workload.tables):
        raise UsageError(
            "ids of the plan are deduplicated (index_dedup: on), and kernels are measured with ids as a law draws "
            "them; verify it by a job (--torchrec), or plan without"
        )
    for placement in plan.placements:
        _check(tables[placement.table], placement)
    zipf = dict(zip(tables, Reuse.of(list(tables.values())).zipf.tolist(), strict=True))
    hot_rows = plan.workload.hot_rows
    ranks: list[dict[_Group, list[Table]]] = [{} for _ in range(plan.cluster.world_size)]
    kinds = {placement.table: placement.kind for placement in plan.placements}
    uneven = {
        _group(tables[name], kind, plan) for name, kind in kinds.items()
        if kind.splits_rows and hot_rows_of(tables[name], hot_rows) != "scattered"
    }  # fmt: skip
    for shard in plan.shards():
        table, kind = tables[shard.table], kinds[shard.table]
        group, law = _group(table, kind, plan), zipf[table.name]
        if group in uneven:
            group = group._replace(blocks=1)
            lookups = table.features[0].pooling_factor * plan.workload.batch_size * kind.samples_share(plan.cluster)
            law = float(range_zipf(table, np.array(shard.rows, dtype=np.float64), lookups, hot_rows)[0])
        spread = kind.spread(table, shard.rows, plan.cluster, hot_rows)
        ranks[shard.rank].setdefault(group, []).append(_piece(table, shard, group, law, spread))
    bags = plan.workload.batch_size * plan.cluster.world_size
    return tuple(
        tuple(_case(plan.workload, groups[group], bags, group.blocks, seed) for group in sorted(groups))
        for groups in ranks
    )


def _group(table: Table, kind: ShardingType, plan: Plan) -> _Group:
    """The fusion group in TorchRec of a table's shards."""
    divided = kind.splits_rows and table.pooled  # TorchRec divides parts of means after adding them
    pooling = "sum" if divided else table.pooling
    return _Group(kind.name, table.collection, table.data_type, pooling, kind.blocks(plan.cluster))


def _check(table: Table, placement: Placement) -> None:
    """Raise UsageError for a table that cannot be measured."""
    where, (first, *more) = f"table '{table.name}'", table.features
    if placement.sharding_type == "data_parallel":
        why = "is data_parallel, a dense kernel; plan without it (--types)"
    elif placement.compute_kernel != FUSED.name:
        why = f"uses kernel {placement.compute_kernel}; plan with --kernels fused"
    elif table.weighted:
        why = "has weighted ids; leave out its weights"
    elif more or first.num_poolings != 1 or first.batch_size is not None:
        why = "has several features or poolings, or a batch_size of its own; give it one feature with one pooling"
    else:
        return
    raise UsageError(f"{where} {why}: kernels are measured for fused tables that one feature reads")


def _piece(table: Table, shard: Shard, group: _Group, zipf: float, spread: float) -> Table:
    """A shard as a table of its own, without the name and the collection of its table.

    spread: by what the lookups of the whole table are divided for this shard.
    """
    rows, columns = (end - start for start, end in (shard.rows, shard.columns))
    feature = Feature(name="f", pooling_factor=table.features[0].pooling_factor / spread)
    return Table(
        name="t", num_embeddings=rows, embedding_dim=columns, data_type=group.data_type, pooling=group.pooling,
        features=(feature,), access=AccessProfile(zipf=zipf),
    )  # fmt: skip


def _case(workload: Workload, pieces: list[Table], bags: int, blocks: int, seed: int) -> Case:
    """Shards as a case, in an order that depends only on their shapes, as does the case's number."""
    ordered = sorted(pieces, key=_shape)
    named = [replace(piece, name=f"t{i}") for i, piece in enumerate(ordered)]
    work = Workload(batch_size=bags, optimizer=workload.optimizer, tables=tuple(named))
    shapes = [(*_shape(piece), piece.embedding_dim, piece.data_type, piece.pooling) for piece in ordered]
    number = crc32(f"{blocks} {bags} {work.optimizer} {shapes}".encode())
    return Case(seed=seed, number=number, workload=work, blocks=blocks)


def _shape(piece: Table) -> tuple[float, ...]:
    zipf = (piece.access and piece.access.zipf) or 0.0
    return -piece.weight_bytes, piece.num_embeddings, piece.features[0].pooling_factor, zipf


def scale_for(loads: Iterable[Load], hardware: str) -> CaseScale:
    """The scale that loads need, named 'plans'; its probe is that of the hardware's usual scale."""
    some, usual = list(loads), scale_of(default_scale(hardware))

    def most(sizes: Iterable[int]) -> int:
        return max(SMALLEST, *sizes)

    return CaseScale(
        name="plans", least_work=usual.least_work, most_work=usual.most_work,
        lookups=most(sum(sum(case.lookups) for case in load) for load in some),
        elements=most(end_of([case.elements for case in load]) for load in some),
        outputs=most(end_of([case.outputs for case in load]) for load in some),
    )  # fmt: skip
