"""The seven sharding types of TorchRec, which arrays refer to by their index in SHARDING_TYPES."""

from collections.abc import Sequence

from recsmith.clusters import Cluster
from recsmith.errors import PlanMismatch, UsageError
from recsmith.files import did_you_mean
from recsmith.sharding.base import CUDA_RULE, DENSE, KEY_VALUE, WIDTH_STEP, Collective, ShardingType, Span
from recsmith.workloads import Table

WHOLE_ROWS = (*ShardingType.kernels, KEY_VALUE.name)  # kernels of types that do not split columns
_ALL_TO_ALL = (Collective("all_to_all", "world"),)
_TO_HOSTS = (Collective("reduce_scatter", "host"), Collective("all_to_all", "across_hosts"))
_FROM_HOSTS = (Collective("all_to_all", "across_hosts"), Collective("all_gather", "host"))


class TableWise(ShardingType):
    """The whole table on one rank, which looks up the ids of all samples and sends each rank its embeddings."""

    name = "table_wise"
    kernels = WHOLE_ROWS
    span = Span.RANK
    runs_sequences = True
    forward = backward = _ALL_TO_ALL


class ColumnWise(ShardingType):
    """Ranges of columns, each on any rank; widths may differ and ranks may repeat.

    Every piece looks up all ids, so splitting repeats the ids but divides rows, outputs and memory.
    """

    name = "column_wise"
    span = Span.RANK
    splits_columns = True
    runs_sequences = True
    forward = backward = _ALL_TO_ALL

    def equal_widths(self, table: Table, cluster: Cluster) -> bool:
        """True on one rank, which holds all pieces, and for sequences: TorchRec uses the first width for all of them.

        Source: torchrec 1.8, distributed/embedding.py, line 574.
        """
        return not table.pooled or cluster.world_size == 1


class TableColumnWise(ShardingType):
    """Ranges of columns on the ranks of one host."""

    name = "table_column_wise"
    span = Span.RANK
    splits_columns = True
    forward = backward = _ALL_TO_ALL

    def refusal(self, table: Table, cluster: Cluster) -> str | None:
        """Why this type cannot run, such as in a 2D job: TorchRec 1.8 gives ranks without a shard no table shape."""
        if cluster.replication is not None:
            return f"{self.name} does not run in TorchRec's DMPCollection"
        return super().refusal(table, cluster)

    def equal_widths(self, table: Table, cluster: Cluster) -> bool:
        """True on hosts of one rank, which then holds all pieces."""
        return cluster.local_world_size == 1

    def check_targets(self, targets: Sequence[int], where: str, cluster: Cluster) -> None:
        """Refuse pieces on more than one host."""
        hosts = sorted({rank // cluster.local_world_size for rank in targets})
        if len(hosts) > 1:
            raise PlanMismatch(f"{where}: ranks {list(targets)} lie on hosts {hosts}; all must lie on one host")


class RowWise(ShardingType):
    """Blocks of ceil(rows / world_size) rows, one on every rank.

    Every rank pools its rows for all samples; a reduce-scatter adds the partial sums.
    """

    name = "row_wise"
    kernels = WHOLE_ROWS
    span = Span.WORLD
    splits_rows = True
    runs_sequences = True
    forward = (Collective("reduce_scatter", "world"),)
    backward = (Collective("all_gather", "world"),)


class TableRowWise(ShardingType):
    """Blocks of ceil(rows / local_world_size) rows on the ranks of one host, all-to-all between hosts."""

    name = "table_row_wise"
    kernels = WHOLE_ROWS
    span = Span.HOST
    splits_rows = True
    forward, backward = _TO_HOSTS, _FROM_HOSTS


class GridShard(ShardingType):
    """Two or more equal ranges of columns, each row-wise over a host; with one range it would be table_row_wise.

    There are at most as many ranges as hosts, and several may share a host.
    """

    name = "grid_shard"
    span = Span.HOST
    always_equal = True
    splits_columns = True
    splits_rows = True
    forward, backward = _TO_HOSTS, _FROM_HOSTS

    def column_counts(self, table: Table, cluster: Cluster) -> tuple[int, int]:
        """At least two pieces, at most one per host."""
        least, most = super().column_counts(table, cluster)
        return max(2, least), min(most, cluster.hosts)

    def refusal(self, table: Table, cluster: Cluster) -> str | None:
        """Why this type cannot run; it needs two hosts, two column pieces, and at least as many hosts as pieces."""
        least, most = self.column_counts(table, cluster)
        if most < 2:
            have = f"there are {cluster.hosts} and {table.embedding_dim}"
            return (
                f"grid_shard has two ranges of columns or more here, and no more than hosts, so it needs two hosts and "
                f"{2 * WIDTH_STEP} columns; {have}"
            )
        if least > most:
            return f"grid_shard needs {least} hosts for {table.embedding_dim} columns, there are {most}; {CUDA_RULE}"
        return super().refusal(table, cluster)


class DataParallel(ShardingType):
    """A full copy on every rank, which looks up its own samples; gradients are all-reduced for a dense optimizer."""

    name = "data_parallel"
    span = Span.WORLD
    kernels = (DENSE.name,)
    runs_sequences = True
    forward = ()
    backward = (Collective("all_reduce", "world", "table"),)

    def samples_share(self, cluster: Cluster) -> int:
        """One: only its own samples."""
        return 1


SHARDING_TYPES: tuple[ShardingType, ...] = (
    TableWise(), ColumnWise(), TableColumnWise(), RowWise(), TableRowWise(), GridShard(), DataParallel(),
)  # fmt: skip
TYPE_NAMES: tuple[str, ...] = tuple(kind.name for kind in SHARDING_TYPES)
DATA_PARALLEL = TYPE_NAMES.index("data_parallel")
SPLIT_ROWS = [i for i, kind in enumerate(SHARDING_TYPES) if kind.splits_rows]
SPLIT_AT_WILL = [i for i, kind in enumerate(SHARDING_TYPES) if kind.splits_columns and not kind.always_equal]
"""Types whose pieces may have different widths; of others the options of a problem list every split."""


def sharding_type(name: str) -> ShardingType:
    """The sharding type of a TorchRec name such as 'row_wise'."""
    if name not in TYPE_NAMES:
        raise UsageError(f"no sharding type is called '{name}'{did_you_mean(name, list(TYPE_NAMES))}")
    return SHARDING_TYPES[TYPE_NAMES.index(name)]
