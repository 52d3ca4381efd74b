"""Predicts the time of a step: walks a graph with the changes asked for, and says what each rank's time consists of.

The critical path is the chain of events, kernels and collectives without a gap that ends with the step. Its segments
add up to the step, so its terms say what would make the step shorter; work that is hidden behind other work is not on
the path.

Legend: I intervals of seconds, as (I, 2) arrays of begin and end.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from recsmith._types import Floats, record
from recsmith.prediction.graph import CollectiveRun, Graph, Kind
from recsmith.prediction.walk import HOST, Cause, Place, Walk, end_of, place_in, walk
from recsmith.prediction.what_if import Latency, WhatIf, apply_what_ifs

ROUNDING = 1e-12  # share of the step below which a time is a rounding error of sums


@record
class RankAccount:
    """Seconds of a rank's step: step_s = active_s + exposed_comm_s + idle_s.

    active_s: some kernel runs. exposed_comm_s: a collective runs and no kernel does (unoverlapped communication).
    idle_s: neither; the host works on overheads, or waits for other ranks.
    """

    rank: int
    step_s: float
    active_s: float
    exposed_comm_s: float
    idle_s: float


def account(walk: Walk) -> list[RankAccount]:
    """The account of every rank, each over the whole step of the job."""
    whole, all_steps = walk.step_s, walk.repeated or walk
    begin = 0.0 if walk.last is None else end_of(all_steps, place_in(walk, walk.last)) - whole
    accounts: list[RankAccount] = []
    for rank, times in enumerate(all_steps.ranks):
        busy = [
            (times.begin[i], times.end[i]) if event.kind == Kind.RUN else (times.work_begin[i], times.work_end[i])
            for i, event in enumerate(all_steps.graph.ranks[rank])
            if event.is_kernel
        ]
        comm = [
            (meeting.begin, meeting.end)
            for meeting, made in zip(all_steps.meetings, all_steps.graph.collectives, strict=True)
            if rank in made.ranks
        ]
        active, either = (covered(_pairs(each, begin, begin + whole)) for each in (busy, busy + comm))
        exposed = either - active if either - active > ROUNDING * whole else 0.0
        idle = whole - active - exposed
        accounts.append(RankAccount(rank=rank, step_s=whole, active_s=active, exposed_comm_s=exposed, idle_s=idle))
    return accounts


def covered(intervals: Floats) -> float:
    """Seconds that at least one of the intervals (I, 2) covers."""
    if not len(intervals):
        return 0.0
    ordered = intervals[np.argsort(intervals[:, 0], kind="stable")]
    reached = np.maximum.accumulate(ordered[:, 1])
    before = np.concatenate([[-np.inf], reached[:-1]])
    return float(np.maximum(reached - np.maximum(ordered[:, 0], before), 0.0).sum())


def _pairs(intervals: list[tuple[float, float]], begin: float, end: float) -> Floats:
    """The intervals (I, 2), cut to the part between two times."""
    return np.clip(np.array(intervals, dtype=np.float64).reshape(-1, 2), begin, end)


@dataclass(frozen=True)
class Prediction:
    """A predicted step. terms: what the critical path is made of, the largest first; they add up to step_s.

    measured_s: seconds of the steps that the graph was captured from, before any what-if. unchanged_s: predicted
    seconds without the what-ifs; None if there are none. notes: sentences for the reader.
    """

    walk: Walk
    ranks: list[RankAccount]
    terms: dict[str, float]
    measured_s: float | None
    notes: tuple[str, ...] = ()
    unchanged_s: float | None = None

    @property
    def step_s(self) -> float:
        """Seconds of the step."""
        return self.walk.step_s

    @property
    def kernels_s(self) -> float:
        """Seconds if nothing overlapped: kernels of the rank that has most of them, and all collectives."""
        sums = [0.0] * len(self.walk.graph.ranks)
        for rank, event in self.walk.graph.kernels():
            sums[rank] += event.work_s or event.seconds
        return max(sums, default=0.0) + sum(each.seconds for each in self.walk.graph.collectives)


def no_latency(_: CollectiveRun) -> float:
    """Latency of a collective if it is not known: 0, so that all of its time depends on the link's speed."""
    return 0.0


def predict_graph(
    graph: Graph, what_ifs: tuple[WhatIf, ...] = (), notes: tuple[str, ...] = (), latency: Latency = no_latency
) -> Prediction:
    """The predicted step of a graph after the what-ifs; UsageError if its ranks wait for each other forever."""
    walked = walk(apply_what_ifs(graph, what_ifs, latency))
    unchanged = walk(graph).step_s if what_ifs else None
    return Prediction(walk=walked, ranks=account(walked), terms=terms_of(critical_path(walked)),
                      measured_s=graph.measured_s, notes=notes, unchanged_s=unchanged)  # fmt: skip


GAP = "stream gap"  # term of the microsecond between two kernels of a stream


class Segment(NamedTuple):
    """A stretch of the critical path, in seconds from the start of the step."""

    rank: int
    begin: float
    end: float
    term: str
    label: str


def critical_path(walk: Walk) -> list[Segment]:
    """The segments of a walk's critical path, first to last; they join without gaps, from 0 to the end of the step.

    On a GPU they are those of the step before the last: work at the end of a step may have had slack, which the work
    that it began after, a step earlier, had not.
    """
    if walk.last is None:
        return []
    path, all_steps = list[Segment](), walk.repeated or walk
    place: Place | None = place_in(walk, walk.last)
    end = end_of(all_steps, place) - (walk.step_s if walk.repeated else 0.0)
    begin = end - walk.step_s
    while place is not None and not (path and path[-1].begin <= begin):
        place = (_host if place[0] == "host" else _elsewhere)(all_steps, path, *place)
    path.reverse()
    cut = [each._replace(begin=max(each.begin, begin) - begin, end=min(each.end, end) - begin) for each in path]
    return [each for each in cut if each.end > each.begin]


def terms_of(path: list[Segment]) -> dict[str, float]:
    """Seconds of each term of a path, the largest first."""
    terms: dict[str, float] = {}
    for each in path:
        terms[each.term] = terms.get(each.term, 0.0) + each.end - each.begin
    return dict(sorted(terms.items(), key=lambda item: -item[1]))


def _host(walk: Walk, path: list[Segment], _: str, rank: int, event: int) -> Place | None:
    """Follow a host thread back to its start, or to a wait that something else ended."""
    times, tape = walk.ranks[rank], walk.graph.ranks[rank]
    while event >= 0:
        kind, cause = tape[event].kind, times.cause[event]
        if kind in (Kind.AWAIT, Kind.SYNC) and cause != HOST:
            return _place(rank, cause, event)
        path.append(Segment(rank, times.begin[event], times.end[event], tape[event].host_term, tape[event].label))
        event -= 1
    return None


def _elsewhere(walk: Walk, path: list[Segment], where: str, rank: int, which: int) -> Place | None:
    """Add a kernel of a stream, or a collective, to the path; return the place that it began after."""
    if where == "stream":
        times, event = walk.ranks[rank], walk.graph.ranks[rank][which]
        begin, end, cause, after = times.work_begin[which], times.work_end[which], times.cause[which], which
        path.append(Segment(rank, begin, end, event.term, event.label))
    else:
        meeting, made = walk.meetings[which], walk.graph.collectives[which]
        begin, cause, rank, after = meeting.begin, meeting.cause, meeting.rank, meeting.event
        path.append(Segment(rank, begin, meeting.end, made.name, made.name))
    place = _place(rank, cause, after)
    ended = end_of(walk, place)
    path.append(Segment(rank, ended, begin, GAP, GAP))
    return place


def _place(rank: int, cause: Cause, event: int) -> Place:
    return ("host", rank, event) if cause == HOST else (cause[0], rank, cause[1])


MICRO = 1e6  # Chrome's time units in a second
HOST_THREAD, FIRST_LANE = 0, 100  # thread numbers: the host, then streams from 1 on, then lanes of collectives


def timeline(walk: Walk) -> dict[str, Any]:
    """The timeline of all ranks in Chrome's format: a process for each, and one for the critical path."""
    events: list[dict[str, Any]] = []
    for rank, times in enumerate(walk.ranks):
        streams: dict[str, int] = {}
        events += [
            _named("process_name", rank, HOST_THREAD, f"rank {rank}"),
            _named("thread_name", rank, HOST_THREAD, "host"),
        ]
        for i, event in enumerate(walk.graph.ranks[rank]):
            if event.kind in (Kind.AWAIT, Kind.SYNC) or times.end[i] > times.begin[i]:
                events.append(_span(rank, HOST_THREAD, times.begin[i], times.end[i], event.host_term, event.label))
            if event.kind == Kind.LAUNCH:
                stream = streams.setdefault(event.stream, 1 + len(streams))
                events.append(_span(rank, stream, times.work_begin[i], times.work_end[i], event.term, event.label))
        events += [_named("thread_name", rank, thread, f"stream {name}") for name, thread in streams.items()]
    ends: dict[tuple[int, int], float] = {}
    for meeting, made in zip(walk.meetings, walk.graph.collectives, strict=True):
        for rank in made.ranks:
            lane = next(i for i in range(len(walk.meetings)) if ends.get((rank, i), 0.0) <= meeting.begin)
            ends[rank, lane] = meeting.end
            label = f"{made.name} {made.bytes:,.0f} bytes"
            events.append(_span(rank, FIRST_LANE + lane, meeting.begin, meeting.end, made.name, label))
    ranks = len(walk.ranks)
    events.append(_named("process_name", ranks, HOST_THREAD, "critical path"))
    events += [_span(ranks, HOST_THREAD, walk.begin_s + each.begin, walk.begin_s + each.end, each.term,
                     f"{each.label} (rank {each.rank})")
               for each in critical_path(walk)]  # fmt: skip
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _span(rank: int, thread: int, begin: float, end: float, term: str, label: str) -> dict[str, Any]:
    return {"ph": "X", "pid": rank, "tid": thread, "ts": begin * MICRO, "dur": (end - begin) * MICRO, "name": label,
            "cat": term}  # fmt: skip


def _named(what: str, rank: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": rank, "tid": thread, "name": what, "args": {"name": name}}
