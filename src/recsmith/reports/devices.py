"""The catalogue of devices: as a table for people, and as plain data with the sources of every figure."""

from rich.console import Group, RenderableType

from recsmith.clusters import Cluster, catalogue, cluster_to_raw, load_cluster
from recsmith.files import Raw
from recsmith.reports.layout import grid, line
from recsmith.units import format_size, format_speed

DEVICES_SCHEMA = "recsmith/devices/1"
HEADINGS = ("memory", "its speed", "cache", "host link", "in a host", "between", "a host")


def devices_report() -> RenderableType:
    """A row for each device of the catalogue; a dash where no source was found for a figure."""
    made = grid(left=("device",), right=HEADINGS)
    for name in catalogue():
        made.add_row(*_row(load_cluster(name)))
    return Group(
        made,
        line("figures", "memory that a program sees; peak speeds of a device, one direction; sources: --format json"),
        line("use", "--cluster h100:8x12 is 12 hosts of 8; a host of gb200 is its NVLink domain"),
        line(
            "own", "in a YAML file: `schema: recsmith/cluster/1`, `device: {base: h100, name: mine, hbm_bytes: 60GiB}`"
        ),
    )


def _row(cluster: Cluster) -> tuple[str, ...]:
    device, links = cluster.device, cluster.links
    speeds = (device.host_link_bandwidth, links.intra_host_bandwidth, links.inter_host_bandwidth)
    return (
        device.name,
        format_size(device.hbm_bytes),
        format_speed(device.hbm_bandwidth),
        format_size(device.l2_bytes) if device.l2_bytes else "-",
        *(format_speed(speed) if speed else "-" for speed in speeds),
        str(cluster.local_world_size),
    )


def devices_to_raw() -> Raw:
    """One host of each device of the catalogue, as cluster files hold it."""
    return {"schema": DEVICES_SCHEMA, "devices": [cluster_to_raw(load_cluster(name)) for name in catalogue()]}
