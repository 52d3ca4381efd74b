"""column_wise: ranges of columns, each on any rank; widths may differ and ranks may repeat."""

from recsmith.clusters import Cluster
from recsmith.sharding._base import Collective, ShardingType, Span
from recsmith.workloads import Table


class ColumnWise(ShardingType):
    """Every column piece looks up all ids, so splitting repeats the ids but divides rows, outputs and memory."""

    name = "column_wise"
    span = Span.RANK
    splits_columns = True
    runs_sequences = True
    forward = (Collective("all_to_all", "world"),)
    backward = (Collective("all_to_all", "world"),)

    def equal_widths(self, table: Table, cluster: Cluster) -> bool:
        """On one rank all pieces are neighbours; and TorchRec takes a sequence's first width for all of them.

        Source: torchrec 1.8, distributed/embedding.py, line 574.
        """
        return not table.pooled or cluster.world_size == 1
