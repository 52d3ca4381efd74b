"""A predicted step as a timeline in Chrome's format, which https://ui.perfetto.dev and chrome://tracing show."""

from typing import Any

from recsmith.prediction.critical_path import critical_path
from recsmith.prediction.graph import Kind
from recsmith.prediction.walk import Walk

MICRO = 1e6  # Chrome's unit of a second
HOST, FIRST_LANE = 0, 100  # threads: the host, then streams from 1 on, then lanes of collectives


def timeline(walk: Walk) -> dict[str, Any]:
    """The timeline of all ranks: a process for each, with its host thread, streams and collectives; and the path."""
    events: list[dict[str, Any]] = []
    for rank, times in enumerate(walk.ranks):
        streams: dict[str, int] = {}
        events += [_named("process_name", rank, HOST, f"rank {rank}"), _named("thread_name", rank, HOST, "host")]
        for i, event in enumerate(walk.graph.ranks[rank]):
            if event.kind in (Kind.AWAIT, Kind.SYNC) or times.end[i] > times.begin[i]:
                events.append(_span(rank, HOST, times.begin[i], times.end[i], event.term, event.label))
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
    events.append(_named("process_name", ranks, HOST, "critical path"))
    events += [_span(ranks, HOST, each.begin, each.end, each.term, f"{each.label} (rank {each.rank})")
               for each in critical_path(walk)]  # fmt: skip
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _span(rank: int, thread: int, begin: float, end: float, term: str, label: str) -> dict[str, Any]:
    return {"ph": "X", "pid": rank, "tid": thread, "ts": begin * MICRO, "dur": (end - begin) * MICRO, "name": label,
            "cat": term}  # fmt: skip


def _named(what: str, rank: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": rank, "tid": thread, "name": what, "args": {"name": name}}
