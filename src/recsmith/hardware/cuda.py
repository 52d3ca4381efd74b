# pyright: basic
"""Hardware `cuda`: FBGEMM's CUDA kernels, in the device's own time between events, with a cold second-level cache.

Before every forward and backward a buffer larger than the cache is written. That takes the device longer than the host
needs to queue the kernels behind it, so the times hold no waiting for the host.
"""

from collections.abc import Callable
from typing import Any

import torch

from recsmith.errors import UsageError
from recsmith.hardware.case import Scale
from recsmith.hardware.fused import FusedHardware

FLUSHED_BYTES = 2**30  # written before each call: 0.3 ms of an H100, and 20 times its cache of 50 MiB


class Cuda(FusedHardware):
    """The current CUDA device. runtime, place: another API of events and another device, for rehearsals without one."""

    name = "cuda"

    def __init__(self, scale: Scale, versions: str, runtime: Any = torch.cuda, place: str = "cuda") -> None:
        if not runtime.is_available():
            raise UsageError("no CUDA device is visible to PyTorch; measure cpu, or simulated:h100")
        properties = runtime.get_device_properties(0)
        self._runtime = runtime
        self._flushed = torch.empty(max(FLUSHED_BYTES, 4 * properties.L2_cache_size), dtype=torch.int8, device=place)
        self.device = f"{properties.name}, {properties.multi_processor_count} SMs, cache {properties.L2_cache_size}"
        super().__init__(scale, f"{versions}, cuda {torch.version.cuda}", torch.device(place))

    def _timed(self, call: Callable[[], Any]) -> tuple[Any, float, float]:
        """The wall clock would count the flush too, so it says what the events say."""
        start, end = self._runtime.Event(enable_timing=True), self._runtime.Event(enable_timing=True)
        self._flushed.zero_()
        start.record()
        value = call()
        end.record()
        end.synchronize()
        seconds = start.elapsed_time(end) / 1e3
        return value, seconds, seconds
