"""table_wise: the whole table on one rank."""

from recsmith.sharding._base import Collective, ShardingType, Span


class TableWise(ShardingType):
    """One rank looks up the ids of all samples and sends each rank its samples' embeddings."""

    name = "table_wise"
    span = Span.RANK
    runs_sequences = True
    forward = (Collective("all_to_all", "world"),)
    backward = (Collective("all_to_all", "world"),)
