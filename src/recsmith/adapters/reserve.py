"""The memory that RecSmithPlanner keeps free of tables on each device: as the job states, or estimated from the model.

For a TorchRec StorageReservation, its own reserve() is called on a Topology made from the cluster. So the bytes are
those that TorchRec's planner would keep free, also for a user's own subclass.
"""

import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace

from torch import nn
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.types import PlannerError, StorageReservation
from torchrec.distributed.types import ModuleSharder

from recsmith.adapters.dense_memory import DenseMemory, check_dense_optimizer, dense_memory
from recsmith.adapters.embedding_collections import Collection
from recsmith.adapters.topology import to_topology
from recsmith.adapters.torchrec_planner import quiet
from recsmith.clusters import Cluster
from recsmith.errors import Infeasible, NoPlanFound, UsageError
from recsmith.units import format_size
from recsmith.workloads import Workload


def check_reservation(reservation: object) -> None:
    """Raise UsageError for an object that is not a TorchRec StorageReservation."""
    if not isinstance(reservation, StorageReservation):
        raise UsageError(
            f"storage_reservation is of type {type(reservation).__name__}; give a StorageReservation of "
            "torchrec.distributed.planner.storage_reservations, or bytes as reserve_bytes="
        )


def with_reservation(
    cluster: Cluster,
    reservation: StorageReservation,
    model: nn.Module,
    sharders: Sequence[ModuleSharder[nn.Module]],
    *,
    batch_size: int,
    constraints: Mapping[str, ParameterConstraints],
) -> Cluster:
    """The cluster with the reserve that a storage reservation takes from its devices, in place of its own reserve.

    If it takes more from some devices than from others, the least becomes the reserve, and hbm_bytes is lowered by the
    rest.

    Raises:
        UsageError: it leaves nothing of a device, adds memory, or reserves other memory than that of devices.
    """
    name = type(reservation).__name__
    with quiet():  # TorchRec warns of every topology that its factory did not make
        before = to_topology(cluster)
    try:
        after = reservation.reserve(deepcopy(before), batch_size, model, list(sharders), dict(constraints))
    except PlannerError:  # TorchRec itself checks the first device
        raise _nothing_left(name, before) from None
    if _other_memory(after) != _other_memory(before):
        raise UsageError(
            f"{name} reserves host memory or disks; only memory of devices can be reserved: state it alone"
        )
    taken = [had - has for had, has in zip(_memory(before), _memory(after), strict=True)]
    if min(taken) < 0:
        raise UsageError(f"{name} adds memory to a device; a reservation takes memory: give devices more instead")
    if min(_memory(after)) < 1:
        raise _nothing_left(name, before)
    if max(taken) > min(taken):
        cluster = replace(cluster, reserve_bytes=0, hbm_bytes=tuple(has + min(taken) for has in _memory(after)))
    return cluster.with_memory(reserve_bytes=min(taken))


def _nothing_left(name: str, topology: Topology) -> UsageError:
    return UsageError(
        f"{name} leaves nothing of a device's {format_size(min(_memory(topology)))} for tables; reserve less, or give "
        "devices more memory"
    )


def _memory(topology: Topology) -> list[int]:
    """Bytes of each rank's device, as read_cluster reads them."""
    on_cpu = topology.compute_device == "cpu"
    return [device.storage.ddr if on_cpu else device.storage.hbm for device in topology.devices]


def _other_memory(topology: Topology) -> list[tuple[int, int]]:
    on_cpu = topology.compute_device == "cpu"
    storages = [device.storage for device in topology.devices]
    return [(each.hbm if on_cpu else each.ddr, each.ssd) for each in storages]


_log = logging.getLogger("recsmith")


@dataclass(frozen=True)
class Reserve:
    """The cluster with the reserve of its devices, and a text on the source of that figure.

    estimate: the parts of the reserve, if it was estimated from the model.
    """

    cluster: Cluster
    text: str
    estimate: DenseMemory | None = None

    def with_remapping(self, size: int) -> "Reserve":
        """This reserve plus `size` bytes for the modules that remap ids of managed-collision collections."""
        if not size:
            return self
        return self.with_more(
            size, f" Besides, {format_size(size)} for what remaps ids of managed-collision collections."
        )

    def with_more(self, size: int, text: str) -> "Reserve":
        """This reserve plus `size` bytes. text: their purpose, in whole sentences."""
        more = self.cluster.with_memory(reserve_bytes=(self.cluster.reserve_bytes or 0) + size)
        return Reserve(more, f"{self.text}{text}", self.estimate)

    def log(self) -> None:
        """Log the reserve: as a warning if it was estimated, since the user did not state it, else as information."""
        _log.log(logging.INFO if self.estimate is None else logging.WARNING, "RecSmith keeps %s", self.text)

    @contextmanager
    def explained(self) -> Generator[None]:
        """A context in which errors of planning also state the reserve and how to change it."""
        try:
            yield
        except (Infeasible, NoPlanFound) as error:
            if not self.cluster.reserve_bytes:
                raise
            raise type(error)(f"{str(error).removesuffix('.')}. Planning kept {self.text}") from None


@dataclass(frozen=True)
class ReserveRequest:
    """What the user asked for about memory that tables must not take.

    stated: whether it was given in bytes; these are already in the cluster.
    """

    stated: bool
    reservation: StorageReservation | None
    dense_optimizer: str

    def __post_init__(self) -> None:
        """Raise UsageError if both reserves are given, or if the reservation or dense optimizer is invalid."""
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
            return Reserve(made, _kept_free(made, _by_reservation(self.reservation, made)))
        if self.stated or cluster.reserve_bytes:
            return Reserve(cluster, _kept_free(cluster, "as reserve_bytes says"))
        parts = dense_memory(
            model, found, workload,
            optimizer=self.dense_optimizer, world_size=cluster.world_size, on_cpu=_on_cpu(cluster),
        )  # fmt: skip
        text = _estimated(parts)
        if parts.total >= min(cluster.hbm_per_rank):
            raise Infeasible(
                f"the rest of the model leaves no memory for tables: a device has "
                f"{format_size(min(cluster.hbm_per_rank))}, and planning would keep {text}"
            )
        return Reserve(cluster.with_memory(reserve_bytes=parts.total), text, parts)


def _kept_free(cluster: Cluster, how: str) -> str:
    return f"{format_size(cluster.reserve_bytes or 0)} of each device free of tables, {how}."


def _by_reservation(reservation: StorageReservation, cluster: Cluster) -> str:
    """Source of the reserve, in words. TorchRec's percentages and sizes (storage_reservations.py, 1.8) are of HBM."""
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
