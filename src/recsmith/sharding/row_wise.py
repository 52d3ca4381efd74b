"""row_wise: blocks of ceil(rows / world_size) rows, one on every rank."""

from recsmith.sharding._base import Collective, ShardingType, Span


class RowWise(ShardingType):
    """Every rank pools the rows it has for all samples; a reduce-scatter adds the partial sums."""

    name = "row_wise"
    span = Span.WORLD
    splits_rows = True
    runs_sequences = True
    forward = (Collective("reduce_scatter", "world"),)
    backward = (Collective("all_gather", "world"),)
