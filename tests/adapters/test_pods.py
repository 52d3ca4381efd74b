"""Pods as makers and users report them: each is planned for, or refused in one sentence that says what to change.

A host of the catalogue is what fast links join; a Topology of TorchRec has hosts and pods of them.
"""

from dataclasses import replace
from typing import NamedTuple

import pytest
from support.build import table, workload

from recsmith import Cluster, load_cluster, plan
from recsmith.errors import UsageError
from recsmith.planning import Result

pytestmark = pytest.mark.usefixtures("torchrec")
NAMED = {  # of the catalogue
    "DGX A100, and p4d.24xlarge of AWS": "a100-40:8", "DGX A100 640 GB": "a100-80:8",
    "a2-megagpu-16g of Google": "a100-40:16", "20 DGX A100, a unit of NVIDIA's SuperPOD": "a100-80:8x20",
    "16 ZionEX hosts (Mudigere et al., ISCA 2022)": "a100-40:8x16", "DGX-1 V100": "v100-32:8", "DGX-2": "v100-32:16",
    "Big Basin of 16 hosts": "v100-32:8x16", "DGX H100, and p5.48xlarge": "h100:8",
    "32 DGX H100, a unit of a SuperPOD": "h100:8x32", "half a host": "h100:4",
    "MLPerf DLRM-v2 on 16 hosts": "h100:8x16", "DGX H200, and p5e.48xlarge": "h200:8", "HGX H200 of 4": "h200:4",
    "DGX B200": "b200:8", "32 DGX B200": "b200:8x32", "DGX B300": "b300:8", "64 DGX B300": "b300:8x64",
    "GB200 NVL72": "gb200:72", "8 racks of GB200, a SuperPOD": "gb200:72x8", "half a rack": "gb200:36",
    "a tray": "gb200:4", "GB300 NVL72": "gb300:72", "8 racks of GB300": "gb300:72x8",
    "ND MI300X v5 of Azure": "mi300x:8", "16 hosts of MI300X": "mi300x:8x16", "MI325X platform": "mi325x:8",
    "MI350X platform": "mi350x:8", "MI355X platform": "mi355x:8", "MI355X rack of 8 hosts": "mi355x:8x8",
    "g5.48xlarge": "a10g:8", "g6.48xlarge": "l4:8", "g6e.48xlarge": "l40s:8",
}  # fmt: skip


class Pod(NamedTuple):
    """A topology of TorchRec: ranks, ranks a host, and hosts a pod."""

    ranks: int
    host: int
    pod: int


PODS = {
    "GB200 NVL72: 18 trays": Pod(72, 4, 18), "8 racks": Pod(576, 4, 18),
    "two racks of GB200 NVL36, apart": Pod(72, 4, 9), "a rack that lent 2 trays": Pod(64, 4, 16),
    "hosts as pods of their own": Pod(256, 8, 1), "two hosts a pod": Pod(32, 8, 2),
}  # fmt: skip
REFUSED = {
    "100 trays in racks of 18": (Pod(400, 4, 18), "pods of 18 hosts of 4 devices do not tile the topology's 400"),
    "a rack and a tray": (Pod(76, 4, 18), "pods of 18 hosts of 4 devices do not tile the topology's 76"),
    "devices of two meshes in one host": (
        "mi355x:16",
        "has hosts of 16 devices, and their links join 8; ask for 8 or fewer",
    ),
    "no device": ("h100:0", "the cluster has 1 host of 0 devices; both must be at least 1"),
    "more devices a host than its links join": (
        "mi300x:72",
        "has hosts of 72 devices, and their links join 8; ask for 8 or fewer",
    ),
}


def planned(cluster: Cluster) -> Result:
    """A plan of a few tables, of which one is split by rows over all ranks where that is possible."""
    tables = [table(f"t{i}", 40_000 * (i + 1), 64, pooling_factor=4.0) for i in range(6)]
    return plan(workload(*tables, batch_size=64), replace(cluster, reserve_bytes=0), planner="size_greedy")


def check(cluster: Cluster, ranks: int) -> None:
    found = planned(cluster).plan
    assert len(found.cost.per_device) == ranks == cluster.world_size
    assert not found.cost.overfull
    assert 0 < found.cost.total_s < 1


def read(pod: Pod) -> Cluster:
    from torchrec.distributed.planner import Topology

    from recsmith.adapters.topology import read_cluster

    return read_cluster(
        Topology(world_size=pod.ranks, local_world_size=pod.host, pod_size=pod.pod, compute_device="cuda")
    )


@pytest.mark.parametrize("name", NAMED)
def test_a_reported_host_is_planned_for(name: str) -> None:
    shape = NAMED[name].partition(":")[2]
    per_host, _, hosts = shape.partition("x")
    check(load_cluster(NAMED[name]), int(per_host) * int(hosts or 1))


@pytest.mark.parametrize("name", PODS)
def test_a_topology_with_pods_is_planned_for_and_given_back(name: str) -> None:
    from recsmith.adapters.topology import to_topology

    pod = PODS[name]
    cluster = read(pod)
    check(cluster, pod.ranks)
    again = to_topology(cluster)
    assert (again.world_size, again.local_world_size) == (pod.ranks, pod.host)
    assert cluster.local_world_size == pod.host * pod.pod


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_pod_looks_like_is_refused_in_one_sentence(name: str) -> None:
    shape, words = REFUSED[name]
    with pytest.raises(UsageError, match=words) as error:
        read(shape) if isinstance(shape, Pod) else load_cluster(shape)
    text = str(error.value)
    assert "\n" not in text
    assert ". " not in text
