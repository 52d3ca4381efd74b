"""Tables on disk (kernel key_value): which tables kernels can keep there, and how long a disk takes for rows.

On CUDA these are FBGEMM's kernels with a cache in device memory, on CPU RecSmith's own (training/systems/tiers/).
"""

from typing import Literal

import numpy as np

from recsmith._types import Floats, noun
from recsmith.clusters import Cluster, Disk
from recsmith.errors import UsageError
from recsmith.sharding.base import KEY_VALUE
from recsmith.sharding.memory import LOG_PART
from recsmith.workloads import Table, Workload

Kind = Literal["cuda", "cpu"]  # kinds of devices


@noun
class KeptOnDisk:
    """The tables that kernels of a kind of device can keep on disk."""

    optimizers: tuple[str, ...]
    data_types: tuple[str, ...]
    sequences: bool


ON_DISK: dict[Kind, KeptOnDisk] = {
    # fbgemm_gpu 1.8, tbe/ssd/training.py: asserts of SSDTableBatchedEmbeddingBags
    "cuda": KeptOnDisk(
        optimizers=("rowwise_adagrad", "partial_rowwise_adam", "adam"), data_types=("fp32", "fp16"), sequences=True
    ),
    "cpu": KeptOnDisk(optimizers=("sgd", "adagrad", "rowwise_adagrad"), data_types=("fp32",), sequences=False),
}


def stays_in_memory(table: Table, kind: Kind) -> str | None:
    """Why no kernel of a kind of device can keep a table on disk; None if one can."""
    known = ON_DISK[kind]
    if table.data_type not in known.data_types:
        return f"{KEY_VALUE.name} on {kind} keeps rows in {' or '.join(known.data_types)}, not {table.data_type}"
    if not table.pooled and not known.sequences:
        return f"{KEY_VALUE.name} on {kind} does not run sequence tables (pooling: none)"
    return None


def static_refused(kernel: str, cluster: Cluster) -> str | None:
    """Why a kernel's cache cannot keep the most read rows (policy static); None if it can."""
    if kernel == KEY_VALUE.name and cluster.device.kind == "cpu":
        return None
    return (
        f"cache policy static is for tables on disk ({KEY_VALUE.name}) on cpu, not for {kernel} on "
        f"{cluster.device.kind}, whose caches keep rows that were read last; take lru"
    )


def check_disk(workload: Workload, cluster: Cluster, memory: str, *, static: bool = False) -> None:
    """Refuse a space with tables on disk if nothing can run them. static: caches keep the most read rows.

    Raises:
        UsageError: the cluster has no disk, no kernel runs the optimizer, the memory accounting has no figure for
            them, or the device has no cache of this policy.
    """
    kind = cluster.device.kind
    optimizers = ON_DISK[kind].optimizers
    if cluster.ssd_bytes_per_host is None:
        raise UsageError(f"kernel {KEY_VALUE.name} keeps tables on disk; give the cluster ssd_bytes_per_host")
    odd = next((name for name in workload.optimizers if name not in optimizers), None)
    if odd is not None:
        raise UsageError(
            f"kernel {KEY_VALUE.name} on {kind} runs {', '.join(optimizers)}, not {odd}; take one of "
            "them, or leave the kernel out"
        )
    refusal = static_refused(KEY_VALUE.name, cluster) if static else None
    if refusal is not None:
        raise UsageError(refusal)
    if memory == "torchrec":
        raise UsageError(
            f"kernel {KEY_VALUE.name} with memory: torchrec, which counts no cache of such tables; take memory: real"
        )


def disk_seconds(disk: Disk, row_bytes: Floats, ranks: int) -> Floats:
    """Seconds (N,) in which a host's disk reads or writes one row for each of its ranks at once.

    This is the longer of the times for its operations and for its bytes; a row is moved in whole accesses.
    """
    accesses: Floats = np.ceil(row_bytes / disk.access_bytes)
    return ranks * accesses * max(1 / disk.reads_per_s, disk.access_bytes / disk.bandwidth)


def log_seconds(disk: Disk, row_bytes: Floats, ranks: int) -> Floats:
    """Seconds (N,) in which a host's disk writes back one row for each of its ranks, through a log (tiers/tables.py).

    A row is written to the log. When the log is full, the whole table is read and written in one pass, which is shared
    by the rows in the log.
    """
    return ranks * 2 * (1 + LOG_PART) * row_bytes / disk.bandwidth
