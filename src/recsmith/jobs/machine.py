"""Processor, free cores and free memory of this machine, as Linux reports them."""

import os
from pathlib import Path


def describe_cpu() -> str:
    """Name, cores and last-level cache; 'unknown' where Linux does not report them."""
    return f"{_model()}, {os.cpu_count()} cores, last cache {_last_cache()}"


def free_bytes() -> int | None:
    """Bytes of memory that programs can still take; None where Linux does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), None)


def free_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown processor")


def _last_cache() -> str:
    """As Linux writes it, such as 32768K."""
    try:
        return Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text().strip()
    except OSError:
        return "unknown"
