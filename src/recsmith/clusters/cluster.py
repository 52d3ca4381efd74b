"""The cluster that a plan is made for: hosts of identical devices, the links between them, and replicas of 2D jobs."""

import math
import re
from dataclasses import replace
from typing import Literal

from recsmith._types import noun
from recsmith.errors import UsageError, check_rules
from recsmith.units import counted, format_size

LARGEST_WORLD = 65_536  # devices; larger clusters are taken for mistakes
SLOWEST, FASTEST = 1.0, 1e18  # bytes per second: slower and faster than anything, and no sum of seconds overflows
LONGEST_LATENCY_S = 60.0  # of a launch or a message: longer ones are taken for another unit
LARGEST_SIZE = 2**53  # bytes; sizes below it are exact as floating-point numbers


@noun
class Replication:
    """How often a sharding group is replicated in a job, how the groups lie over its hosts, and how often they sync.

    replicas: sharding groups of the job, all with the same plan. job_local_world_size: devices of a host of the job.
    steps_per_sync: training steps from one `DMPCollection.sync()` to the next. use_inter_host_allreduce: TorchRec's
    choice of layout. False, its default: group g holds the ranks g, g + replicas, g + 2 replicas and so on, so that
    ranks with the same shards are neighbours. True: groups are blocks of neighbouring ranks. fully_sharded: replicas
    hold one copy of a shard's weights between them while dense layers work, and each the whole of it while its own
    kernels run (TorchRec's ShardingStrategy.FULLY_SHARDED); they are averaged on the way, in every step.
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
        """A few words for a report: `3 replicas, sync every step`."""
        every = "step" if self.steps_per_sync == 1 else f"{self.steps_per_sync} steps"
        how = "fully sharded" if self.fully_sharded else f"sync every {every}"
        return f"{self.replicas} replicas, {how}"

    def group_local_world_size(self, group_size: int) -> int:
        """Neighbouring ranks of a group that always share a host, of a group of so many ranks."""
        stride = 1 if self.use_inter_host_allreduce else self.replicas
        return ranks_on_a_host(group_size, stride, self.job_local_world_size)

    def replicas_on_a_host(self, group_size: int) -> int:
        """Neighbouring ranks with the same shards that always share a host, of groups of so many ranks."""
        stride = group_size if self.use_inter_host_allreduce else 1
        return ranks_on_a_host(self.replicas, stride, self.job_local_world_size)


def ranks_on_a_host(count: int, stride: int, local_world_size: int) -> int:
    """How many of the ranks 0, stride, 2 stride, ... (`count` of them) form blocks that each lie on one host.

    The largest such number. Where the stride does not divide the devices of a host, some blocks of two would lie on two
    hosts, so it is 1.
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
    hbm_bandwidth: device memory.
    host_link_bandwidth: between device and host memory, for tables in host memory.
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
        """Whether a GPU that gives a name is this device: 'NVIDIA A100-SXM4-80GB' is a100-80, by the parts of both.

        Whole parts: 'NVIDIA L40S' is not l4, 'NVIDIA GB200' not b200. A number is also a size in GB: 80 is 80GB.
        """
        found = set(re.findall(r"[a-z0-9]+", name.lower()))
        parts = self.name.lower().split("-")
        return self.kind == "cuda" and all({part, f"{part}gb"} & found for part in parts)


@noun
class Links:
    """What connects devices: bytes per second per device and direction, and seconds per message.

    mesh_devices: where every pair of so many devices of a host has a link of its own: intra_host_bandwidth is that of
        all links of a device, of which fewer devices use fewer.
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
    """A host's disk for tables that stand on it (kernel key_value), as training reads and writes it.

    bandwidth: bytes per second of many reads at once. reads_per_s: random reads of `access_bytes`, the page cache
    bypassed (`recsmith measure disk`). access_bytes: the least that is read at once.
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

    hbm_bytes: device memory, one figure or one per rank, where it differs from the device's.
    reserve_bytes: kept free on every device for what is not an embedding table (dense model, activations). None where
    nobody said: planning then takes an estimate, where hbm_bytes is not given either.
    ddr_bytes_per_host, ssd_bytes_per_host: host memory and disks for tables that live outside device memory.
    disk: how fast a host reads and writes rows that stand on its disks.
    replication: where the cluster is one sharding group of a 2D job (`sharding_group` makes it): what the job is.
    devices_per_tray: that one operating system runs, where the fast links of a host join several such machines, as in a
        rack of NVLink: TorchRec calls the host a pod then, and the trays hosts. None: a host is one machine.
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
        """Number of devices; of a sharding group, those of the group."""
        return self.hosts * self.local_world_size

    @property
    def machine_devices(self) -> int:
        """Devices that one operating system runs: those of a tray, where trays fill the host; otherwise of the host."""
        tray = self.devices_per_tray or self.local_world_size
        return self.local_world_size if self.local_world_size % tray else tray

    @property
    def ring_bandwidth(self) -> float:
        """Bytes a second of the link that a ring of all devices waits for: between hosts, where there are several."""
        return self.links.inter_host_bandwidth if self.hosts > 1 else self.links.intra_host_bandwidth

    @property
    def job_world_size(self) -> int:
        """Number of devices of the whole job: those of all sharding groups."""
        return self.world_size * (self.replication.replicas if self.replication else 1)

    @property
    def job_local_world_size(self) -> int:
        """Number of devices of a host of the whole job."""
        return self.replication.job_local_world_size if self.replication else self.local_world_size

    @property
    def fully_sharded(self) -> bool:
        """Whether replicas hold one copy of weights between them while dense layers work."""
        return self.replication is not None and self.replication.fully_sharded

    def rank_in_group(self, rank: int) -> int:
        """The place in its sharding group of a rank of the job: the rank itself, where the job is one group."""
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
        """Device memory of each rank that tables may take."""
        return tuple(size - (self.reserve_bytes or 0) for size in self.hbm_per_rank)

    def with_memory(self, hbm_bytes: int | None = None, reserve_bytes: int | None = None) -> "Cluster":
        """The same cluster with another device memory or reserve."""
        return replace(
            self,
            hbm_bytes=self.hbm_bytes if hbm_bytes is None else hbm_bytes,
            reserve_bytes=self.reserve_bytes if reserve_bytes is None else reserve_bytes,
        )

    def __repr__(self) -> str:
        """A few words, as in reports."""
        return f"Cluster({self.describe()})"

    def describe(self) -> str:
        """A few words for a report: device, hosts, memory, and the sharding groups of a 2D job."""
        replication = self.replication
        local = self.job_local_world_size
        hosts = f"x{self.job_world_size // local}" if self.job_world_size > local else ""
        least, most = min(self.hbm_per_rank), max(self.hbm_per_rank)
        memory = format_size(least) if least == most else f"{format_size(least)} to {format_size(most)}"
        reserve = f" less {format_size(self.reserve_bytes)} reserve" if self.reserve_bytes else ""
        groups = f"; sharding groups of {self.world_size}, {replication.describe()}" if replication else ""
        return f"{self.device.name}:{local}{hosts}, {memory}{reserve} a device{groups}"


def _wrong_layout(replication: Replication, group_size: int, local_world_size: int) -> str | None:
    """What is wrong with a group that no job has: jobs fill hosts, which decide what ranks of a group share one."""
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
