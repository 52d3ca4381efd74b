"""What RecSmithPlanner keeps free of tables on each device: what a job says, or else an estimate from its model."""

import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn
from torchrec.distributed.planner import ParameterConstraints
from torchrec.distributed.planner.types import StorageReservation
from torchrec.distributed.types import ModuleSharder

from recsmith.adapters.dense_memory import DenseMemory, check_dense_optimizer, dense_memory
from recsmith.adapters.embedding_collections import Collection
from recsmith.adapters.reservations import check_reservation, with_reservation
from recsmith.clusters import Cluster
from recsmith.errors import Infeasible, NoPlanFound, UsageError
from recsmith.units import format_size
from recsmith.workloads import Workload

_log = logging.getLogger("recsmith")


@dataclass(frozen=True)
class Reserve:
    """The cluster less what its devices keep free of tables, and where that figure comes from.

    estimate: its parts, where it was estimated from the model.
    """

    cluster: Cluster
    words: str
    estimate: DenseMemory | None = None

    def with_remapping(self, size: int) -> "Reserve":
        """The same, with bytes besides for what remaps the ids of managed-collision collections."""
        if not size:
            return self
        more = self.cluster.with_memory(reserve_bytes=self.cluster.reserve_bytes + size)
        words = f"{self.words} Besides, {format_size(size)} for what remaps ids of managed-collision collections."
        return Reserve(more, words, self.estimate)

    def tell(self) -> None:
        """Log what is kept free: a warning where it was estimated, since nobody stated it."""
        _log.log(logging.INFO if self.estimate is None else logging.WARNING, "RecSmith keeps %s", self.words)

    @contextmanager
    def explained(self) -> Generator[None]:
        """Errors of planning within say what was kept free, too, and how to change it."""
        try:
            yield
        except (Infeasible, NoPlanFound) as error:
            if not self.cluster.reserve_bytes:
                raise
            raise type(error)(f"{error} Planning kept {self.words}") from None


@dataclass(frozen=True)
class ReserveRequest:
    """What a job says of memory that tables must not take.

    stated: as bytes, which the cluster has already.
    """

    stated: bool
    reservation: StorageReservation | None
    dense_optimizer: str

    def __post_init__(self) -> None:
        """Check that one thing is said, and that it is known (UsageError)."""
        if self.stated and self.reservation is not None:
            raise UsageError("reserve_bytes and storage_reservation are both given; give one of them")
        if self.reservation is not None:
            check_reservation(self.reservation)
        check_dense_optimizer(self.dense_optimizer)

    def of(
        self,
        cluster: Cluster,
        model: nn.Module,
        found: Sequence[Collection],
        workload: Workload,
        sharders: Sequence[ModuleSharder[nn.Module]],
        constraints: Mapping[str, ParameterConstraints],
    ) -> Reserve:
        """The reserve for a model: reserve_bytes, else the storage reservation, else the cluster's, else the estimate.

        Raises:
            UsageError: the storage reservation leaves nothing, or the model cannot be estimated.
            Infeasible: the estimate leaves nothing for tables.
        """
        if self.reservation is not None:
            made = with_reservation(
                cluster, self.reservation, model, sharders, batch_size=workload.batch_size, constraints=constraints
            )
            return Reserve(made, _said(made, _by_reservation(self.reservation, made)))
        if self.stated or cluster.reserve_bytes:
            return Reserve(cluster, _said(cluster, "as reserve_bytes says"))
        parts = dense_memory(
            model, found, workload,
            optimizer=self.dense_optimizer, world_size=cluster.world_size, on_cpu=_on_cpu(cluster),
        )  # fmt: skip
        words = _estimated(parts)
        if parts.total >= min(cluster.hbm_per_rank):
            raise Infeasible(
                f"the rest of the model leaves no memory for tables: a device has "
                f"{format_size(min(cluster.hbm_per_rank))}, and planning would keep {words}"
            )
        return Reserve(cluster.with_memory(reserve_bytes=parts.total), words, parts)


def _said(cluster: Cluster, how: str) -> str:
    return f"{format_size(cluster.reserve_bytes)} of each device free of tables, {how}."


def _by_reservation(reservation: StorageReservation, cluster: Cluster) -> str:
    """TorchRec's rule: the percentages and absolute sizes of storage_reservations.py (1.8) are of HBM alone."""
    of_hbm = "; its percentage or absolute size is of HBM, which CPU ranks do not have" if _on_cpu(cluster) else ""
    return f"as {type(reservation).__name__} reserves{of_hbm}"


def _on_cpu(cluster: Cluster) -> bool:
    return cluster.device.kind == "cpu"


def _estimated(parts: DenseMemory) -> str:
    return (
        f"{format_size(parts.total)} of each device free of tables for the rest of the model, by an estimate: "
        f"{parts.describe()}. Activations and the CUDA context are not counted. Another dense_optimizer= changes the "
        "estimate; reserve_bytes= or storage_reservation= takes its place."
    )
