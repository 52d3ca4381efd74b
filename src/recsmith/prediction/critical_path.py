"""What a step's time is made of: the chain of events, kernels and collectives without a gap that ends with the step.

The segments of the path add up to the step, so the terms of the path say what would make the step shorter: work that is
hidden behind other work is on no path.
"""

from typing import NamedTuple

from recsmith.prediction.graph import Kind
from recsmith.prediction.walk import HOST, Cause, Walk

GAP = "stream gap"  # term of the microsecond between kernels


class Segment(NamedTuple):
    """A stretch of the critical path, in seconds from the start of the step."""

    rank: int
    begin: float
    end: float
    term: str
    label: str


def critical_path(walk: Walk) -> list[Segment]:
    """The segments of a walk's critical path, first to last; they meet end to begin, from 0 to the end of the step."""
    path, place = list[Segment](), _last(walk)
    while place is not None:
        place = _host(walk, path, *place[1:]) if place[0] == "host" else _elsewhere(walk, path, *place)
    path.reverse()
    return [each for each in path if each.end > each.begin]


def terms_of(path: list[Segment]) -> dict[str, float]:
    """Seconds of each term of a path, the largest first."""
    terms: dict[str, float] = {}
    for each in path:
        terms[each.term] = terms.get(each.term, 0.0) + each.end - each.begin
    return dict(sorted(terms.items(), key=lambda item: -item[1]))


Place = tuple[str, int, int]  # ("host" or "stream", rank, event) or ("lane", rank, collective)


def _last(walk: Walk) -> Place | None:
    """What ends last."""
    ends: list[tuple[float, Place]] = []
    for rank, times in enumerate(walk.ranks):
        if times.end:
            ends.append((times.end[-1], ("host", rank, len(times.end) - 1)))
            late = max(range(len(times.work_end)), key=times.work_end.__getitem__)
            ends.append((times.work_end[late], ("stream", rank, late)))
    ends += [(each.end, ("lane", each.rank, i)) for i, each in enumerate(walk.meetings)]
    return max(ends, key=lambda pair: pair[0])[1] if ends else None


def _host(walk: Walk, path: list[Segment], rank: int, event: int) -> Place | None:
    """Go back along a host thread until a wait of it was bound by something else, or to its start."""
    times, tape = walk.ranks[rank], walk.graph.ranks[rank]
    while event >= 0:
        kind, cause = tape[event].kind, times.cause[event]
        if kind in (Kind.AWAIT, Kind.SYNC) and cause != HOST:
            return _place(rank, cause, event)
        path.append(Segment(rank, times.begin[event], times.end[event], tape[event].term, tape[event].label))
        event -= 1
    return None


def _elsewhere(walk: Walk, path: list[Segment], where: str, rank: int, which: int) -> Place | None:
    """A kernel of a stream, or a collective, and what it began after."""
    if where == "stream":
        times, event = walk.ranks[rank], walk.graph.ranks[rank][which]
        begin, end, cause, after = times.work_begin[which], times.work_end[which], times.cause[which], which
        path.append(Segment(rank, begin, end, event.term, event.label))
    else:
        meeting, made = walk.meetings[which], walk.graph.collectives[which]
        begin, cause, rank, after = meeting.begin, meeting.cause, meeting.rank, meeting.event
        path.append(Segment(rank, begin, meeting.end, made.name, made.name))
    place = _place(rank, cause, after)
    ended = _end_of(walk, place)
    path.append(Segment(rank, ended, begin, GAP, GAP))
    return place


def _place(rank: int, cause: Cause, event: int) -> Place:
    return ("host", rank, event) if cause == HOST else (cause[0], rank, cause[1])


def _end_of(walk: Walk, place: Place) -> float:
    where, rank, which = place
    if where == "lane":
        return walk.meetings[which].end
    return walk.ranks[rank].end[which] if where == "host" else walk.ranks[rank].work_end[which]
