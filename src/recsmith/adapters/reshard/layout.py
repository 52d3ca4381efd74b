"""Positions of a plan's shards in their tables and in a checkpoint, and the file that ties a checkpoint to its plan.

R rows, D columns, P column pieces of a table
weights and element-wise state (R, D): a shard's block is its rows and columns
row-wise state of fused kernels (R * P,): the shard of piece p with rows a to b holds p * R + a to p * R + b
                                          (torchrec 1.8, batched_embedding_kernel.py, EmbeddingFusedOptimizer)
row-wise state of dense optimizers (R, 1): stored whole, as data_parallel tables are
"""

import hashlib
import json
from pathlib import Path

from recsmith._types import Source, record
from recsmith.errors import CorruptFile, PlanMismatch, UsageError
from recsmith.files import check_schema, read_json, source_text, write_text
from recsmith.plans import Placement, Plan, load_plan
from recsmith.sharding import Shard
from recsmith.workloads import Table

Range = tuple[int, int]  # [a, b)


@record
class TableBlock:
    """A shard that a checkpoint stores: its rows and columns in the table, number of its column piece, rank."""

    rows: Range
    columns: Range
    piece: int
    rank: int


@record
class StoredLayout:
    """A table with its placement and the blocks in which a checkpoint stores it."""

    table: Table
    placement: Placement
    blocks: tuple[TableBlock, ...]

    @property
    def name(self) -> str:
        """The table's name within its module."""
        return self.table.name.removeprefix(f"{self.table.collection}.")

    @property
    def dense(self) -> bool:
        """Whether the table is data_parallel: every rank has a copy, which a dense optimizer updates."""
        return self.placement.sharding_type == "data_parallel"

    @property
    def pieces(self) -> tuple[Range, ...]:
        """The columns of each piece."""
        return tuple(dict.fromkeys(block.columns for block in self.blocks))


def layouts(plan: Plan) -> dict[str, StoredLayout]:
    """Layouts of all tables of a plan, by table name."""
    placements = {placement.table: placement for placement in plan.placements}
    tables = sorted(plan.workload.tables, key=lambda table: table.name)
    return {table.name: _layout(table, placements[table.name], plan, number) for number, table in enumerate(tables)}


def _layout(table: Table, placement: Placement, plan: Plan, number: int) -> StoredLayout:
    widths = placement.widths_of(table.embedding_dim)
    shards = placement.kind.shards(table, placement.ranks, widths, plan.cluster)
    if placement.sharding_type == "data_parallel":  # one rank writes its copy; ranks take turns from table to table
        shards = (shards[number % len(shards)],)
    return StoredLayout(table=table, placement=placement, blocks=_blocks(shards))


def _blocks(shards: tuple[Shard, ...]) -> tuple[TableBlock, ...]:
    pieces = {columns: number for number, columns in enumerate(dict.fromkeys(shard.columns for shard in shards))}
    return tuple(
        TableBlock(rows=shard.rows, columns=shard.columns, piece=pieces[shard.columns], rank=shard.rank)
        for shard in shards
    )


def fingerprint(plan: Plan) -> str:
    """SHA-256 of all that a checkpoint depends on: shapes, element types, sharding types and shards of all tables.

    Plans that differ only in kernels, costs or statistics have the same fingerprint.
    """
    lines = [
        [name, each.table.num_embeddings, each.table.embedding_dim, each.table.data_type, each.placement.sharding_type]
        + ([] if each.dense else [[block.rank, block.rows, block.columns] for block in each.blocks])
        for name, each in layouts(plan).items()
    ]
    return hashlib.sha256(json.dumps(lines).encode()).hexdigest()


FINGERPRINT = "recsmith.json"
SCHEMA = "recsmith/checkpoint/1"


def tie_checkpoint(checkpoint: Source, plan: Plan | Source) -> None:
    """Record in a checkpoint's folder the plan under which it was saved; call it on one rank, after the save.

    `recsmith reshard` then refuses any other plan with different shards. Without the record, it refuses only plans
    whose shards have different shapes.

    Raises:
        UsageError: the folder does not exist, or cannot be written to.
    """
    folder = Path(source_text(checkpoint, "a folder"))
    if not folder.is_dir():
        raise UsageError(f"'{folder}' is no folder; save the checkpoint first")
    write_fingerprint(folder, load_plan(plan))


def write_fingerprint(folder: Path, plan: Plan) -> None:
    """Write the plan's fingerprint and digest into a checkpoint's folder."""
    raw = {"schema": SCHEMA, "fingerprint": fingerprint(plan), "plan": plan.digest}
    write_text(str(folder / FINGERPRINT), json.dumps(raw, indent=1) + "\n")


def check_fingerprint(folder: Path, plan: Plan) -> None:
    """Refuse a plan with another fingerprint than the checkpoint's; a checkpoint without one is accepted."""
    path = folder / FINGERPRINT
    if not path.exists():
        return
    raw = read_json(str(path))
    found = check_schema(raw, SCHEMA, str(path)).get("fingerprint") if isinstance(raw, dict) else None
    if not isinstance(found, str):
        raise CorruptFile(f"'{path}' names no fingerprint; delete it, then the shards alone are compared")
    if found != fingerprint(plan):
        raise PlanMismatch(
            f"'{folder}' was written under a plan with other shards than the old plan: its fingerprint is "
            f"{found[:12]}, the plan's {fingerprint(plan)[:12]}; give the plan that the job ran, or delete '{path}' to "
            "compare the shapes of shards alone"
        )
