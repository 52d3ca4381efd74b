"""table_row_wise: blocks of ceil(rows / local_world_size) rows on the ranks of one host."""

from recsmith.sharding._base import Collective, ShardingType, Span


class TableRowWise(ShardingType):
    """row_wise within a host, all-to-all between hosts."""

    name = "table_row_wise"
    span = Span.HOST
    splits_rows = True
    forward = (Collective("reduce_scatter", "host"), Collective("all_to_all", "across_hosts"))
    backward = (Collective("all_to_all", "across_hosts"), Collective("all_gather", "host"))
