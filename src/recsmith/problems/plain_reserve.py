"""Estimates the device memory that the rest of a plain model needs and tables must leave free, if nobody states it.

A plain DLRM is that of MLPerf: 13 dense features through layers of 512, 256 and the embedding width; then these and the
embeddings through layers of 1024, 1024, 512, 256 and 1; all in fp32 under Adam. Its sizes are exact; that a job has
such a model is an assumption. If no table is pooled and their rows form histories, layers like those of MLPerf's HSTU
read them (history_layers.py). `RecSmithPlanner` (recsmith.torchrec) knows the job's model, and estimates from it.
"""

from dataclasses import replace
from itertools import pairwise

from recsmith._types import noun
from recsmith.clusters import Cluster
from recsmith.problems.dense_bytes import DenseBytes
from recsmith.problems.history_layers import HistoryLayers, histories_of, history_activations, history_weights
from recsmith.problems.memory import batch_bytes, forward_bytes
from recsmith.units import format_size
from recsmith.workloads import Workload

DENSE_FEATURES = 13
BELOW, ABOVE = (512, 256), (1024, 1024, 512, 256, 1)  # layers of MLPerf's DLRM below and above the embeddings
COPIES = 5  # copies of dense weights: weights, gradients, Adam's two states, and temporaries of its step
ACTIVATION_COPIES = 2  # outputs of the forward pass, and their gradients
FLOAT = 4  # bytes
CUDA_BYTES = 3 * 2**29  # a CUDA context with the libraries' work spaces and NCCL's buffers: assumed, not measured
LARGEST_SHARE = 0.15  # share of a device that TorchRec's planner keeps free by default (storage_reservations.py, 1.8)


@noun
class PlainReserve:
    """Bytes of each device that a plain model needs in addition to its tables, and the most that is kept free for it.

    batch: the local batch and its activations, of which `activations` belong to layers.
    positions: of a history, for this number of samples (`samples`); 0 if tables form no histories.
    """

    dense: int
    batch: int
    cuda: int
    most: int
    activations: int = 0
    positions: float = 0.0
    samples: int = 0

    @property
    def total(self) -> int:
        """The bytes that are kept free."""
        return min(self.needed, self.most)

    @property
    def needed(self) -> int:
        """The sum of all parts."""
        return self.dense + self.batch + self.cuda

    @property
    def layers(self) -> str:
        """The model whose layers these are, as text."""
        if not self.positions:
            return "a plain DLRM"
        return (
            f"layers like those of MLPerf's HSTU ({self.positions:,.0f} positions of each of {self.samples:,} samples)"
        )

    @property
    def beyond(self) -> str:
        """A sentence for a user without enough room, on the command line or on the page, which has no options."""
        return (
            f"{format_size(self.needed)} of each device are kept free, which {self.layers} need by an estimate; "
            "state a reserve of your own if your model needs another amount."
        )

    def __str__(self) -> str:
        """A sentence for reports."""
        needs = f"as {self.layers} need" + ("" if self.positions else "s")
        if self.needed > self.most and not self.positions:
            needs = f"at most 15% of it, where {self.layers} needs {format_size(self.needed)}"
        return (
            f"{format_size(self.total)} of each device for other layers, activations and CUDA, {needs}; "
            "--reserve sets another amount, 0 none"
        )


def plain_reserve(
    workload: Workload, cluster: Cluster, layers: HistoryLayers | None = None
) -> PlainReserve | None:  # fmt: skip
    """The estimate for tables on GPUs; None on CPUs, whose memory is shared with other programs anyway.

    layers: layers that read histories; the default is MLPerf's if no table is pooled, because next to pooled tables the
        use of the rows is unknown. Their need is not limited to a share of the device.
    """
    if cluster.device.kind == "cpu":
        return None
    pooled = [table for table in workload.tables if table.pooled]
    width = max((table.embedding_dim for table in pooled), default=0)
    inputs = width + sum(table.embedding_dim * len(table.features) for table in pooled)
    sizes = [(DENSE_FEATURES, *BELOW, width), (inputs, *ABOVE)]
    weights = sum(have * give + give for each in sizes for have, give in pairwise(each))
    activations = inputs + sum(sum(each[1:]) for each in sizes)
    kept = ACTIVATION_COPIES * activations * workload.batch_size * FLOAT
    batch, least = batch_bytes(workload, cluster.world_size), min(cluster.hbm_per_rank)
    layers = layers or (HistoryLayers() if not pooled else None)
    histories = histories_of(workload, layers) if layers else None
    if layers is None or histories is None:
        return PlainReserve(
            dense=COPIES * weights * FLOAT, batch=batch + kept, activations=kept, cuda=CUDA_BYTES,
            most=int(least * LARGEST_SHARE),
        )  # fmt: skip
    kept += history_activations(histories, layers, workload.batch_size)
    return PlainReserve(
        dense=COPIES * (weights + history_weights(histories, layers)) * FLOAT,
        # gradients of the batch arise as activations are freed
        batch=max(batch, forward_bytes(workload, cluster.world_size) + kept),
        activations=kept, cuda=CUDA_BYTES, most=least - 1, positions=histories.positions, samples=workload.batch_size,
    )  # fmt: skip


def plain_dense(workload: Workload, cluster: Cluster) -> DenseBytes | None:
    """The estimate by when it is alive; None without an estimate. If it is cut, only activations are separate."""
    found = plain_reserve(workload, cluster)
    if found is None:
        return None
    if found.needed > found.most and not found.positions:
        activations = min(found.activations, found.total)
        return DenseBytes(fixed=found.total - activations, activations=activations, batch_apart=False)
    copy = found.dense // COPIES
    return DenseBytes(
        fixed=3 * copy + found.cuda, gradients=copy, temporaries=copy, activations=found.activations
    )  # fmt: skip


def with_reserve(workload: Workload, cluster: Cluster) -> Cluster:
    """The cluster with the estimate as its reserve, if it states none."""
    if cluster.reserve_bytes is not None:
        return cluster
    found = None if cluster.hbm_bytes is not None else plain_reserve(workload, cluster)
    return cluster.with_memory(reserve_bytes=found.total if found else 0)


def kept_estimate(workload: Workload, cluster: Cluster) -> PlainReserve | None:
    """The estimate if it is what a plan keeps free; None if the plan keeps a stated amount, or nothing."""
    found = plain_reserve(workload, cluster) if cluster.reserve_bytes else None
    return found if found and found.total == cluster.reserve_bytes else None


def estimated_anew(cluster: Cluster, before: Workload, after: Workload) -> Cluster:
    """The cluster with a new estimate for changed tables, if its reserve was an estimate for the old histories."""
    found = None if cluster.hbm_bytes is not None else kept_estimate(before, cluster)
    return with_reserve(after, replace(cluster, reserve_bytes=None)) if found and found.positions else cluster
