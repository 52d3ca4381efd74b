"""table_column_wise: ranges of columns on the ranks of one host."""

from collections.abc import Sequence

from recsmith.clusters import Cluster
from recsmith.errors import PlanMismatch
from recsmith.sharding._base import Collective, ShardingType, Span
from recsmith.workloads import Table


class TableColumnWise(ShardingType):
    """column_wise kept on one host."""

    name = "table_column_wise"
    span = Span.RANK
    splits_columns = True
    forward = (Collective("all_to_all", "world"),)
    backward = (Collective("all_to_all", "world"),)

    def refusal(self, table: Table, cluster: Cluster) -> str | None:
        """As of any type; and in a 2D job, where TorchRec 1.8 gives ranks without a shard no shape of the table."""
        if cluster.replication is not None:
            return f"{self.name} does not run in TorchRec's DMPCollection"
        return super().refusal(table, cluster)

    def equal_widths(self, table: Table, cluster: Cluster) -> bool:
        """On a host of one rank all pieces are neighbours."""
        return cluster.local_world_size == 1

    def check_targets(self, targets: Sequence[int], where: str, cluster: Cluster) -> None:
        """All pieces must be on one host."""
        hosts = sorted({rank // cluster.local_world_size for rank in targets})
        if len(hosts) > 1:
            raise PlanMismatch(f"{where}: ranks {list(targets)} lie on hosts {hosts}; all must lie on one host")
