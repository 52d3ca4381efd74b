"""The clusters that plans are made for: devices, hosts, links and memory; and the catalogue of known devices."""

from recsmith.clusters.cluster import Cluster, Device, Links
from recsmith.clusters.files import catalogue, cluster_from_raw, cluster_to_raw, load_cluster

__all__ = ["Cluster", "Device", "Links", "catalogue", "cluster_from_raw", "cluster_to_raw", "load_cluster"]
