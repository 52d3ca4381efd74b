"""Walks an execution graph: when every event, kernel and collective begins and ends.

The rules are those of Lin et al. (HiPC 2022) and its multi-GPU successor: the host thread goes through its events in
order; a kernel begins after its launch, one microsecond after the kernel before it on its stream; a collective begins
when its last rank has come and a lane of every rank is free. The step ends when the last host thread and the last
stream do.
"""

from dataclasses import dataclass, field

from recsmith.errors import UsageError
from recsmith.prediction.graph import Event, Graph, Kind

STREAM_GAP_S = 1e-6  # between two kernels of a stream [Lin et al., code]
HOST = ("host", -1)  # cause of a start: the host thread; otherwise ("stream", event) or ("lane", collective)
Cause = tuple[str, int]


@dataclass(slots=True)
class EventTimes:
    """When the events of a rank began and ended on its host (E,), and what they launched (0 where nothing).

    cause: what a launched kernel, a collective or a wait began after.
    """

    begin: list[float] = field(default_factory=list[float])
    end: list[float] = field(default_factory=list[float])
    work_begin: list[float] = field(default_factory=list[float])
    work_end: list[float] = field(default_factory=list[float])
    cause: list[Cause] = field(default_factory=list[Cause])


@dataclass(slots=True)
class CollectiveTimes:
    """When a collective ran, which rank came last, at which of its events, and whether a lane held it up."""

    begin: float
    end: float
    rank: int
    event: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Walk:
    """All times of a graph."""

    graph: Graph
    ranks: list[EventTimes]
    meetings: list[CollectiveTimes]

    @property
    def step_s(self) -> float:
        """Seconds until the last rank is done."""
        return max((self.rank_s(rank) for rank in range(len(self.ranks))), default=0.0)

    def rank_s(self, rank: int) -> float:
        """Seconds until a rank's host thread, streams and collectives are done."""
        times = self.ranks[rank]
        joined = (each.end for each, made in zip(self.meetings, self.graph.collectives, strict=True)
                  if rank in made.ranks)  # fmt: skip
        return max([*times.end[-1:], *times.work_end, *joined], default=0.0)


class _Rank:
    """A rank under way: where its host is, when each stream is free, and when each lane is."""

    def __init__(self, tape: tuple[Event, ...], lanes: int) -> None:
        self.tape, self.times = tape, EventTimes()
        self.place, self.host = 0, 0.0
        self.streams: dict[str, tuple[float, Cause]] = {}
        self.lanes: list[tuple[float, int]] = [(0.0, -1)] * lanes  # (free from, by the end of which collective)
        self.issued: dict[int, tuple[float, int, Cause]] = {}

    def advance(self, meetings: list[CollectiveTimes]) -> None:
        """Go on until the tape ends, or a collective is awaited that has no time yet."""
        times, known, host = self.times, len(meetings), self.host
        begin, end, work_begin, work_end, causes = (
            times.begin.append, times.end.append, times.work_begin.append, times.work_end.append, times.cause.append,
        )  # fmt: skip
        for place in range(self.place, len(self.tape)):
            kind, seconds, _, _, work_s, stream, collective, _ = self.tape[place]
            if kind >= Kind.AWAIT and collective >= known:
                self.place, self.host = place, host
                return
            begin(host)
            host += seconds
            started = finished = 0.0
            cause = HOST
            if kind == Kind.LAUNCH:
                free, before = self.streams.get(stream, (-STREAM_GAP_S, HOST))
                started, cause = (host, HOST) if host >= free + STREAM_GAP_S else (free + STREAM_GAP_S, before)
                finished = started + work_s
                self.streams[stream] = finished, ("stream", place)
            elif kind == Kind.ISSUE:
                free, before = self.streams.get(stream, (0.0, HOST))
                self.issued[collective] = (free, place, before) if free > host else (host, place, HOST)
            elif kind == Kind.AWAIT and meetings[collective].end > host:
                host, cause = meetings[collective].end, ("lane", collective)
            elif kind == Kind.SYNC and self.streams.get(stream, (0.0, HOST))[0] > host:
                host, cause = self.streams[stream]
            elif kind == Kind.STREAM_AWAIT and meetings[collective].end > self.streams.get(stream, (0.0, HOST))[0]:
                self.streams[stream] = meetings[collective].end, ("lane", collective)
            end(host)
            work_begin(started)
            work_end(finished)
            causes(cause)
        self.place, self.host = len(self.tape), host


def walk(graph: Graph) -> Walk:
    """The times of a graph; UsageError where ranks wait for each other forever."""
    ranks, meetings = [_Rank(tape, graph.lanes) for tape in graph.ranks], list[CollectiveTimes]()
    while True:
        for rank in ranks:
            rank.advance(meetings)
        reached = len(meetings)
        for made in graph.collectives[reached:]:
            if any(len(meetings) not in ranks[rank].issued for rank in made.ranks):
                break
            meetings.append(_meet(graph, ranks, len(meetings)))
        if len(meetings) == reached:
            break
    stuck = next((i for i, rank in enumerate(ranks) if rank.place < len(rank.tape)), None)
    if stuck is not None or len(meetings) < len(graph.collectives):
        raise UsageError(
            f"rank {stuck or 0} waits for collective {len(meetings)}, which some rank never starts; "
            "capture the same step of every rank"
        )
    return Walk(graph, [rank.times for rank in ranks], meetings)


def _meet(graph: Graph, ranks: list[_Rank], collective: int) -> CollectiveTimes:
    """The times of the next collective, which takes the lane of each of its ranks that is free first."""
    made = graph.collectives[collective]
    last = CollectiveTimes(-1.0, 0.0, 0, 0, HOST)
    chosen = {rank: min(range(graph.lanes), key=lambda lane: ranks[rank].lanes[lane]) for rank in made.ranks}
    for rank in made.ranks:
        came, event, cause = ranks[rank].issued[collective]
        free, holder = ranks[rank].lanes[chosen[rank]]
        begin = max(came, free)
        if begin > last.begin:
            last = CollectiveTimes(begin, 0.0, rank, event, ("lane", holder) if free > came else cause)
    last.end = last.begin + made.seconds
    for rank in made.ranks:
        ranks[rank].lanes[chosen[rank]] = (last.end, collective)
    return last
