"""TorchRec's storage reservations: memory of each device that tables must not take, by TorchRec's own rules.

Every StorageReservation is asked by its own reserve(), on a Topology made of the cluster. So the bytes are those that
TorchRec's planner would keep free, also with reservations of one's own.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

from torch import nn
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.types import PlannerError, StorageReservation
from torchrec.distributed.types import ModuleSharder

from recsmith.adapters.topology import to_topology
from recsmith.adapters.torchrec_planner import quiet
from recsmith.clusters import Cluster
from recsmith.errors import UsageError
from recsmith.units import format_size


def check_reservation(reservation: object) -> None:
    """Refuse what is not one of TorchRec's storage reservations (UsageError)."""
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
    """The cluster with what a storage reservation leaves of the memory of its devices, in place of its own reserve.

    Where it takes more of some devices than of others, the reserve is the least, and hbm_bytes is lowered by the rest.

    Raises:
        UsageError: it leaves nothing of a device, adds memory, or reserves other memory than that of devices.
    """
    name = type(reservation).__name__
    with quiet():  # TorchRec warns of every topology that is not made by its factory
        before = to_topology(cluster)
    try:
        after = reservation.reserve(deepcopy(before), batch_size, model, list(sharders), dict(constraints))
    except PlannerError:  # TorchRec's own check, of the first device
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
