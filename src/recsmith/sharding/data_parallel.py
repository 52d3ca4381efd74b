"""data_parallel: a full copy on every rank, gradients all-reduced, stepped by a dense optimizer."""

from recsmith.clusters import Cluster
from recsmith.sharding._base import Collective, ShardingType, Span
from recsmith.sharding.kernels import DENSE


class DataParallel(ShardingType):
    """Every rank looks up only its own samples; no embedding travels, the gradient of the whole table does."""

    name = "data_parallel"
    span = Span.WORLD
    kernels = (DENSE.name,)
    runs_sequences = True
    forward = ()
    backward = (Collective("all_reduce", "world", "table"),)

    def lookup_share(self, cluster: Cluster) -> tuple[int, int]:
        """The local batch only."""
        return 1, 1
