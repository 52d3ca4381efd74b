"""Cuts a step of a rank's trace into the events of its host thread: overheads T1 to T5, kernels, collectives, waits.

    T1  between two operators of the top level         T4  a launch (of a kernel on a GPU, or of a collective)
    T2  from an operator's begin to its first kernel   T5  between two kernels of an operator, or, of an operator
    T3  from its last kernel to its end                    without kernels, its whole time

Source of the five: Lin et al. (HiPC 2022). A wait for a collective is placed where its result is first used; the time
that the host was blocked there is no overhead. Half of the profiler's cost per operator is subtracted where an operator
begins, and half where it ends.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from recsmith.prediction.captures import CaptureAbout
from recsmith.prediction.graph import KernelShape, Kind
from recsmith.prediction.kineto import TraceSpan
from recsmith.prediction.operators import is_arranging, kernel_of, kind_of

BEFORE, AFTER = "start of step", "end of step"
THEN = " > "  # separates the names of the two operators around a T1
LABELS = "autograd::engine::evaluate_function: "  # prefix of the names of the top level of the backward pass


class Piece(NamedTuple):
    """An event of one step; pieces at the same index in several steps differ only in their seconds."""

    kind: Kind
    term: str
    label: str
    seconds: float
    collective: int = -1
    kernel: KernelShape | None = None
    work_s: float = 0.0
    stream: str = ""


@dataclass(frozen=True, slots=True)
class OperatorNode:
    """An operator of a step: its trace span, index of the operator around it (-1: none), number of operators inside."""

    span: TraceSpan
    outer: int
    inside: int


def nodes_of(spans: Sequence[TraceSpan]) -> list[OperatorNode]:
    """The tree of a step's operators, which are in the order of their start times; outer is -1 at the top level."""
    stack, outer, inside = list[int](), list[int](), [0] * len(spans)
    for place, span in enumerate(spans):
        while stack and spans[stack[-1]].end <= span.begin:
            closed = stack.pop()
            inside[closed] = place - closed - 1
        outer.append(stack[-1] if stack else -1)
        stack.append(place)
    for still_open in stack:
        inside[still_open] = len(spans) - still_open - 1
    return [OperatorNode(span, outer[i], inside[i]) for i, span in enumerate(spans)]


@dataclass(frozen=True, slots=True)
class Mark:
    """A part of a step that is no overhead: a kernel, a launch, a collective's start, or a wait (begin == end).

    work_s, stream: seconds of the launched work, and its stream, or the stream that waits or is waited for.
    """

    kind: Kind
    begin: float
    end: float
    label: str
    top: int
    collective: int = -1
    resumed: float = 0.0  # when the host went on after a wait
    kernel: KernelShape | None = None
    cost: int = 0  # operators inside, each with the profiler's cost
    work_s: float = 0.0
    stream: str = ""


def marks_of(nodes: list[OperatorNode], waits: dict[int, int], ended: Sequence[float]) -> list[Mark]:
    """The marks of a step in order. waits: {place of an operator: collective}; ended: ends of the collectives."""
    marks, skip_to, issued, tops = list[Mark](), -1.0, 0, tops_of(nodes)
    waits = {_outermost(nodes, place): each for place, each in sorted(waits.items(), reverse=True)}
    closed = 0.0  # the last boundary before an operator: the end of one before it, or the start of the one around it
    for place, node in enumerate(nodes):
        span = node.span
        if span.begin < skip_to:
            continue
        ended_before = nodes[place - 1].span.end if place else 0.0
        before = max(closed, ended_before if ended_before <= span.begin else 0.0)
        if place in waits:
            end = ended[waits[place]]
            resumed = min(max(end, before), span.begin)
            marks.append(Mark(Kind.AWAIT, before, before, span.name, tops[place], waits[place], resumed))
        kind = kind_of(span.name) or _unknown(node)
        if span.name.startswith("c10d::") and issued < len(ended):
            marks.append(Mark(Kind.ISSUE, span.begin, span.end, span.name, tops[place], issued, cost=node.inside))
            issued += 1
            skip_to = span.end
        elif kind is not None:
            kernel = kernel_of(span.name, kind, span.dims, span.strides, span.types, span.values)
            marks.append(Mark(Kind.RUN, span.begin, span.end, span.name, tops[place], kernel=kernel, cost=node.inside))
            skip_to = span.end
        closed = max(closed, span.begin if skip_to < span.end else span.end)
    return marks


def _unknown(node: OperatorNode) -> str | None:
    """Kind `other` if an unknown operator does work: it has tensors, and no operators inside; else None."""
    span = node.span
    return "other" if not node.inside and any(span.dims) and not is_arranging(span.name) else None


def _outermost(nodes: list[OperatorNode], place: int) -> int:
    """The outermost kernel around an operator, or the operator itself: the host never waits inside a kernel."""
    found, outer = place, nodes[place].outer
    while outer >= 0:
        if kind_of(nodes[outer].span.name):
            found = outer
        outer = nodes[outer].outer
    return found


def tops_of(nodes: Sequence[OperatorNode]) -> list[int]:
    """The top-level operator around each operator, or itself."""
    tops: list[int] = []
    for place, node in enumerate(nodes):
        tops.append(place if node.outer < 0 else tops[node.outer])
    return tops


def pieces_of(
    step: TraceSpan,
    nodes: list[OperatorNode],
    marks: list[Mark],
    named: Sequence[TraceSpan],
    about: CaptureAbout,
) -> list[Piece]:
    """The events of a step. named: annotations. about: the profiler's cost per operator, annotation and launch."""
    by_top: dict[int, list[Mark]] = {}
    for mark in marks:
        by_top.setdefault(mark.top, []).append(mark)
    edges = _edges([node.span for node in nodes])
    cut = _Cutter(edges, _edges(named), about)
    at, last = step.begin, BEFORE
    for top, node in enumerate(nodes):
        if node.outer >= 0:
            continue
        span, inside = node.span, by_top.get(top, [])
        if inside and inside[0].kind == Kind.AWAIT and inside[0].begin < span.begin:  # before the operator itself
            cut.wait("T1", between(last, span.name), at, inside[0], span.begin)
            inside = inside[1:]
        else:
            cut.host("T1", between(last, span.name), at, span.begin, 2)
        cut.operator(span, inside)
        at, last = span.end, span.name
    cut.host("T1", between(last, AFTER), at, step.end, 1)
    return cut.pieces


def _edges(spans: Sequence[TraceSpan]) -> list[float]:
    return sorted(edge for span in spans for edge in (span.begin, span.end))


def _within(edges: list[float], begin: float, end: float) -> int:
    """Number of edges between two times."""
    return max(0, bisect_left(edges, end) - bisect_right(edges, begin))


def between(one: str, other: str) -> str:
    """The label of T1 between two operators."""
    return one.removeprefix(LABELS) + THEN + other.removeprefix(LABELS)


class _Cutter:
    """Adds pieces one after the other, each without the profiler's cost."""

    def __init__(self, edges: list[float], named: list[float], about: CaptureAbout) -> None:
        self._edges, self._named, self._event_s, self._annotation_s = edges, named, about.event_s, about.annotation_s
        self._launch_s = max(0.0, (about.launch_s or 0.0) - about.event_s)  # the rest is subtracted around a launch
        self.pieces: list[Piece] = []

    def host(self, term: str, label: str, begin: float, end: float, own: int) -> None:
        """Add an overhead. own: number of operator edges at its ends; those inside are counted here."""
        cost = self._event_s * (_within(self._edges, begin, end) + own) / 2
        cost += self._annotation_s * _within(self._named, begin, end) / 2
        self.pieces.append(Piece(Kind.HOST, term, label.removeprefix(LABELS), max(0.0, end - begin - cost)))

    def wait(self, term: str, label: str, begin: float, mark: Mark, until: float) -> None:
        """Add the host's work before a wait, the wait, and the work after it."""
        self.host(term, label, begin, mark.begin, 1)
        self.pieces.append(Piece(Kind.AWAIT, "wait", label.removeprefix(LABELS), 0.0, mark.collective))
        self.host(term, label, mark.resumed, until, 1)

    def operator(self, span: TraceSpan, marks: list[Mark]) -> None:
        """Add an operator of the top level with its marks."""
        if not marks:
            return self.host("T5", span.name, span.begin, span.end, 0)
        at, term = span.begin, "T2"
        for mark in marks:
            if mark.kind in (Kind.AWAIT, Kind.STREAM_AWAIT, Kind.SYNC):
                self.host(term, span.name, at, mark.begin, 1)
                self.pieces.append(Piece(mark.kind, "wait", mark.label, 0.0, mark.collective, stream=mark.stream))
                at = mark.resumed if mark.kind == Kind.AWAIT else max(mark.begin, mark.resumed)
                continue
            self.host(term, span.name, at, mark.begin, 1 if term == "T2" else 2)
            added = self._launch_s if mark.kind == Kind.LAUNCH else mark.cost * self._event_s
            seconds = max(0.0, mark.end - mark.begin - added)
            kind_term = mark.kernel.kind if mark.kernel else "T4"
            self.pieces.append(Piece(mark.kind, kind_term, mark.label, seconds, mark.collective, mark.kernel,
                                     mark.work_s, mark.stream))  # fmt: skip
            at, term = mark.end, "T5"
        self.host("T3", span.name, at, span.end, 1)
        return None
