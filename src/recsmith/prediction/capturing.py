# pyright: basic
"""Captures steps of a running job on this rank: times by torch.profiler, the graph by its observer (imports torch).

    with capture("trace/"):
        for batch in batches:
            train_step(batch)

A step ends with each `step()` of the optimizer that is the first to call it; a loop without optimizers of torch calls
`.step()` on the object that `capture` returns. The first captured step gives the graph. Observing tensors is slow, so
the times of that step are not used; only that step records the shapes of inputs, since that slows steps down too. One
step is left out after it, and the steps after that are timed. Before them all, some steps run without any profiler, for
comparison. After the last step, the profiler and all hooks are removed.
"""

import gzip
import json
import os
import resource
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from recsmith._version import __version__
from recsmith.prediction.captures import ABOUT_SCHEMA, WORD, CaptureSettings, about_name, graph_name, trace_name
from recsmith.prediction.kernels.times import usual

FEW_FAULTS = 64  # pages that a step maps anew, in a job that keeps the memory it frees


class Capture:
    """A running capture on this rank; `done` is True once its files are written."""

    def __init__(self, folder: str | os.PathLike[str], settings: CaptureSettings) -> None:
        self.folder, self.settings, self.done = Path(folder), settings, False
        self.folder.mkdir(parents=True, exist_ok=True)
        self._ended, self._clock, self._plain_s = 0, StepTimer(), list[float]()
        self._host_s, self._faults = list[float](), list[int]()
        self._host_begun, self._faults_begun = 0.0, 0
        self._pool: Any = None
        self._profiler: Any = None  # the running profiler
        self._graph_trace = b""  # trace of the graph's step, once that step is over
        self._watcher: Any = None
        self._optimizer: Any = None
        self._handle: Any = None

    def __enter__(self) -> "Capture":
        self._handle = register_optimizer_step_post_hook(self._stepped)
        return self

    def __exit__(self, kind: object = None, *_: object) -> None:
        self._unhook()
        if self._watcher is not None:  # the job ended before all steps were captured
            if self._profiler is not None:
                self._profiler.stop()
            self._drop_watcher()
            self._profiler = None
            (self.folder / f".{graph_name(rank())}").unlink(missing_ok=True)
        if kind is None and not self.done:
            warnings.warn(
                f"the job ended after {self._ended:,} steps, before the {self.settings.needed:,} that a capture takes; "
                f"nothing was captured in '{self.folder}': train longer, or ask for fewer steps",
                stacklevel=2,
            )

    def step(self) -> None:
        """Tell the capture that a step is over; with optimizers of torch, a hook calls this."""
        if self.done:
            return
        settings = self.settings
        if settings.skip <= self._ended <= settings.skip + settings.plain:
            self._clock.tick()
        if settings.skip < self._ended <= settings.skip + settings.plain:
            self._host_s.append(time.thread_time() - self._host_begun)
            self._faults.append(mapped_pages() - self._faults_begun)
        self._ended += 1
        captured = self._ended - settings.skip - settings.plain - 1
        if captured == 0:
            self._start()
        elif captured == 1:
            self._watcher.stop()  # freed at the end: threads of collectives may still use it (PyTorch PR 187141)
            self._profiler.stop()
            self._graph_trace, self._profiler = exported(self._profiler), None
        elif captured == 2:  # a step later: events open when a profiler stops must end before another one starts, such
            # as the annotation of the optimizer; otherwise PyTorch writes to memory that it has freed
            self._profiler = profiler(shapes=False)
            self._profiler.start()
        elif captured > 2:
            self._profiler.step()
        if captured == 2 + settings.steps:
            self._finish()
        self._host_begun = time.thread_time()
        self._faults_begun = mapped_pages()

    def _stepped(self, optimizer: Any, *_: object) -> None:
        """Count a step if it is of the optimizer that took the first step."""
        if self._optimizer is None:
            self._optimizer = optimizer
        if optimizer is self._optimizer:
            self.step()

    def _start(self) -> None:
        self._plain_s = self._clock.seconds()
        if statistics.median(self._faults) < FEW_FAULTS:
            self._pool = touched_pool()
        profiler_costs()  # the first operators that a process profiles take several times longer than later ones
        self._profiler = profiler(shapes=True)
        self._watcher = torch.profiler.ExecutionTraceObserver()
        self._watcher.register_callback(str(self.folder / f".{graph_name(rank())}"))
        self._profiler.start()
        self._watcher.start()

    def _drop_watcher(self) -> None:
        if self._watcher is not None:
            self._watcher.unregister_callback()
            self._watcher = None

    def _finish(self) -> None:
        """Write trace, graph and facts about them; the file of facts appears only when the other two are complete."""
        self._unhook()
        self._profiler.stop()
        self._drop_watcher()
        self.done = True
        mine = rank()
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            trace = Path(name) / trace_name(mine)
            write_trace(trace, [self._graph_trace, exported(self._profiler)])
            trace.replace(self.folder / trace.name)
        (self.folder / f".{graph_name(mine)}").replace(self.folder / graph_name(mine))
        self._profiler = self._pool = None
        event_s, annotation_s, launch_s = profiler_costs()
        about = {
            "schema": ABOUT_SCHEMA, "rank": mine, "ranks": dist.get_world_size() if dist.is_initialized() else 1,
            "steps": self.settings.steps, "plain_step_s": usual(self._plain_s),
            "plain_host_s": usual(self._host_s),
            "event_s": event_s, "annotation_s": annotation_s, "launch_s": launch_s,
            "torch": str(torch.__version__), "recsmith": __version__,
        }  # fmt: skip
        written = self.folder / f".{about_name(mine)}"
        written.write_text(json.dumps(about, indent=2) + "\n")
        written.replace(self.folder / about_name(mine))

    def _unhook(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None


def capture(folder: str | os.PathLike[str], *, steps: int = 5, plain: int = 10, skip: int = 3) -> Capture:
    """Capture some steps of the job that runs inside the context, on this rank, into a folder that all ranks share.

    steps: number of timed steps, after one for the graph. plain: number of steps before them that run without a
    profiler. skip: number of steps before those, in which libraries warm up. `recsmith predict FOLDER` reads the
    folder.
    """
    return Capture(folder, CaptureSettings(steps=steps, plain=plain, skip=skip))


def arm(optimizer: Any) -> None:
    """Begin the capture that the environment asks for; an optimizer has just taken its first step."""
    options = json.loads(os.environ.pop(WORD))
    begun = Capture(options.pop("folder"), CaptureSettings(**options))
    begun.__enter__()
    begun._stepped(optimizer)


def rank() -> int:
    """This process's rank, from the process group or else from the launcher."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    return int(os.environ.get("RANK", "0"))


def captured(folder: str | None, **settings: int) -> Any:
    """A capture into a folder, or an empty context if there is no folder."""
    from contextlib import nullcontext

    make: Callable[..., Any] = capture
    return nullcontext() if folder is None else make(folder, **settings)


POOL_BYTES, POOL_BLOCK = 256 * 2**20, 2**16  # memory that is touched before the profiler takes some of it
PROBES = 200  # small steps that are run with and without the profiler to measure its cost per operator


class StepTimer:
    """Times the steps of a loop; on a GPU by events of its stream, whose host may be many steps ahead of it."""

    def __init__(self) -> None:
        self._ends = list[Any]()

    def tick(self) -> None:
        """Mark the end of a step, or the start of the first one."""
        self._ends.append(recorded_event() if on_gpu() else time.perf_counter())

    def seconds(self) -> list[float]:
        """Seconds between the ticks so far; a GPU first finishes its work."""
        if not on_gpu():
            return [later - earlier for earlier, later in pairwise(self._ends)]
        torch.cuda.synchronize()
        return [earlier.elapsed_time(later) / 1e3 for earlier, later in pairwise(self._ends)]


def on_gpu() -> bool:
    """Whether this process works on a GPU."""
    return torch.cuda.is_available() and torch.cuda.is_initialized()


def recorded_event() -> Any:
    """A timing event that is recorded on the GPU's stream now."""
    event: Any = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def profiler(*, shapes: bool) -> Any:
    """A profiler that records every step, with the kernels of a GPU. shapes: whether it records shapes of inputs."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    return torch.profiler.profile(activities=activities, record_shapes=shapes, acc_events=True,
                                  schedule=lambda _: torch.profiler.ProfilerAction.RECORD)  # fmt: skip


def exported(profiler: Any) -> bytes:
    """The gzipped trace of a stopped profiler; call it before another one starts, or times of kernels are lost."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / trace_name(0)
        profiler.export_chrome_trace(str(path))
        return path.read_bytes()


def write_trace(path: Path, parts: Sequence[bytes]) -> None:
    """Write one gzipped trace of the traces that several profilers exported one after the other."""
    traces: list[dict[str, Any]] = [json.loads(gzip.decompress(part)) for part in parts]
    events = [event for trace in traces for event in trace["traceEvents"]]
    path.write_bytes(gzip.compress(json.dumps(traces[0] | {"traceEvents": events}).encode()))


def profiler_costs() -> tuple[float, float, float]:
    """Seconds that the profiler adds to an operator, an annotation and a launch on a GPU.

    Small ones are run with and without the profiler. Seconds are medians of this thread's own time, which other
    processes disturb least. Optimizers annotate their steps.
    """
    left, right, bias = (torch.zeros(4, 4, requires_grad=True) for _ in range(3))
    there = torch.zeros(4, device="cuda" if on_gpu() else "cpu")

    def operate() -> None:
        torch.nn.functional.linear(left, right, bias[0]).sum().backward()

    def annotate() -> None:
        with torch.profiler.record_function("recsmith"):
            pass

    def launch() -> None:
        there.add_(1)

    plain = [_usual(each) for each in (operate, annotate, launch)]
    with profiler(shapes=False) as watching:
        watched = [_usual(each) for each in (operate, annotate, launch)]
    operators = sum(event.device_type.name == "CPU" and not event.name.startswith(("recsmith", "cu"))
                    for event in watching.events())  # fmt: skip
    added = [max(0.0, slow - fast) for slow, fast in zip(watched, plain, strict=True)]
    event_s = added[0] / (operators / PROBES - 1)
    return event_s, added[1], max(0.0, added[2] - event_s) if on_gpu() else 0.0


def touched_pool() -> Any:
    """Map and free memory of the heap; it stays mapped as long as the returned tensor is kept.

    The profiler's records split the free blocks into which tensors are put. Tensors would then get fresh memory, whose
    first touch takes longer than most kernels; with the pool they get memory that was touched before.
    """
    blocks = [torch.zeros(POOL_BLOCK, dtype=torch.uint8) for _ in range(POOL_BYTES // POOL_BLOCK)]
    last = torch.zeros(POOL_BLOCK, dtype=torch.uint8)  # above the others: the process keeps freed memory below it
    del blocks
    return last


def mapped_pages() -> int:
    """Pages that this thread has mapped so far."""
    who = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)  # counted by thread on Linux alone
    return resource.getrusage(who).ru_minflt


def _usual(call: Callable[[], object]) -> float:
    """Median seconds of a call."""
    spent: list[float] = []
    for _ in range(PROBES):
        begun = time.thread_time()
        call()
        spent.append(time.thread_time() - begun)
    return statistics.median(spent)
