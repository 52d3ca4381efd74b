"""The clusters that plans are made for: devices, hosts, links and memory; and the catalogue of known devices."""

from recsmith.clusters.cluster import Cluster, Device, Disk, Links, Replication
from recsmith.clusters.files import catalogue, cluster_from_raw, cluster_to_raw, large_host, load_cluster, named_cluster
from recsmith.clusters.sharding_groups import (
    group_and_rank,
    larger_groups,
    of_ranks,
    replica_ring,
    sharding_group,
    whole_job,
)

__all__ = [
    "Cluster", "Device", "Disk", "Links", "Replication", "catalogue", "cluster_from_raw", "cluster_to_raw",
    "group_and_rank", "large_host", "larger_groups", "load_cluster", "named_cluster", "of_ranks", "replica_ring",
    "sharding_group", "whole_job",
]  # fmt: skip
