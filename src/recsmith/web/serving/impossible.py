"""Problems without a plan in the words of the page: what is too small, and changes that are buttons there.

Where the weights alone are more than all devices hold, that is said at once, without a search.
"""

import math
import re
from dataclasses import replace

from recsmith.clusters import Cluster
from recsmith.errors import Infeasible, RecSmithError
from recsmith.files import encode
from recsmith.problems import Space
from recsmith.sharding import DEVICE_KERNELS, UVM_CACHING
from recsmith.units import counted, format_size, parse_size
from recsmith.web.serving.answers import Fix
from recsmith.web.serving.requests import ProblemChanges
from recsmith.web.serving.views import devices_per_host
from recsmith.workloads import Workload

SPARE = 1.1  # times the weights: room that optimizer states and buffers of small batches take at the least
CHECKED = re.compile(r" ?(Proved\. )?(Checked to work: .*|No single change that was tried is enough)\.?$", re.DOTALL)


class TooLarge(Infeasible):
    """The weights alone are more than the devices hold. fixes: what may help."""

    def __init__(self, message: str, fixes: tuple[Fix, ...]) -> None:
        super().__init__(message)
        self.fixes = fixes


def check_sums(workload: Workload, cluster: Cluster, space: Space) -> None:
    """Raise TooLarge where the weights alone are more than all devices hold, and none may be outside device memory."""
    room = sum(cluster.hbm_per_rank) - cluster.world_size * (cluster.reserve_bytes or 0)
    if workload.weight_bytes <= room or any(kernel not in DEVICE_KERNELS for kernel in space.kernels):
        return
    fixes = [_more_devices(workload, cluster, room)]
    if cluster.device.kind == "cuda" and cluster.ddr_bytes_per_host and cluster.device.host_link_bandwidth:
        fixes.append(_host_memory(space))
    raise TooLarge(
        f"The tables weigh {format_size(workload.weight_bytes)}, and {counted(cluster.world_size, 'device')} "
        f"offer{'s' if cluster.world_size == 1 else ''} {format_size(room)}: there is no plan.",
        tuple(fixes),
    )


def _more_devices(workload: Workload, cluster: Cluster, room: float) -> Fix:
    """The least number of devices whose memory is enough, in whole hosts where one host is too small."""
    devices = math.ceil(SPARE * workload.weight_bytes / (room / cluster.world_size))
    local = max(cluster.local_world_size, devices_per_host(cluster) or 1)
    hosts = -(-devices // local)
    return _devices(hosts, devices if hosts == 1 else local)


def _devices(hosts: int, local: int) -> Fix:
    return Fix(text=counted(hosts * local, "device"), changes=ProblemChanges(hosts=hosts, local_world_size=local))


def _host_memory(space: Space) -> Fix:
    return Fix(text="allow host memory", space=replace(space, kernels=(*space.kernels, UVM_CACHING.name)))


def explained(error: RecSmithError, cluster: Cluster, space: Space) -> tuple[str, list[dict[str, object]]]:
    """The sentence of an error without the command line's options, and what it says would help, for buttons."""
    fixes = list(error.fixes) if isinstance(error, TooLarge) else _fixes_in(str(error), cluster, space)
    said = CHECKED.sub("", str(error)) if fixes else str(error)
    return said, [encode(fix) for fix in fixes]


def _fixes_in(message: str, cluster: Cluster, space: Space) -> list[Fix]:
    """Changes that were checked to work, as the sentence names them for the command line."""
    found: list[Fix] = []
    if size := re.search(r"--hbm (\S+?GiB)", message):
        found.append(Fix(text=f"{size[1]} of memory a device", changes=ProblemChanges(hbm_bytes=parse_size(size[1]))))
    if "--reserve 0" in message:
        found.append(Fix(text="keep nothing free for other layers", changes=ProblemChanges(reserve_bytes=0)))
    if hosts := re.search(r"\d[\d,]* devices? \((\d[\d,]*) hosts?\)", message):
        found.append(_devices(int(hosts[1].replace(",", "")), cluster.local_world_size))
    if f"--kernels {','.join(space.kernels)},{UVM_CACHING.name}" in message:
        found.append(_host_memory(space))
    if types := re.search(r"--types (\S+) --widths any", message):
        wide = replace(space, types=tuple(types[1].split(",")), widths="any")
        found.append(Fix(text="allow more sharding types", space=wide))
    return found
