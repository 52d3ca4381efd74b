"""What the synchronisation of TorchRec's DMPCollection cannot keep equal between replicas, and so is refused.

Source: torchrec 1.8, distributed/model_parallel.py, DMPCollection._cache_sync_tensors: it averages what
`split_embedding_weights()` and the state called `sum` of `get_optimizer_state()` of FBGEMM's fused modules return.
"""

from recsmith.clusters import Cluster
from recsmith.errors import UsageError
from recsmith.problems.space import Space
from recsmith.sharding import UVM_CACHING
from recsmith.workloads import Workload

SYNCED_OPTIMIZERS = ("sgd", "adagrad", "rowwise_adagrad")  # without state, or with one called `sum`


def check_replicated(workload: Workload, cluster: Cluster, space: Space) -> None:
    """Refuse a workload or space on a cluster with replicas that TorchRec could not synchronise.

    Raises:
        UsageError: an optimizer with other state, a cache whose rows sync does not reach, or int8 weights.
    """
    if cluster.replication is None:
        return
    if workload.optimizer not in SYNCED_OPTIMIZERS:
        raise UsageError(
            f"optimizer {workload.optimizer} in a 2D job: TorchRec's DMPCollection synchronises no state but Adagrad's"
            f"; take {', '.join(SYNCED_OPTIMIZERS)}, or one sharding group"
        )
    if UVM_CACHING.name in space.kernels:
        raise UsageError(
            f"kernel {UVM_CACHING.name} in a 2D job: TorchRec's DMPCollection averages the rows in host memory and not "
            "those in the caches, so replicas drift apart; leave the kernel out, or plan for one sharding group"
        )
    int8 = next((table.name for table in workload.tables if table.data_type == "int8"), None)
    if int8 is not None:
        raise UsageError(
            f"table '{int8}' is int8 in a 2D job: TorchRec's DMPCollection would average its quantised bytes; "
            "take another data type, or plan for one sharding group"
        )
