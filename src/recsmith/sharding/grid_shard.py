"""grid_shard: two or more ranges of columns, each row-wise over a host of its own."""

from collections.abc import Sequence

from recsmith.clusters import Cluster
from recsmith.errors import PlanMismatch
from recsmith.sharding._base import WIDTH_STEP, Collective, ShardingType, Span
from recsmith.workloads import Table


class GridShard(ShardingType):
    """table_row_wise per column piece; TorchRec 1.8 fails on a single column piece."""

    name = "grid_shard"
    span = Span.HOST
    splits_columns = True
    splits_rows = True
    forward = (Collective("reduce_scatter", "host"), Collective("all_to_all", "across_hosts"))
    backward = (Collective("all_to_all", "across_hosts"), Collective("all_gather", "host"))

    def column_counts(self, table: Table, cluster: Cluster) -> tuple[int, int]:
        """At least two pieces, at most one per host."""
        return 2, min(table.embedding_dim // WIDTH_STEP, cluster.hosts)

    def refusal(self, table: Table, cluster: Cluster) -> str | None:
        """Needs two hosts and two column pieces."""
        least, most = self.column_counts(table, cluster)
        if most < least:
            return f"grid_shard needs two hosts and {2 * WIDTH_STEP} columns; there are {cluster.hosts} and {table.embedding_dim}"
        return super().refusal(table, cluster)

    def check_targets(self, targets: Sequence[int], where: str, cluster: Cluster) -> None:
        """Each column piece has a host of its own."""
        if len(set(targets)) < len(targets):
            raise PlanMismatch(f"{where}: hosts {list(targets)} repeat; each column piece needs a host of its own")
