"""Makes an execution graph of captured traces: each rank's steps become a tape, and collectives join the ranks."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from recsmith.errors import CorruptFile, UsageError
from recsmith.prediction.captures import CaptureAbout, graph_name
from recsmith.prediction.device_steps import DeviceRun, TracedDevice, calls_within, device_marks, device_of, has_device
from recsmith.prediction.graph import CollectiveRun, Event, Graph, Kind, Tape, check_graph
from recsmith.prediction.host_steps import LABELS, Piece, marks_of, nodes_of, pieces_of
from recsmith.prediction.kernels import with_caches
from recsmith.prediction.kernels.times import usual
from recsmith.prediction.kineto import ISSUING, LANE, Trace, TraceSpan, first_uses
from recsmith.prediction.operators import BYTES

NAMES = {"alltoall_base_": "all_to_all", "alltoall_": "all_to_all", "allreduce_": "all_reduce",
         "allreduce_coalesced_": "all_reduce", "_allgather_base_": "all_gather", "allgather_": "all_gather",
         "_reduce_scatter_base_": "reduce_scatter", "reduce_scatter_": "reduce_scatter", "broadcast_": "broadcast",
         "barrier": "barrier"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RankSteps:
    """The usable steps of a rank: the same events in each, and its collectives with their seconds.

    varies: the numbers of the operators differed from step to step, so one step stands for all.
    """

    rank: int
    steps: list[list[Piece]]
    names: list[str]
    bytes: list[float]
    seconds: list[list[float]]  # seconds of each collective, step by step
    lanes: int
    unknown: Counter[str]
    dropped: int
    varies: bool = False


def rank_steps(trace: Trace, about: CaptureAbout, graph: Path) -> RankSteps:
    """The steps of a rank's trace that have the same operators, cut into events; the graph is of the first step.

    Raises:
        UsageError: no other step has the operators of the first.
        CorruptFile: the trace holds too few whole steps or lost events, or trace and graph are of different steps.
    """
    device = device_of(trace) if has_device(trace) else None
    cut = [(step, _operators(trace, step, device)) for step in trace.steps]
    cut = [(step, spans) for step, spans in cut if spans]
    if len(cut) < 2:
        raise CorruptFile(f"'{trace.source}' holds {len(cut)} whole steps; capture at least one beside the graph's")
    uses = first_uses(graph.parent / graph_name(about.rank)) if not graph.is_file() else first_uses(graph)
    reference = cut[0][1]
    same = [(step, _with_inputs(spans, reference)) for step, spans in cut[1:] if _names(spans) == _names(reference)]
    varies = not same and any(set(_names(spans)) == set(_names(reference)) for _, spans in cut[1:])
    if varies:  # lengths of histories differ: the profiled step stands for all, scaled to their length
        same = cut[:1]
    if not same:
        raise UsageError(
            f"no step of '{trace.source}' has the operators of its first one ({len(reference):,}); capture steps that "
            "do the same work, without an evaluation or a checkpoint between them"
        )
    lanes = {} if device else _runs(trace, same if varies else cut[1:])
    steps: list[list[Piece]] = []
    seconds: list[list[float]] = []
    unknown: Counter[str] = Counter()
    for step, operators in same:
        spans = _with_calls(step, operators, device) if device else operators
        nodes, waits = nodes_of(spans), _waits(spans, uses)
        if device is None:
            runs = lanes[step.begin]
            marks, took = marks_of(nodes, waits, [run.end for run in runs]), [run.end - run.begin for run in runs]
        else:
            marks, ran = device_marks(nodes, device, waits)
            took = [_nccl_s(trace, about, run) for run in ran]
        named = [span for span in trace.annotations if span.thread == step.thread
                 and step.begin <= span.begin and span.end <= step.end]  # fmt: skip
        pieces = pieces_of(step, nodes, marks, named, about)
        steps.append(_as_long(pieces, step, about) if varies else pieces)
        seconds.append(took)
        unknown = Counter(mark.label for mark in marks if mark.kernel and mark.kernel.kind == "other")
    _check_alike(trace, steps)
    issues = [span for span in reference if span.name.startswith(ISSUING)]
    return RankSteps(
        rank=about.rank, steps=steps, names=[_collective_name(span) for span in issues],
        bytes=[_bytes(span) for span in issues], seconds=[list(each) for each in zip(*seconds, strict=True)],
        lanes=max(1, len({run.thread for runs in lanes.values() for run in runs})), unknown=unknown,
        dropped=0 if varies else len(cut) - 1 - len(same), varies=varies,
    )  # fmt: skip


def _as_long(pieces: list[Piece], step: TraceSpan, about: CaptureAbout) -> list[Piece]:
    """The pieces of the profiled step, with host seconds scaled to a step without the profiler."""
    share = min(1.0, about.plain_step_s / (step.end - step.begin))
    return [piece._replace(seconds=piece.seconds * share) for piece in pieces]


def _operators(trace: Trace, step: TraceSpan, device: TracedDevice | None) -> list[TraceSpan]:
    """Operators of a step on its own thread; in a GPU job, also those on the threads of autograd.

    On a GPU, the backward pass runs on a thread of its own, while the step's thread waits for it.
    """
    within = [span for span in trace.operators if step.begin <= span.begin and span.end <= step.end]
    threads = {step.thread}
    if device is not None:
        threads |= {span.thread for span in within if span.name.startswith(LABELS)}
    return [span for span in within if span.thread in threads]


def _with_calls(step: TraceSpan, operators: Sequence[TraceSpan], device: TracedDevice) -> list[TraceSpan]:
    """Operators of a step of a GPU job, and the runtime's calls on their threads."""
    threads = {step.thread, *(span.thread for span in operators)}
    calls = [span for span in calls_within(device, step) if span.thread in threads]
    return sorted((*operators, *calls), key=lambda span: (span.begin, -span.end))


def _nccl_s(trace: Trace, about: CaptureAbout, run: DeviceRun | None) -> float:
    """Seconds of a collective; 0 on a single rank, for which NCCL runs no kernel."""
    if run is None and about.ranks > 1:
        raise CorruptFile(f"'{trace.source}' has a collective without a kernel of NCCL; capture whole steps")
    return run.seconds if run else 0.0


def _check_alike(trace: Trace, steps: Sequence[Sequence[Piece]]) -> None:
    """Raise CorruptFile if steps with the same operators are cut into different events: the profiler lost some."""
    kinds = [[(piece.kind, piece.collective) for piece in step] for step in steps]
    odd = next((number for number, each in enumerate(kinds) if each != kinds[0]), None)
    if odd is not None:
        raise CorruptFile(
            f"'{trace.source}' is damaged: its steps have the same operators, but step {odd + 1} of {len(steps)} has "
            f"{len(kinds[odd])} kernels, waits and overheads and step 1 has {len(kinds[0])}, or in another order; the "
            "profiler lost events: capture it again, with fewer --steps if it happens again"
        )


def _names(spans: Sequence[TraceSpan]) -> list[str]:
    return [span.name for span in spans]


def _with_inputs(spans: Sequence[TraceSpan], reference: Sequence[TraceSpan]) -> list[TraceSpan]:
    """Operators of a timed step, with the inputs of the graph's step: profilers are faster without recording them."""
    return [
        span._replace(record=one.record, dims=one.dims, strides=one.strides, types=one.types, values=one.values)
        for span, one in zip(spans, reference, strict=True)
    ]


def _runs(trace: Trace, cut: Sequence[tuple[TraceSpan, Sequence[TraceSpan]]]) -> dict[float, list[TraceSpan]]:
    """The run of each collective of each step (by its start) on gloo's threads: the first after its issue."""
    free, found = list(trace.collectives), dict[float, list[TraceSpan]]()
    for step, spans in cut:
        runs: list[TraceSpan] = []
        for span in spans:
            if not span.name.startswith(ISSUING):
                continue
            name = LANE + _collective_name(span)
            run = next((each for each in free if each.name == name and each.begin >= span.begin), None)
            if run is None:
                raise CorruptFile(
                    f"'{trace.source}' has no run of '{span.name}'; its collectives must be gloo's, and the trace whole"
                )
            free.remove(run)
            runs.append(run)
        found[step.begin] = runs
    return found


def _waits(spans: Sequence[TraceSpan], uses: dict[int, int]) -> dict[int, int]:
    """{place of the operator that first uses a collective's result: place of the collective}."""
    place = {span.record: i for i, span in enumerate(spans)}
    issues = [span.record for span in spans if span.name.startswith(ISSUING)]
    if issues and not any(record in uses for record in issues):
        raise CorruptFile(
            "trace and execution graph are of different steps: no collective of the one is in the other; capture both "
            "at once with recsmith capture"
        )
    return {place[uses[record]]: i for i, record in enumerate(issues) if uses.get(record) in place}


def _collective_name(span: TraceSpan) -> str:
    name = span.name.removeprefix(ISSUING)
    return NAMES.get(name, name.strip("_"))


def _bytes(span: TraceSpan) -> float:
    """The larger of what a rank sends and what it receives, in bytes."""
    sizes = [0.0]
    for dims, type_ in zip(span.dims, span.types, strict=False):
        lists = dims if dims and isinstance(dims[0], list) else [dims] if dims else []
        sizes.append(float(sum(map(math.prod, lists))) * BYTES.get(type_, 4))
    return max(sizes)


def joined(ranks: Sequence[RankSteps], abouts: Sequence[CaptureAbout]) -> Graph:
    """The graph of all ranks: lower quartiles over steps; a collective takes the seconds that its last rank saw.

    Raises:
        UsageError: ranks start different collectives.
    """
    first = ranks[0]
    odd = next((each for each in ranks if each.names != first.names), None)
    if odd is not None:
        raise UsageError(
            f"rank {odd.rank} starts {len(odd.names)} collectives in a step and rank {first.rank} {len(first.names)}, "
            "or others; capture the same step of every rank"
        )
    everyone = tuple(range(len(ranks)))
    collectives = [
        CollectiveRun(
            name=name, bytes=max(rank.bytes[i] for rank in ranks), seconds=_shortest(ranks, i), ranks=everyone
        )
        for i, name in enumerate(first.names)
    ]
    graph = Graph(
        ranks=tuple(_tape(rank.steps) for rank in ranks), collectives=tuple(collectives),
        lanes=max(rank.lanes for rank in ranks), measured_s=max(about.plain_step_s for about in abouts),
    )  # fmt: skip
    check_graph(graph)
    return graph


def _shortest(ranks: Sequence[RankSteps], collective: int) -> float:
    """Seconds that the last rank to arrive saw; ranks that arrived before saw their wait as well."""
    seen = zip(*(rank.seconds[collective] for rank in ranks), strict=False)
    return usual([min(step) for step in seen])


def _tape(steps: list[list[Piece]]) -> Tape:
    events: list[Event] = []
    for same in zip(*steps, strict=True):
        first, seconds = same[0], usual([piece.seconds for piece in same])
        if first.kind == Kind.HOST and seconds <= 0:
            continue
        work_s = usual([piece.work_s for piece in same])
        events.append(Event(first.kind, seconds, first.term, first.label, work_s, first.stream, first.collective,
                            first.kernel))  # fmt: skip
    return with_caches(tuple(events))
