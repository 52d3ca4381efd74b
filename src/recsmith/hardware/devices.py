# pyright: basic
"""Hardware `cpu` and `cuda`: how each times FBGEMM's kernels (imports torch and FBGEMM).

`cpu` runs FBGEMM's CPU kernels on one thread, timed in process CPU time, which other processes disturb least. Caches
are as the previous repetition left them; nothing is flushed. Freed memory is reused by the next repetition, as with
jemalloc and tcmalloc, which PyTorch's guides advise for CPUs.

`cuda` runs FBGEMM's CUDA kernels, timed between events on the device, with a cold second-level cache. Before every
forward and backward a buffer larger than the cache is written several times: as often as keeps the device busy for
twice the time in which the host queued the kernels of such a call. So the measured seconds contain no waiting for the
host. Then the buffer is read, so that the cache holds nothing that must be written back.
"""

import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from recsmith._process import keep_freed_memory
from recsmith.adapters.installed import NO_DEVICE
from recsmith.errors import UsageError
from recsmith.hardware.case import CaseScale
from recsmith.hardware.fused_hardware import FusedHardware
from recsmith.hardware.fused_tables import GPU_OPTIMIZERS
from recsmith.jobs.machine import describe_cpu


class Cpu(FusedHardware):
    """One core of this machine's CPU."""

    name = "cpu"

    def __init__(self, scale: CaseScale, versions: str) -> None:
        torch.set_num_threads(1)
        keep_freed_memory()
        super().__init__(scale, versions, torch.device("cpu"))
        self.device = describe_cpu()

    def _timed(self, call: Callable[[], Any]) -> tuple[Any, float, float]:
        wall, begun = time.perf_counter(), time.process_time()
        value = call()
        ended = time.process_time()
        return value, ended - begun, time.perf_counter() - wall


FLUSHED_BYTES = 2**30  # bytes written before each call: 0.3 ms of an H100, and 20 times its cache of 50 MiB
CACHES_FLUSHED = 4  # least size of the buffer in second-level caches, on a device with a cache larger than that
MOST_FLUSHES = 16  # most flushes before a call, although the first call takes the host seconds, to load its kernels
MARGIN = 2.0  # device time of flushes over host time of a call; at 1 it is only just hidden (docs/decisions/0010)
FADING = 0.8  # weight of an earlier call's host time at the next call, so that one slow call is soon forgotten
FLOAT_BYTES = 4  # bytes of an element of the buffer
FLUSH_TRIALS = 3  # the fastest of them gives the seconds of a flush

warnings.filterwarnings("ignore", "TBE B200 optimization")  # FBGEMM warns at each optimizer's first backward


class Cuda(FusedHardware):
    """The current CUDA device. runtime, place: another API of events and another device, for tests without a GPU."""

    name = "cuda"
    optimizers = GPU_OPTIMIZERS
    least_s = 0.01  # seconds of repetitions; events are exact, so a third of a CPU's time is enough
    probed_every_s = 1.0  # on an H200 the probe changes by 1 % in minutes, and would take as long as most cases

    def __init__(self, scale: CaseScale, versions: str, runtime: Any = torch.cuda, place: str = "cuda") -> None:
        if not runtime.is_available():
            raise UsageError(NO_DEVICE)
        properties = runtime.get_device_properties(0)
        self._runtime, self._queueing_s, self._flush_s = runtime, 0.0, 0.0
        self._flushed = torch.empty(
            max(FLUSHED_BYTES, CACHES_FLUSHED * properties.L2_cache_size) // FLOAT_BYTES, device=place
        )
        self.device = f"{properties.name}, {properties.multi_processor_count} SMs, cache {properties.L2_cache_size}"
        self._flush_s = min(self._between_events(self._flushed.zero_)[1] for _ in range(FLUSH_TRIALS))
        self._queueing_s = 0.0
        super().__init__(scale, f"{versions}, cuda {torch.version.cuda}", torch.device(place))

    def _timed(self, call: Callable[[], Any]) -> tuple[Any, float, float]:
        """Flush the cache, then time the call by events; the wall clock would include the flush."""
        for _ in range(self._flushes):
            self._flushed.zero_()
        self._flushed.sum()
        value, seconds = self._between_events(call)
        return value, seconds, seconds

    def _between_events(self, call: Callable[[], Any]) -> tuple[Any, float]:
        """The value of a call, and its seconds on the device.

        If the device started before the host had queued all of the call, the next calls get the most flushes.
        """
        start, end = self._runtime.Event(enable_timing=True), self._runtime.Event(enable_timing=True)
        start.record()
        begun = time.perf_counter()
        value = call()
        self._queued(time.perf_counter() - begun, late=start.query())
        end.record()
        end.synchronize()
        return value, start.elapsed_time(end) / 1e3

    def _queued(self, seconds: float, late: bool) -> None:
        most = MOST_FLUSHES * self._flush_s / MARGIN
        self._queueing_s = min(most, most if late else max(seconds, FADING * self._queueing_s))

    @property
    def _flushes(self) -> int:
        """Number of times that the buffer is written before a call, at least 1."""
        return max(1, math.ceil(MARGIN * self._queueing_s / self._flush_s))
