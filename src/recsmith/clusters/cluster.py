"""The cluster that a plan is made for: hosts of identical devices, the links between them, and replicas of 2D jobs."""

import math
import re
from dataclasses import replace
from typing import Literal

from recsmith._types import noun
from recsmith.errors import UsageError, check_rules
from recsmith.units import counted, format_size

LARGEST_WORLD = 65_536  # most devices of a cluster; more are taken for a mistake
SLOWEST, FASTEST = 1.0, 1e18  # bytes per second: beyond any real speed, but sums of seconds cannot overflow
LONGEST_LATENCY_S = 60.0  # largest latency of a launch or a message; a longer one is taken for another unit
LARGEST_SIZE = 2**53  # bytes; sizes below it are exact as floating-point numbers


@noun
class Replication:
    """The replication of a sharding group in a job: the number of replicas, their layout over hosts, and their syncs.

    replicas: sharding groups of the job, all with the same plan.
    job_local_world_size: devices of a host of the job.
    steps_per_sync: training steps from one `DMPCollection.sync()` to the next.
    use_inter_host_allreduce: TorchRec's choice of layout. False, its default: group g has the ranks g, g + replicas, g
        + 2 replicas and so on, so that ranks with the same shards are neighbours. True: groups are blocks of
        neighbouring ranks.
    fully_sharded: replicas share one copy of a shard's weights while dense layers run, and each holds all of it while
        its own kernels run (TorchRec's ShardingStrategy.FULLY_SHARDED); the weights are averaged in every step on the
        way.
    """

    replicas: int
    job_local_world_size: int
    steps_per_sync: int = 1
    use_inter_host_allreduce: bool = False
    fully_sharded: bool = False

    def __post_init__(self) -> None:
        local, steps = self.job_local_world_size, self.steps_per_sync
        check_rules(
            f"replicas is {self.replicas}; a job of 2D parallelism has at least 2 sharding groups"
            if self.replicas < 2 else None,
            f"job_local_world_size is {local}; a host has at least 1 device" if local < 1 else None,
            f"steps_per_sync is {steps}; replicas sync every so many steps, at least 1" if steps < 1 else None,
            f"steps_per_sync is {steps}, and replicas that are fully sharded are averaged in every step; take 1"
            if self.fully_sharded and steps > 1 else None,
        )  # fmt: skip

    def describe(self) -> str:
        """Short text for a report: `3 replicas, sync every step`."""
        every = "step" if self.steps_per_sync == 1 else f"{self.steps_per_sync} steps"
        how = "fully sharded" if self.fully_sharded else f"sync every {every}"
        return f"{self.replicas} replicas, {how}"

    def group_local_world_size(self, group_size: int) -> int:
        """The number of neighbouring ranks of a group that always share a host, in groups of `group_size` ranks."""
        stride = 1 if self.use_inter_host_allreduce else self.replicas
        return ranks_on_a_host(group_size, stride, self.job_local_world_size)

    def replicas_on_a_host(self, group_size: int) -> int:
        """The number of neighbouring ranks with the same shards that always share a host, by the groups' size."""
        stride = group_size if self.use_inter_host_allreduce else 1
        return ranks_on_a_host(self.replicas, stride, self.job_local_world_size)


def ranks_on_a_host(count: int, stride: int, local_world_size: int) -> int:
    """The largest size of blocks of the ranks 0, stride, 2 stride, ... (`count` of them) that are each on one host.

    If the stride does not divide the devices of a host, some blocks of two would span two hosts, so the size is 1.
    """
    return 1 if local_world_size % stride else math.gcd(count, local_world_size // stride)


def _wrong_speed(value: float | None, what: str) -> str | None:
    if value is None or SLOWEST <= value <= FASTEST:
        return None
    return f"{what} is {value}; it must lie between {SLOWEST:g} and {FASTEST:g} bytes per second"


def _wrong_latency(value: float | None, what: str) -> str | None:
    if value is None or 0 < value <= LONGEST_LATENCY_S:
        return None
    return f"{what} is {value}; it must lie above 0 and at most at {LONGEST_LATENCY_S:g} seconds"


def _wrong_bytes(value: int | None, what: str, *, least: int = 1) -> str | None:
    if value is None or least <= value < LARGEST_SIZE:
        return None
    return f"{what} is {value} bytes; it must be at least {least} and below 2^53"


@noun
class Device:
    """One accelerator (or CPU rank). Speeds are peak figures in bytes per second, one direction.

    hbm_bytes: device memory that a program sees (not the marketing size).
    hbm_bandwidth: bandwidth of device memory.
    host_link_bandwidth: bandwidth between device and host memory, for tables in host memory.
    l2_bytes, l2_bandwidth: second-level cache.
    launch_s: time to launch a kernel.
    """

    name: str
    kind: Literal["cuda", "cpu"] = "cuda"
    hbm_bytes: int
    hbm_bandwidth: float
    host_link_bandwidth: float | None = None
    l2_bytes: int | None = None
    l2_bandwidth: float | None = None
    launch_s: float | None = None

    def __post_init__(self) -> None:
        speeds = ("hbm_bandwidth", "host_link_bandwidth", "l2_bandwidth")
        check_rules(
            _wrong_bytes(self.hbm_bytes, f"hbm_bytes of device '{self.name}'"),
            _wrong_bytes(self.l2_bytes, f"l2_bytes of device '{self.name}'"),
            *(_wrong_speed(getattr(self, field), f"{field} of device '{self.name}'") for field in speeds),
            _wrong_latency(self.launch_s, f"launch_s of device '{self.name}'"),
        )

    def is_called(self, name: str) -> bool:
        """Whether a GPU that reports a name is this device: 'NVIDIA A100-SXM4-80GB' is a100-80, compared part by part.

        Only whole parts match: 'NVIDIA L40S' is not l4, 'NVIDIA GB200' not b200. A number also matches a size in GB: 80
        is 80GB.
        """
        found = set(re.findall(r"[a-z0-9]+", name.lower()))
        parts = self.name.lower().split("-")
        return self.kind == "cuda" and all({part, f"{part}gb"} & found for part in parts)


@noun
class Links:
    """The links between devices: bytes per second per device and direction, and seconds per message.

    mesh_devices: number of devices of a host that are linked pairwise, if each pair has its own link.
        intra_host_bandwidth is then the sum over all links of a device; a job on fewer devices uses fewer of them.
    """

    intra_host_bandwidth: float
    inter_host_bandwidth: float
    intra_host_latency_s: float | None = None
    inter_host_latency_s: float | None = None
    mesh_devices: int | None = None

    def __post_init__(self) -> None:
        check_rules(
            _wrong_speed(self.intra_host_bandwidth, "intra_host_bandwidth"),
            _wrong_speed(self.inter_host_bandwidth, "inter_host_bandwidth"),
            _wrong_latency(self.intra_host_latency_s, "intra_host_latency_s"),
            _wrong_latency(self.inter_host_latency_s, "inter_host_latency_s"),
            None if self.mesh_devices is None or self.mesh_devices >= 2 else
            f"mesh_devices is {self.mesh_devices}; links that pairs have of their own join 2 devices or more",
        )  # fmt: skip


@noun
class Disk:
    """A host's disk for tables with kernel key_value, with the speeds that training sees.

    bandwidth: bytes per second of many concurrent reads.
    reads_per_s: random reads of `access_bytes` per second, bypassing the page cache (`recsmith measure disk`).
    access_bytes: bytes of the smallest read.
    """

    bandwidth: float
    reads_per_s: float
    access_bytes: int = 4096

    def __post_init__(self) -> None:
        check_rules(
            _wrong_speed(self.bandwidth, "bandwidth of the disk"),
            None if 1 <= self.reads_per_s <= FASTEST else
            f"reads_per_s of the disk is {self.reads_per_s}; it must lie between 1 and {FASTEST:g}",
            _wrong_bytes(self.access_bytes, "access_bytes of the disk"),
        )  # fmt: skip


@noun
class Cluster:
    """`hosts` hosts of `local_world_size` identical devices; rank r is on host r // local_world_size.

    hbm_bytes: device memory, one figure or one per rank, if it differs from the device's.
    reserve_bytes: memory kept free on every device for everything but embedding tables (dense model, activations). None
        if unknown: planning then uses an estimate, unless hbm_bytes is given.
    ddr_bytes_per_host, ssd_bytes_per_host: host memory and disks for tables outside device memory.
    disk: how fast a host reads and writes rows on its disks.
    replication: for a cluster that is one sharding group of a 2D job (made by `sharding_group`), its replication.
    devices_per_tray: devices run by one operating system, if the fast links of a host join several such machines, as in
        an NVLink rack; TorchRec then calls the host a pod, and the trays hosts. None: a host is one machine.
    """

    device: Device
    local_world_size: int
    hosts: int = 1
    links: Links
    hbm_bytes: int | tuple[int, ...] | None = None
    reserve_bytes: int | None = 0
    ddr_bytes_per_host: int | None = None
    ssd_bytes_per_host: int | None = None
    disk: Disk | None = None
    sources: tuple[str, ...] = ()
    replication: Replication | None = None
    devices_per_tray: int | None = None

    def __post_init__(self) -> None:
        if self.local_world_size < 1 or self.hosts < 1 or self.world_size > LARGEST_WORLD:
            raise UsageError(
                f"the cluster has {counted(self.hosts, 'host')} of {counted(self.local_world_size, 'device')}; "
                f"both must be at least 1 and their product at most {LARGEST_WORLD:,}"
            )
        if isinstance(self.hbm_bytes, tuple) and len(self.hbm_bytes) != self.world_size:
            raise UsageError(
                f"hbm_bytes lists {counted(len(self.hbm_bytes), 'device')}, the cluster has {self.world_size}; "
                "give one per rank"
            )
        least = min(self.hbm_per_rank)
        check_rules(
            _wrong_bytes(self.reserve_bytes, "reserve_bytes", least=0),
            _wrong_bytes(self.ddr_bytes_per_host, "ddr_bytes_per_host", least=0),
            _wrong_bytes(self.ssd_bytes_per_host, "ssd_bytes_per_host", least=0),
            _wrong_bytes(least, "hbm_bytes") or _wrong_bytes(max(self.hbm_per_rank), "hbm_bytes"),
            self.replication and _wrong_layout(self.replication, self.world_size, self.local_world_size),
            None if (self.devices_per_tray or 1) >= 1 else
            f"devices_per_tray is {self.devices_per_tray}; a tray has at least 1 device",
        )  # fmt: skip
        if least <= (self.reserve_bytes or 0):
            reserve = format_size(self.reserve_bytes or 0)
            raise UsageError(
                f"the reserve of {reserve} leaves nothing of a device's {format_size(least)}; reserve less"
            )

    @property
    def world_size(self) -> int:
        """Number of devices; for a sharding group, those of the group."""
        return self.hosts * self.local_world_size

    @property
    def machine_devices(self) -> int:
        """Devices run by one operating system: those of a tray if trays fill the host exactly, else of the host."""
        tray = self.devices_per_tray or self.local_world_size
        return self.local_world_size if self.local_world_size % tray else tray

    @property
    def ring_bandwidth(self) -> float:
        """Bytes per second of the slowest link in a ring of all devices: that between hosts if there are several."""
        return self.links.inter_host_bandwidth if self.hosts > 1 else self.links.intra_host_bandwidth

    @property
    def job_world_size(self) -> int:
        """Number of devices of the whole job, over all sharding groups."""
        return self.world_size * (self.replication.replicas if self.replication else 1)

    @property
    def job_local_world_size(self) -> int:
        """Number of devices on a host of the whole job."""
        return self.replication.job_local_world_size if self.replication else self.local_world_size

    @property
    def fully_sharded(self) -> bool:
        """Whether replicas share one copy of the weights while dense layers run."""
        return self.replication is not None and self.replication.fully_sharded

    def rank_in_group(self, rank: int) -> int:
        """The position of a rank of the job in its sharding group: the rank itself if the job is one group."""
        if self.replication is None:
            return rank
        blocks = self.replication.use_inter_host_allreduce
        return rank % self.world_size if blocks else rank // self.replication.replicas

    @property
    def hbm_per_rank(self) -> tuple[int, ...]:
        """Device memory of each rank, before the reserve."""
        if isinstance(self.hbm_bytes, tuple):
            return self.hbm_bytes
        return (self.device.hbm_bytes if self.hbm_bytes is None else self.hbm_bytes,) * self.world_size

    @property
    def capacities(self) -> tuple[int, ...]:
        """Device memory of each rank that is available to tables."""
        return tuple(size - (self.reserve_bytes or 0) for size in self.hbm_per_rank)

    def with_memory(self, hbm_bytes: int | None = None, reserve_bytes: int | None = None) -> "Cluster":
        """The same cluster with another device memory or reserve."""
        return replace(
            self,
            hbm_bytes=self.hbm_bytes if hbm_bytes is None else hbm_bytes,
            reserve_bytes=self.reserve_bytes if reserve_bytes is None else reserve_bytes,
        )

    def __repr__(self) -> str:
        """Short text, as in reports."""
        return f"Cluster({self.describe()})"

    def describe(self) -> str:
        """Short text for a report: device, hosts, memory, and the sharding groups of a 2D job."""
        replication = self.replication
        local = self.job_local_world_size
        hosts = f"x{self.job_world_size // local}" if self.job_world_size > local else ""
        least, most = min(self.hbm_per_rank), max(self.hbm_per_rank)
        memory = format_size(least) if least == most else f"{format_size(least)} to {format_size(most)}"
        reserve = f" less {format_size(self.reserve_bytes)} reserve" if self.reserve_bytes else ""
        groups = f"; sharding groups of {self.world_size}, {replication.describe()}" if replication else ""
        return f"{self.device.name}:{local}{hosts}, {memory}{reserve} a device{groups}"


def _wrong_layout(replication: Replication, group_size: int, local_world_size: int) -> str | None:
    """Message for a group that no job can have, as jobs fill hosts and so fix local_world_size; None if possible."""
    devices, local = group_size * replication.replicas, replication.job_local_world_size
    if devices % local or devices > LARGEST_WORLD:
        return (
            f"{replication.replicas} sharding groups of {group_size} devices are {devices}; "
            f"they must fill hosts of {local} and be at most {LARGEST_WORLD:,}"
        )
    expected = replication.group_local_world_size(group_size)
    if local_world_size != expected:
        return (
            f"local_world_size of the sharding group is {local_world_size}; {expected} of its neighbouring ranks share "
            f"a host of {local} in this layout: set it to {expected}"
        )
    return None
