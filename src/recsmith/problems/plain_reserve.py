"""Memory of a device that tables must not take where nobody states it: what the rest of a plain DLRM needs there.

A plain DLRM is that of MLPerf: 13 dense features through layers of 512, 256 and the embedding width; the embeddings
beside them, through layers of 1024, 1024, 512, 256 and 1; all in fp32 under Adam. Its sizes are exact; whether a job
is such a model is an assumption. `RecSmithPlanner` (recsmith.torchrec) knows the job's model, and estimates from it.
"""

from itertools import pairwise

from recsmith._types import noun
from recsmith.clusters import Cluster
from recsmith.problems.dense_bytes import DenseBytes
from recsmith.problems.memory import batch_bytes
from recsmith.units import format_size
from recsmith.workloads import Workload

DENSE_FEATURES = 13
BELOW, ABOVE = (512, 256), (1024, 1024, 512, 256, 1)  # layers of MLPerf's DLRM below and above the embeddings
COPIES = 5  # of dense weights: themselves, gradients, Adam's two states, and what its step takes for a while
ACTIVATION_COPIES = 2  # forward's outputs, and their gradients
FLOAT = 4  # bytes
CUDA_BYTES = 3 * 2**29  # a CUDA context with the libraries' work spaces and NCCL's buffers: assumed, not measured
LARGEST_SHARE = 0.15  # of a device: what TorchRec's planner keeps free by default (storage_reservations.py, 1.8)


@noun
class PlainReserve:
    """Bytes of each device that a plain DLRM needs besides its tables, and the most that is kept free for it.

    batch: the local batch and its activations, of which activations are those of layers.
    """

    dense: int
    batch: int
    cuda: int
    most: int
    activations: int = 0

    @property
    def total(self) -> int:
        """What is kept free."""
        return min(self.needed, self.most)

    @property
    def needed(self) -> int:
        """All parts together."""
        return self.dense + self.batch + self.cuda

    def __str__(self) -> str:
        """A sentence for reports."""
        needs = "as a plain DLRM needs"
        if self.needed > self.most:
            needs = f"at most 15% of it, where a plain DLRM needs {format_size(self.needed)}"
        return (
            f"{format_size(self.total)} of each device for other layers, activations and CUDA, {needs}; "
            "--reserve sets another amount, 0 none"
        )


def plain_reserve(workload: Workload, cluster: Cluster) -> PlainReserve | None:
    """The estimate for tables on GPUs; None on CPUs, whose memory other programs share anyway."""
    if cluster.device.kind == "cpu":
        return None
    pooled = [table for table in workload.tables if table.pooled]  # a DLRM has no layers of its own for sequences
    width = max((table.embedding_dim for table in pooled), default=0)
    inputs = width + sum(table.embedding_dim * len(table.features) for table in pooled)
    layers = [(DENSE_FEATURES, *BELOW, width), (inputs, *ABOVE)]
    weights = sum(have * give + give for sizes in layers for have, give in pairwise(sizes))
    activations = inputs + sum(sum(sizes[1:]) for sizes in layers)
    kept = ACTIVATION_COPIES * activations * workload.batch_size * FLOAT
    return PlainReserve(
        dense=COPIES * weights * FLOAT,
        batch=batch_bytes(workload, cluster.world_size) + kept,
        activations=kept,
        cuda=CUDA_BYTES,
        most=int(min(cluster.hbm_per_rank) * LARGEST_SHARE),
    )  # fmt: skip


def plain_dense(workload: Workload, cluster: Cluster) -> DenseBytes | None:
    """The same by when it is alive; None without an estimate. Of one that is cut, activations alone are apart."""
    found = plain_reserve(workload, cluster)
    if found is None:
        return None
    if found.needed > found.most:
        activations = min(found.activations, found.total)
        return DenseBytes(fixed=found.total - activations, activations=activations, batch_apart=False)
    copy = found.dense // COPIES
    return DenseBytes(
        fixed=3 * copy + found.cuda, gradients=copy, temporaries=copy, activations=found.activations
    )  # fmt: skip


def with_reserve(workload: Workload, cluster: Cluster) -> Cluster:
    """The cluster with the estimate as its reserve, where it states none."""
    if cluster.reserve_bytes is not None:
        return cluster
    found = None if cluster.hbm_bytes is not None else plain_reserve(workload, cluster)
    return cluster.with_memory(reserve_bytes=found.total if found else 0)


def kept_estimate(workload: Workload, cluster: Cluster) -> PlainReserve | None:
    """The estimate that a plan keeps free; None where it keeps what somebody stated, or nothing."""
    found = plain_reserve(workload, cluster) if cluster.reserve_bytes else None
    return found if found and found.total == cluster.reserve_bytes else None
