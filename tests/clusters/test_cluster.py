"""Clusters by name and from files: the catalogue loads, names parse, sizes are checked, memory is per rank."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.build import cluster

from recsmith.clusters import Device, Links, catalogue, cluster_from_raw, cluster_to_raw, load_cluster
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import dump_json, parse

YAML = """\
schema: recsmith/cluster/1
device: {name: mine, hbm_bytes: 16e9, hbm_bandwidth: 1e12, l2_bytes: 1000000, launch_s: 5e-6}
links: {intra_host_bandwidth: 1e11, inter_host_bandwidth: 1e10, intra_host_latency_s: 1e-6}
local_world_size: 2
hosts: 2
hbm_bytes: [8e9, 8e9, 16e9, 16e9]
reserve_bytes: 1000000000
ddr_bytes_per_host: 0
"""


def refusal(**changes: Any) -> str:
    with pytest.raises(CorruptFile) as caught:
        cluster_from_raw(cluster_to_raw(load_cluster("h100:8")) | changes, "c.yaml")
    return str(caught.value)


# --- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", catalogue())
def test_a_catalogue_entry_loads_names_its_sources_and_reads_back(name: str):
    found = load_cluster(name)
    assert found.device.name == name
    assert found.hosts == 1
    assert found.sources
    assert found.capacities == (found.device.hbm_bytes,) * found.local_world_size
    assert cluster_from_raw(parse(dump_json(cluster_to_raw(found)), "c.json"), "c.json") == found


@pytest.mark.parametrize(
    ("name", "shape"), [("h100", (8, 1)), ("h100:4", (4, 1)), ("h100:8x12", (8, 12)), ("a100-80:1x2", (1, 2))]
)
def test_names_say_devices_a_host_and_hosts(name: str, shape: tuple[int, int]):
    found = load_cluster(name)
    assert (found.local_world_size, found.hosts) == shape
    assert found.world_size == shape[0] * shape[1]


def test_the_largest_world_is_65_536():
    assert load_cluster("h100:8x8192").world_size == 65_536
    with pytest.raises(UsageError, match="has 8,193 hosts of 8 devices; both must be at least 1 and their product at"):
        load_cluster("h100:8x8193")


@pytest.mark.parametrize("name", ["h100:0", "h100:8x0", "h100:999999x999999"])
def test_absurd_shapes_are_refused(name: str):
    with pytest.raises(UsageError, match="both must be at least 1"):
        load_cluster(name)


@pytest.mark.parametrize("name", ["h10:8", "h1000:8x12", "H10:8", "h10", "H10"])
def test_an_unknown_device_gets_the_nearest_name(name: str):
    with pytest.raises(UsageError, match="did you mean 'h100'"):
        load_cluster(name)


def test_names_are_taken_in_any_case():
    assert load_cluster("H100") == load_cluster("h100")
    assert load_cluster("A100-80:8X2") == load_cluster("a100-80:8x2")


@pytest.mark.parametrize(
    "name", ["h100:", "h100:8x", "h100:x8", "h100:8x8x8", "h100:-8", "h100:8.5", "h100: 8", "H100:9999999"]
)
def test_a_name_of_another_form_is_told_how_it_is_written(name: str):
    with pytest.raises(UsageError, match=f"'{name}' is neither a file .* write h100:8 for a host of 8, or h100:8x2"):
        load_cluster(name)


def test_a_file_that_is_no_cluster_is_not_taken_for_a_misspelt_device(tmp_path: Path):
    (tmp_path / "c").write_bytes(b"\xff\xff")
    with pytest.raises(CorruptFile, match=r"save it as UTF-8$"):
        load_cluster(str(tmp_path / "c"))


# --- files --------------------------------------------------------------------------------------------------------


def test_a_file_reads_and_reads_back(tmp_path: Path):
    (tmp_path / "c.yaml").write_text(YAML)
    found = load_cluster(str(tmp_path / "c.yaml"))
    assert found.hbm_per_rank == (8 * 10**9, 8 * 10**9, 16 * 10**9, 16 * 10**9)
    assert found.capacities == (7 * 10**9, 7 * 10**9, 15 * 10**9, 15 * 10**9)
    assert found.ddr_bytes_per_host == 0
    assert cluster_from_raw(cluster_to_raw(found), "c") == found
    assert found.describe() == "mine:2x2, 7.451 GiB to 14.9 GiB less 953.7 MiB reserve a device"


def test_one_host_and_no_limits_outside_device_memory_are_the_default():
    raw = cluster_to_raw(cluster())
    assert not {"hosts", "hbm_bytes", "reserve_bytes", "ddr_bytes_per_host", "ssd_bytes_per_host"} & set(raw)
    assert cluster_from_raw(raw, "c").hosts == 1
    assert cluster_from_raw(raw | {"ssd_bytes_per_host": 0}, "c").ssd_bytes_per_host == 0


@settings(max_examples=30)
@given(
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 2**53 - 1),
    st.none() | st.integers(0, 2**53 - 1),
    st.booleans(),
)
def test_what_is_written_reads_back(local: int, hosts: int, size: int, ddr: int | None, listed: bool):
    memory = (size,) * (local * hosts) if listed else size
    made = cluster(hosts, local, hbm_bytes=memory, reserve_bytes=size // 2, ddr_bytes_per_host=ddr)
    assert cluster_from_raw(parse(dump_json(cluster_to_raw(made)), "c.json"), "c.json") == made


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hosts": 0}, "both must be at least 1"),
        ({"hosts": 10**15}, "their product at most 65,536"),
        ({"hosts": "2"}, 'hosts is "2"'),
        ({"local_world_size": True}, "local_world_size is true"),
        ({"hbm_bytes": 0}, "hbm_bytes is 0 bytes"),
        ({"hbm_bytes": -1}, "hbm_bytes is -1 bytes"),
        ({"hbm_bytes": 2**53}, "below 2^53"),
        ({"hbm_bytes": [2**30] * 7 + [0]}, "hbm_bytes is 0 bytes"),
        ({"hbm_bytes": [2**30] * 7}, "lists 7 devices, the cluster has 8; give one per rank"),
        ({"hbm_bytes": "80GiB"}, 'hbm_bytes is "80GiB"'),
        ({"hbm_bytes": ["80"]}, 'hbm_bytes is ["80"]'),
        ({"hbm_bytes": 0.5}, "hbm_bytes is 0.5"),
        ({"reserve_bytes": -1}, "reserve_bytes is -1"),
        ({"reserve_bytes": 2**40}, "the reserve of 1 TiB leaves nothing of a device's 79.2 GiB; reserve less"),
        ({"ddr_bytes_per_host": -1}, "ddr_bytes_per_host is -1"),
        ({"ssd_bytes_per_host": 2**53}, "ssd_bytes_per_host"),
        ({"device": {"name": "x", "hbm_bytes": 1}}, "device.hbm_bandwidth is missing"),
        ({"device": {"name": "x", "hbm_bytes": 1, "hbm_bandwidth": 0}}, "hbm_bandwidth of device 'x' is 0.0"),
        ({"device": {"name": "x", "hbm_bytes": 0, "hbm_bandwidth": 1}}, "hbm_bytes of device 'x' is 0"),
        ({"device": {"name": "x", "hbm_bytes": 1, "hbm_bandwidth": 1, "kind": "tpu"}}, 'device.kind is "tpu"'),
        ({"device": "h100"}, 'device is "h100"'),
        ({"links": {"intra_host_bandwidth": 1, "inter_host_bandwidth": -1}}, "inter_host_bandwidth is -1.0"),
        ({"links": {"intra_bandwidth": 1}}, "did you mean 'intra_host_bandwidth'"),
        ({"world_size": 8}, "world_size is not a known field; did you mean 'local_world_size'"),
        ({"schema": "recsmith/workload/1"}, "expected `recsmith/cluster/1`"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(changes: dict[str, Any], words: str):
    assert words in refusal(**changes)


# --- memory -------------------------------------------------------------------------------------------------------


def test_memory_is_the_devices_unless_it_is_given():
    made = load_cluster("h100:2")
    assert made.hbm_per_rank == (made.device.hbm_bytes,) * 2
    assert made.with_memory(2**30).hbm_per_rank == (2**30,) * 2
    assert made.with_memory(2**30, 2**20).capacities == (2**30 - 2**20,) * 2
    assert made.with_memory(reserve_bytes=1).hbm_per_rank == made.hbm_per_rank
    assert made.with_memory() == made
    assert made.with_memory(2**30).with_memory(reserve_bytes=1).hbm_per_rank == (2**30,) * 2


@pytest.mark.parametrize(("hbm", "reserve"), [(0, None), (None, 2**40), (2**30, 2**30), (2**53, None)])
def test_memory_that_leaves_nothing_is_refused(hbm: int | None, reserve: int | None):
    with pytest.raises(UsageError):
        load_cluster("h100:2").with_memory(hbm, reserve)


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf")])
def test_speeds_are_finite_and_above_0(speed: float):
    with pytest.raises(UsageError, match=r"must lie between 1 and 1e\+18 bytes per second"):
        Links(intra_host_bandwidth=speed, inter_host_bandwidth=1.0)
    with pytest.raises(UsageError, match="must lie above 0 and at most at 60 seconds"):
        Device(name="x", hbm_bytes=1, hbm_bandwidth=1.0, launch_s=speed)


def test_a_report_says_what_was_taken():
    made = load_cluster("h100:8x12").with_memory(60 * 2**30, 10 * 2**30)
    assert made.describe() == "h100:8x12, 60 GiB less 10 GiB reserve a device"
    assert load_cluster("h100:8").describe() == "h100:8, 79.2 GiB a device"


def test_a_machine_is_a_tray_where_trays_fill_the_host():
    rack = load_cluster("gb300:72x2")
    assert (rack.machine_devices, rack.hosts, load_cluster("h100:8").machine_devices) == (4, 2, 8)
    assert [load_cluster(f"gb300:{local}").machine_devices for local in (1, 2, 4, 6, 8)] == [1, 2, 4, 6, 4]
    with pytest.raises(UsageError, match="devices_per_tray is -1; a tray has at least 1 device"):
        replace(rack, devices_per_tray=-1)


def test_hosts_are_no_larger_than_the_mesh_that_joins_their_devices():
    with pytest.raises(UsageError, match="'mi355x:16' has hosts of 16 devices, and their links join 8; ask for 8 or"):
        load_cluster("mi355x:16")
    with pytest.raises(
        UsageError, match="mesh_devices is 1; links that pairs have of their own join 2 devices or more"
    ):
        replace(load_cluster("mi355x:8").links, mesh_devices=1)
