# pyright: basic
"""Hardware `cpu`: FBGEMM's CPU kernels on one thread, in process CPU time, which neighbours disturb least.

Caches are as the previous repetition left them; nothing is flushed. Freed memory is kept for the next repetition, as
jemalloc and tcmalloc do, which PyTorch's guides advise for CPUs.
"""

import ctypes
import platform
import time
from collections.abc import Callable
from typing import Any

import torch

from recsmith.hardware.case import Scale
from recsmith.hardware.fused import FusedHardware
from recsmith.hardware.machine import describe_cpu

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
KEPT_BYTES = 2**30  # blocks of up to this size are kept, and as much at the end of the heap


class Cpu(FusedHardware):
    """This machine's CPU, one core of it."""

    name = "cpu"

    def __init__(self, scale: Scale, versions: str) -> None:
        torch.set_num_threads(1)
        _keep_freed_memory()
        super().__init__(scale, versions, torch.device("cpu"))
        self.device = describe_cpu()

    def _timed(self, call: Callable[[], Any]) -> tuple[Any, float, float]:
        wall, begun = time.perf_counter(), time.process_time()
        value = call()
        ended = time.process_time()
        return value, ended - begun, time.perf_counter() - wall


def _keep_freed_memory() -> None:
    """Have glibc keep what is freed; it would map outputs of more than 32 MiB anew each time, and every page faults.

    Before glibc 2.35 the threshold cannot be raised so far, and other C libraries have no mallopt: all stays as it was.
    """
    if platform.libc_ver()[0] == "glibc":
        for option in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
            ctypes.CDLL(None).mallopt(option, KEPT_BYTES)
