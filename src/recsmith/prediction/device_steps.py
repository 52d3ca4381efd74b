"""The launches of a step of a GPU job: calls of CUDA's runtime, the kernels they start on streams, and waits for them.

Kineto writes each call of the runtime (category cuda_runtime or cuda_driver) and each run on the device (kernel,
gpu_memcpy, gpu_memset) with the same number `correlation`. Kernels of NCCL are the runs of collectives. A call that
synchronises waits for the stream on which most kernels run; a call that synchronises the whole device waits for all
streams.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from recsmith.errors import CorruptFile
from recsmith.prediction.graph import KernelShape, Kind
from recsmith.prediction.host_steps import Mark, OperatorNode, tops_of
from recsmith.prediction.kineto import ISSUING, ODD, Trace, TraceSpan, damage_of, seconds_of, span_of
from recsmith.prediction.operators import kernel_of, kind_of

RUNS = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")
NCCL = "nccl"  # prefix of the names of NCCL's kernels
ONE_STREAM = ("cudaStreamSynchronize", "cudaEventSynchronize", "cuStreamSynchronize", "cuEventSynchronize")
ALL_STREAMS = ("cudaDeviceSynchronize", "cuCtxSynchronize")
NO_SHAPE = (0.0, 0.0, 1.0, 0.0, 0.0)
ON_GPU = {"aten::mean": "reduction", "aten::_foreach_add_": "elementwise", "aten::_foreach_mul_": "elementwise"}
"""Kinds of operators that are a kernel on a GPU, and made of others on CPU."""


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """A run on a device: a kernel, a copy, or a kernel of NCCL."""

    name: str
    seconds: float
    stream: str
    copies: bool

    @property
    def of_nccl(self) -> bool:
        """Whether the run is a collective."""
        return self.name.startswith(NCCL)


@dataclass(frozen=True, slots=True)
class TracedDevice:
    """Runs by correlation; calls of the runtime by start time; the stream of most kernels, and all streams.

    spans: the calls that launch something or wait, as spans of the host.
    """

    runs: dict[int, DeviceRun]
    calls: dict[float, tuple[str, int]]
    spans: tuple[TraceSpan, ...]
    main: str
    streams: tuple[str, ...]


def has_device(trace: Trace) -> bool:
    """Whether a trace is of a GPU job."""
    return any(event.get("cat") == "kernel" for event in trace.device)


def device_of(trace: Trace) -> TracedDevice:
    """The device's part of a trace; CorruptFile if an event lacks its correlation, its thread or its stream."""
    runs: dict[int, DeviceRun] = {}
    calls: dict[float, tuple[str, int]] = {}
    spans: list[TraceSpan] = []
    try:
        for event in trace.device:
            arguments = event["args"]
            if event["cat"] in RUNS:
                runs[int(arguments["correlation"])] = DeviceRun(
                    str(event["name"]) if event["cat"] != "kernel" else function_of(str(event["name"])),
                    seconds_of(event, "dur"),
                    str(arguments.get("stream", event.get("tid"))),
                    event["cat"] != "kernel",
                )
            else:
                spans.append(span_of({**event, "args": None}))
                calls[spans[-1].begin] = (spans[-1].name, int(arguments.get("correlation", -1)))
    except ODD as error:
        raise CorruptFile(
            f"'{trace.source}' is damaged: {damage_of('an event of the device', error)}; capture it again"
        ) from None
    busy: dict[str, float] = {}
    for run in runs.values():
        busy[run.stream] = busy.get(run.stream, 0.0) + (0.0 if run.of_nccl else run.seconds)
    known = tuple(span for span in spans
                  if calls[span.begin][1] in runs or span.name in (*ONE_STREAM, *ALL_STREAMS))  # fmt: skip
    return TracedDevice(runs, calls, known, max(busy, key=busy.__getitem__), tuple(busy))


def calls_within(device: TracedDevice, step: TraceSpan) -> list[TraceSpan]:
    """Calls of a step that launch something or wait."""
    return [span for span in device.spans if step.begin <= span.begin <= step.end]


def device_marks(
    nodes: list[OperatorNode], device: TracedDevice, waits: dict[int, int]
) -> tuple[list[Mark], list[DeviceRun | None]]:
    """The marks of a step in order, and for each collective of the step its run on the device, if there is one.

    waits: {place of an operator: collective}, as of a step on CPU; here the main stream waits instead of the host.
    """
    marks, issued, skip_to = list[Mark](), list[DeviceRun | None](), -1.0
    works = _works(nodes, device)
    for place, (node, top) in enumerate(zip(nodes, tops_of(nodes), strict=True)):
        span = node.span
        if span.begin < skip_to:
            continue
        if place in waits:
            marks.append(Mark(Kind.STREAM_AWAIT, span.begin, span.begin, span.name, top, waits[place],
                              stream=device.main))  # fmt: skip
        name, correlation = device.calls.get(span.begin, ("", -1))
        run = device.runs.get(correlation)
        if span.name.startswith(ISSUING):
            inside = [device.calls.get(each.span.begin, ("", -1))[1] for each in nodes[place : place + 1 + node.inside]]
            runs = [device.runs[each] for each in inside if each in device.runs]
            issued.append(next((each for each in runs if each.of_nccl), None))
            marks.append(Mark(Kind.ISSUE, span.begin, span.end, span.name, top, len(issued) - 1, cost=node.inside,
                              stream=device.main))  # fmt: skip
            skip_to = span.end
        elif span.name == name and run is not None:
            marks.append(Mark(Kind.LAUNCH, span.begin, span.end, run.name, top, kernel=works[place],
                              work_s=run.seconds, stream=run.stream))  # fmt: skip
        elif span.name == name:
            for stream in device.streams if name in ALL_STREAMS else (device.main,):
                marks.append(Mark(Kind.SYNC, span.begin, span.begin, name, top, resumed=span.end, stream=stream))
    return marks, issued


def _works(nodes: Sequence[OperatorNode], device: TracedDevice) -> dict[int, KernelShape]:
    """The shape of each launch of a step, by its place; launches of an operator share its work by their seconds."""
    found: dict[int, tuple[int, DeviceRun]] = {}
    sums, launches = dict[int, float](), Counter[int]()
    for place, node in enumerate(nodes):
        run = device.runs.get(device.calls.get(node.span.begin, ("", -1))[1])
        if run is not None:
            outer = _known(nodes, node.outer, run)
            found[place] = outer, run
            sums[outer] = sums.get(outer, 0.0) + run.seconds
            launches[outer] += 1

    def share(outer: int, run: DeviceRun) -> float:
        if outer < 0:
            return 1.0
        return run.seconds / sums[outer] if sums[outer] > 0 else 1 / launches[outer]

    return {
        place: _kernel(nodes, outer, run)._replace(share=share(outer, run)) for place, (outer, run) in found.items()
    }


def _known(nodes: Sequence[OperatorNode], outer: int, run: DeviceRun) -> int:
    """The innermost operator of known kind around a launch, or -1; a copy counts only for operators that copy."""
    while outer >= 0 and _kind(nodes[outer].span.name) is None:
        outer = nodes[outer].outer
    return -1 if outer >= 0 and run.copies and _kind(nodes[outer].span.name) != "copy" else outer


def _kernel(nodes: Sequence[OperatorNode], outer: int, run: DeviceRun) -> KernelShape:
    if outer < 0:
        return KernelShape("copy" if run.copies else "other", NO_SHAPE)
    span = nodes[outer].span
    return kernel_of(span.name, str(_kind(span.name)), span.dims, span.strides, span.types, span.values)


def _kind(name: str) -> str | None:
    return kind_of(name) or ON_GPU.get(name)


def function_of(name: str) -> str:
    """The function name of a kernel, without its types and arguments, which may take a thousand letters."""
    kept, depth = list[str](), 0
    for letter in name.replace("(anonymous namespace)::", ""):
        depth += letter == "<"
        if depth == 0:
            if letter == "(":
                break
            kept.append(letter)
        depth -= letter == ">"
    return ("".join(kept).split() or [name])[-1]
