"""column_wise: ranges of columns, each on any rank; widths may differ and ranks may repeat."""

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

    def equal_widths(self, table: Table) -> bool:
        """TorchRec takes the width of the first shard for all sequence tables (distributed/embedding.py, line 574)."""
        return not table.pooled
