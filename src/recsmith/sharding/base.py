"""Compute kernels, and the rules common to all sharding types: how a table is cut into pieces, and where pieces go.

A *piece* is a range of columns on one *span*: a rank, a host, or the world. It has one shard on every rank of its span:
all rows, one block of rows, or a full copy. A sharding type states three things: its span, whether columns may be split
(several pieces), and what the ranks of a span divide (rows or nothing). Everything else is derived here.
"""

import math
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import ClassVar, Literal, NamedTuple, TypeVar

import numpy as np

from recsmith._types import Bools, Ints, noun, unchecked
from recsmith.clusters import Cluster
from recsmith.errors import PlanMismatch
from recsmith.sharding.coverage import covering_target, first_rank, last_rank
from recsmith.workloads import Table
from recsmith.workloads.access import HotRows
from recsmith.workloads.row_blocks import hot_rows_of, lookups_before, unique_before

WIDTH_STEP = 4  # columns; FBGEMM's kernels read rows in vectors of four elements
WIDEST_ON_CUDA = 2048  # columns of a piece: max_embedding_dim of FBGEMM 1.8, fbgemm_gpu/codegen/genscript/
# jinja_environment.py; every CUDA kernel checks it as max_D: fused and dense kernels, pooled and sequence kernels
NOTED_ON_CUDA = 1024  # legacy_max_embedding_dim, ibid.: wider pieces run in newer kernels, which returned zeros in
# releases after 1.8 (meta-pytorch/torchrec#3673)


@lru_cache(maxsize=4096)
def _covered(targets: tuple[int, ...], coverage: int) -> tuple[int, ...]:
    """The ranks of all targets in order; equal arguments return the same tuple."""
    return tuple(
        rank for target in targets for rank in range(first_rank(target, coverage), last_rank(target, coverage) + 1)
    )


@noun
class Kernel:
    """A compute kernel: its name in TorchRec, and where it stores the weights.

    in_host_memory: on the host, read over the link.
    on_disk: in a file on the host.
    cached: part of the rows is cached on the device.
    """

    name: str
    in_host_memory: bool = False
    on_disk: bool = False
    cached: bool = False

    @property
    def beneath(self) -> bool:
        """Whether the weights are stored outside device memory."""
        return self.in_host_memory or self.on_disk

    @property
    def number(self) -> int:
        """Its index in KERNELS, which arrays use."""
        return KERNELS.index(self)


FUSED = Kernel(name="fused")  # lookup with the optimizer fused into backward, in device memory
DENSE = Kernel(name="dense")  # plain gradients for data_parallel copies
UVM = Kernel(name="fused_uvm", in_host_memory=True)
UVM_CACHING = Kernel(name="fused_uvm_caching", in_host_memory=True, cached=True)
KEY_VALUE = Kernel(name="key_value", on_disk=True, cached=True)
KERNELS: tuple[Kernel, ...] = (FUSED, DENSE, UVM, UVM_CACHING, KEY_VALUE)
KERNEL_NAMES: tuple[str, ...] = tuple(kernel.name for kernel in KERNELS)
HOST_KERNELS: tuple[str, ...] = tuple(kernel.name for kernel in KERNELS if kernel.in_host_memory)
DEVICE_KERNELS: tuple[str, ...] = tuple(kernel.name for kernel in KERNELS if not kernel.beneath)
CACHED_KERNELS: tuple[str, ...] = tuple(kernel.name for kernel in KERNELS if kernel.cached)
CACHED = [kernel.number for kernel in KERNELS if kernel.cached]  # the same as indices in KERNELS, for arrays


class Span(IntEnum):
    """The ranks that one piece covers: one rank, all of a host, or all."""

    RANK = 0
    HOST = 1
    WORLD = 2


class Collective(NamedTuple):
    """A collective call of one training step, and its payload.

    payload: 'outputs' (embeddings of all samples of the ranks in the scope) or 'table' (the gradient of all rows).
    """

    op: Literal["all_to_all", "reduce_scatter", "all_gather", "all_reduce"]
    scope: Literal["world", "host", "across_hosts"]
    payload: Literal["outputs", "table"] = "outputs"


@noun
class Shard:
    """A rectangle of a table on a rank: rows [a, b) and columns [a, b)."""

    table: str
    rank: int
    rows: tuple[int, int]
    columns: tuple[int, int]


CUDA_RULE = f"FBGEMM's CUDA kernels take at most {WIDEST_ON_CUDA:,}"


def widest_piece(table: Table, cluster: Cluster) -> int:
    """Columns of the widest piece of a table that the cluster's kernels support; on CPU, all columns of the table."""
    return min(table.embedding_dim, WIDEST_ON_CUDA) if cluster.device.kind == "cuda" else table.embedding_dim


Rows = TypeVar("Rows", int, Ints)


def leaves_rank_empty(rows: Rows, blocks: int) -> Bools | bool:
    """Whether blocks of ceil(rows / blocks) rows are used up before the last block, whose rank then has no rows."""
    return (blocks - 1) * -(-rows // blocks) >= rows


class ShardingType:
    """One option to shard a table over ranks; subclasses set the class attributes and, rarely, override a method."""

    name: ClassVar[str]
    span: ClassVar[Span]
    splits_columns: ClassVar[bool] = False
    always_equal: ClassVar[bool] = False  # whether all column pieces of a table are equally wide, on any cluster
    splits_rows: ClassVar[bool] = False
    kernels: ClassVar[tuple[str, ...]] = (FUSED.name, UVM.name, UVM_CACHING.name)  # key_value keeps whole rows
    runs_sequences: ClassVar[bool] = False
    forward: ClassVar[tuple[Collective, ...]]
    backward: ClassVar[tuple[Collective, ...]]

    # --- pieces ---------------------------------------------------------------------------------------------------

    def coverage(self, cluster: Cluster) -> int:
        """Number of ranks that one piece covers."""
        return (1, cluster.local_world_size, cluster.world_size)[self.span]

    def samples_share(self, cluster: Cluster) -> int:
        """Number of ranks whose samples a covered rank looks up."""
        return cluster.world_size

    def blocks(self, cluster: Cluster) -> int:
        """Number of row blocks into which each piece of a table is cut."""
        return self.coverage(cluster) if self.splits_rows else 1

    def spread(
        self, table: Table, rows: tuple[int, int], cluster: Cluster, hot_rows: HotRows | None, once: float | None = None
    ) -> float:
        """The number of blocks, each as busy as this shard's rows, that would hold all lookups of a table in a step.

        once: ids of a rank's batch, if equal ids are looked up only once.
        """
        if not self.splits_rows or hot_rows_of(table, hot_rows) == "scattered":
            return float(self.blocks(cluster))
        ends = np.array((*rows, table.num_embeddings), dtype=np.float64)
        sums = lookups_before(table, ends, hot_rows) if once is None else unique_before(table, ends, once, hot_rows)
        before, until, total = sums.tolist()
        if until <= before:
            return math.inf
        return 1 / (until - before) if once is None else total / (until - before)

    def column_counts(self, table: Table, cluster: Cluster) -> tuple[int, int]:
        """Smallest and largest number of column pieces of the table."""
        if not self.splits_columns:
            return 1, 1
        return -(-table.embedding_dim // widest_piece(table, cluster)), table.embedding_dim // WIDTH_STEP

    def equal_widths(self, table: Table, cluster: Cluster) -> bool:
        """Whether all column pieces of the table must be equally wide."""
        return self.always_equal

    def refusal(self, table: Table, cluster: Cluster) -> str | None:
        """Why the table cannot be sharded by this type on this cluster; None if it can."""
        if not table.pooled and not self.runs_sequences:
            return f"{self.name} does not run sequence tables (pooling: none) in TorchRec"
        if not self.splits_columns and table.embedding_dim > widest_piece(table, cluster):
            return f"{self.name} keeps {table.embedding_dim} columns in one piece; {CUDA_RULE}"
        if self.splits_rows:
            blocks = self.coverage(cluster)
            if leaves_rank_empty(table.num_embeddings, blocks):
                return f"{table.num_embeddings} rows in blocks of ceil(rows / {blocks}) leave a rank of {blocks} empty"
        return None

    # --- a placement ----------------------------------------------------------------------------------------------

    def ranks(self, targets: Sequence[int], cluster: Cluster) -> tuple[int, ...]:
        """The rank of each shard, in shard order, for pieces placed on these targets (ranks, hosts, or the world)."""
        if self.span == Span.RANK:
            return tuple(int(rank) for rank in targets)
        return _covered(tuple(targets), self.coverage(cluster))

    def targets(self, ranks: Sequence[int], cluster: Cluster) -> tuple[int, ...]:
        """The target of each piece (rank, host, or 0 for the world), from the ranks of its shards."""
        size = self.coverage(cluster)
        return tuple(covering_target(rank, size) for rank in ranks[::size])

    def check(self, table: Table, ranks: Sequence[int], widths: Sequence[int], cluster: Cluster) -> None:
        """Raise PlanMismatch, which names the rule, for a placement that TorchRec cannot run."""
        where = f"table '{table.name}' ({self.name})"
        refusal = self.refusal(table, cluster)
        if refusal:
            raise PlanMismatch(f"{where}: {refusal}")
        if any(width < WIDTH_STEP or width % WIDTH_STEP for width in widths):
            raise PlanMismatch(f"{where}: widths {list(widths)} must be multiples of {WIDTH_STEP}")
        if sum(widths) != table.embedding_dim:
            raise PlanMismatch(f"{where}: widths {list(widths)} add up to {sum(widths)}, not {table.embedding_dim}")
        if max(widths) > widest_piece(table, cluster):
            raise PlanMismatch(f"{where}: a piece has {max(widths)} columns; {CUDA_RULE}: split it, or plan again")
        least, most = self.column_counts(table, cluster)
        if not least <= len(widths) <= most:
            raise PlanMismatch(f"{where}: {len(widths)} column pieces; between {least} and {most} are possible")
        if self.equal_widths(table, cluster) and len(set(widths)) > 1:
            raise PlanMismatch(f"{where}: widths {list(widths)} differ; {self.name} of this table takes equal ones")
        last = cluster.world_size - 1
        # compared once, since thousands of ranks are checked many times
        whole = self.span == Span.WORLD and ranks == _covered((0,), last + 1)
        if ranks and not whole and not 0 <= min(ranks) <= max(ranks) <= last:
            unknown = next(rank for rank in ranks if not 0 <= rank <= last)
            raise PlanMismatch(f"{where}: rank {unknown} is not one of the cluster's 0 .. {last}")
        expected = len(widths) * self.coverage(cluster)
        if len(ranks) != expected or self.ranks(self.targets(ranks, cluster), cluster) != tuple(ranks):
            raise PlanMismatch(f"{where}: ranks {list(ranks)[:16]} must be {self._ranks_rule(len(widths), cluster)}")
        self._check_neighbours(ranks, widths, where)
        self.check_targets(self.targets(ranks, cluster), where, cluster)

    def _check_neighbours(self, ranks: Sequence[int], widths: Sequence[int], where: str) -> None:
        """Refuse pieces of different widths on one rank: TorchRec's batched_embedding_kernel views them as one."""
        if self.span != Span.RANK or len(set(widths)) == 1:
            return
        width_on: dict[int, int] = {}
        for rank, width in zip(ranks, widths, strict=True):
            if width_on.setdefault(rank, width) != width:
                raise PlanMismatch(
                    f"{where}: rank {rank} holds pieces of {width_on[rank]} and {width} columns; "
                    "pieces of a table on one rank must be equally wide"
                )

    def check_targets(self, targets: Sequence[int], where: str, cluster: Cluster) -> None:
        """Refuse combinations of targets that the type does not allow; most types allow all."""

    def _ranks_rule(self, pieces: int, cluster: Cluster) -> str:
        if self.span == Span.RANK:
            return f"{pieces}, one per column piece"
        if self.span == Span.HOST:
            return f"the {cluster.local_world_size} ranks of a host in order, for each of {pieces} column pieces"
        return f"all ranks 0 .. {cluster.world_size - 1} in order"

    # --- shards ---------------------------------------------------------------------------------------------------

    def shards(self, table: Table, ranks: Sequence[int], widths: Sequence[int], cluster: Cluster) -> tuple[Shard, ...]:
        """The shards of a placement, in TorchRec's order: by column piece, and within a piece by rank."""
        coverage = self.coverage(cluster)
        block = math.ceil(table.num_embeddings / coverage) if self.splits_rows else table.num_embeddings
        made: list[Shard] = []
        left = 0
        for piece, width in enumerate(widths):
            for i, rank in enumerate(ranks[piece * coverage : (piece + 1) * coverage]):
                top = i * block if self.splits_rows else 0
                rows = (top, min(top + block, table.num_embeddings))
                columns = (left, left + width)
                made.append(unchecked(Shard, table=table.name, rank=rank, rows=rows, columns=columns))  # up to 150,000
            left += width
        return tuple(made)
