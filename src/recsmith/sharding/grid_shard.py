"""grid_shard: two or more equal ranges of columns, each row-wise over a host."""

from recsmith.clusters import Cluster
from recsmith.sharding._base import WIDTH_STEP, Collective, ShardingType, Span
from recsmith.workloads import Table


class GridShard(ShardingType):
    """table_row_wise per column piece; with one piece it would be table_row_wise."""

    name = "grid_shard"
    span = Span.HOST
    splits_columns = True
    splits_rows = True
    forward = (Collective("reduce_scatter", "host"), Collective("all_to_all", "across_hosts"))
    backward = (Collective("all_to_all", "across_hosts"), Collective("all_gather", "host"))

    def column_counts(self, table: Table, cluster: Cluster) -> tuple[int, int]:
        """At least two pieces, at most one per host."""
        return 2, min(table.embedding_dim // WIDTH_STEP, cluster.hosts)

    def equal_widths(self, table: Table, cluster: Cluster) -> bool:
        """TorchRec's grid takes one block size."""
        return True

    def refusal(self, table: Table, cluster: Cluster) -> str | None:
        """Needs two hosts and two column pieces."""
        if min(table.embedding_dim // WIDTH_STEP, cluster.hosts) < 2:
            have = f"there are {cluster.hosts} and {table.embedding_dim}"
            return f"grid_shard needs two hosts and {2 * WIDTH_STEP} columns; {have}"
        return super().refusal(table, cluster)
