# pyright: basic
"""Hardware `cpu`: FBGEMM's CPU kernels on one thread, in process CPU time, which other processes disturb least.

Caches are as the previous repetition left them; nothing is flushed. Freed memory is reused by the next repetition, as
with jemalloc and tcmalloc, which PyTorch's guides advise for CPUs.
"""

import time
from collections.abc import Callable
from typing import Any

import torch

from recsmith._process import keep_freed_memory
from recsmith.hardware.case import Scale
from recsmith.hardware.fused_hardware import FusedHardware
from recsmith.jobs.machine import describe_cpu


class Cpu(FusedHardware):
    """This machine's CPU, one core of it."""

    name = "cpu"

    def __init__(self, scale: Scale, versions: str) -> None:
        torch.set_num_threads(1)
        keep_freed_memory()
        super().__init__(scale, versions, torch.device("cpu"))
        self.device = describe_cpu()

    def _timed(self, call: Callable[[], Any]) -> tuple[Any, float, float]:
        wall, begun = time.perf_counter(), time.process_time()
        value = call()
        ended = time.process_time()
        return value, ended - begun, time.perf_counter() - wall
