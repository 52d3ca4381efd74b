"""The cluster of a job on machines like this one, with the memory that is free now and the speeds of gloo."""

import logging
from dataclasses import replace

import torch
from torchrec.distributed.planner import Topology

from recsmith.adapters.topology import device_type, read_cluster
from recsmith.clusters import Cluster, Links
from recsmith.jobs.machine import free_bytes

TABLES_SHARE = 0.8  # fraction of memory that an auto plan gives to tables; the rest is for batches, outputs, program
GLOO = Links(
    intra_host_bandwidth=2.0e9, inter_host_bandwidth=1.0e9, intra_host_latency_s=2e-4, inter_host_latency_s=4e-4
)
"""What processes of one host reach over gloo: the curves of `recsmith measure kernels` that ship for `cpu`, rounded.

An all_to_all of 2 processes takes 0.14 ms and 3.3 GB/s, of 4 on two cores 0.5 ms and 1.8 GB/s; an all_reduce of 2
0.29 ms and 1.5 GB/s. TorchRec has 600 GiB/s and no latency for it. Between hosts nothing was measured: half is assumed.
"""


def this_cluster(ranks: int, ranks_per_host: int) -> Cluster:
    """The cluster of a job with this many ranks on machines like this one."""
    kind = device_type()
    logging.getLogger("torchrec").setLevel(logging.ERROR)  # TorchRec warns of topologies that are made directly
    if kind == "cuda":
        capacity = torch.cuda.get_device_properties(0).total_memory
        return read_cluster(
            Topology(ranks, kind, hbm_cap=int(capacity * TABLES_SHARE), local_world_size=ranks_per_host)
        )
    capacity = steady(int((free_bytes() or 2**33) * TABLES_SHARE))
    topology = Topology(ranks, kind, ddr_cap=capacity // ranks_per_host, local_world_size=ranks_per_host)
    return replace(read_cluster(topology), links=GLOO)


def steady(size: int) -> int:
    """Bytes rounded down to 5 significant bits, so that a dry run and its job see equal free memory and plan alike."""
    fine = max(0, size.bit_length() - 5)  # rounds down by at most a sixteenth
    return size >> fine << fine
