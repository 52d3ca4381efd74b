"""The machines: devices, hosts, links, memory."""

from recsmith.clusters.cluster import Cluster, Device, Links
from recsmith.clusters.files import catalogue, cluster_from_raw, cluster_to_raw, load_cluster

__all__ = ["Cluster", "Device", "Links", "catalogue", "cluster_from_raw", "cluster_to_raw", "load_cluster"]
