"""A TorchRec Topology read as a cluster."""

import pytest

from recsmith.errors import UsageError

pytestmark = pytest.mark.usefixtures("torchrec")


def test_a_topology_is_read_as_a_cluster() -> None:
    from torchrec.distributed.planner import Topology

    from recsmith import load_cluster
    from recsmith.torchrec import read_cluster

    read = read_cluster(Topology(world_size=16, local_world_size=8, compute_device="cuda"))
    ours = load_cluster("torchrec-default:8x2")
    assert (read.hosts, read.local_world_size, read.capacities) == (2, 8, ours.capacities)
    assert read.ddr_bytes_per_host == ours.ddr_bytes_per_host
    assert read.device.hbm_bandwidth == pytest.approx(ours.device.hbm_bandwidth)
    assert read.device.host_link_bandwidth == pytest.approx(ours.device.host_link_bandwidth)
    assert read.links.intra_host_bandwidth == pytest.approx(ours.links.intra_host_bandwidth)
    assert read.links.inter_host_bandwidth == pytest.approx(ours.links.inter_host_bandwidth)
    assert read_cluster(Topology(world_size=2, compute_device="cpu")).device.kind == "cpu"


def test_pods_of_several_hosts_are_refused() -> None:
    from torchrec.distributed.planner import Topology

    from recsmith.torchrec import read_cluster

    pods = Topology(world_size=16, local_world_size=4, pod_size=8, compute_device="cuda")
    with pytest.raises(UsageError, match="pods of several hosts"):
        read_cluster(pods)
