"""Walks an execution graph: computes when every event, kernel and collective begins and ends.

The rules are those of Lin et al. (HiPC 2022) and its multi-GPU successor: the host thread goes through its events in
order; a kernel begins after its launch, and one microsecond after the kernel before it on its stream; a collective
begins when its last rank has arrived and a lane of every rank is free. The step ends when the last host thread and the
last stream end. On a GPU, a step begins while the device may still work on the step before. So a GPU's step is walked
several times in a row, and the last one counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from recsmith.errors import UsageError
from recsmith.prediction.graph import Event, Graph, Kind

STREAM_GAP_S = 1e-6  # seconds between two kernels of a stream [Lin et al., code]
HOST = ("host", -1)  # cause of a start: the host thread; other causes are ("stream", event) and ("lane", collective)
Cause = tuple[str, int]


@dataclass(slots=True)
class EventTimes:
    """When the events of a rank began and ended on its host (E,), and when the work that they launched did (0 if none).

    cause: what a launched kernel, a collective or a wait had to wait for.
    """

    begin: list[float] = field(default_factory=list[float])
    end: list[float] = field(default_factory=list[float])
    work_begin: list[float] = field(default_factory=list[float])
    work_end: list[float] = field(default_factory=list[float])
    cause: list[Cause] = field(default_factory=list[Cause])


@dataclass(slots=True)
class CollectiveTimes:
    """When a collective ran, the rank that arrived last, its event there, and what that rank had to wait for."""

    begin: float
    end: float
    rank: int
    event: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Walk:
    """All times of a graph; for a GPU, times count from when the first host thread begins the step.

    last: the host thread, stream or lane that ends last; for a GPU, the one that lengthens each step most. step_s:
    seconds until it ends; for a GPU, seconds since it ended in the step before. repeated: the walk of that step
    together with the steps before it.
    """

    graph: Graph
    ranks: list[EventTimes]
    meetings: list[CollectiveTimes]
    last: "Place | None"
    step_s: float
    repeated: "Walk | None" = None

    @property
    def begin_s(self) -> float:
        """When the step's seconds begin: on a GPU that is busy with earlier steps, later than its host threads."""
        return 0.0 if self.last is None else end_of(self, self.last) - self.step_s


Place = tuple[str, int, int]  # ("host" or "stream", rank, event) or ("lane", rank, collective)


def place_in(walk: Walk, place: Place) -> Place:
    """The place of the last step among all the steps that the walk repeats."""
    where, rank, which = place
    if walk.repeated is None:
        return place
    each = len(walk.graph.collectives if where == "lane" else walk.graph.ranks[rank])
    return where, rank, (STEPS - 1) * each + which


def end_of(walk: Walk, place: Place) -> float:
    """The time at which a place of a walk ends."""
    where, rank, which = place
    if where == "lane":
        return walk.meetings[which].end
    return walk.ranks[rank].end[which] if where == "host" else walk.ranks[rank].work_end[which]


class _Rank:
    """The state of a rank during the walk: its position on the tape, and when each stream and lane is free."""

    def __init__(self, tape: tuple[Event, ...], lanes: int) -> None:
        self.tape, self.times = tape, EventTimes()
        self.place, self.host = 0, 0.0
        self.streams: dict[str, tuple[float, Cause]] = {}
        self.lanes: list[tuple[float, int]] = [(0.0, -1)] * lanes  # (free from, collective that ended then)
        self.issued: dict[int, tuple[float, int, Cause]] = {}

    def advance(self, meetings: list[CollectiveTimes]) -> None:
        """Go on until the tape ends, or until the rank awaits a collective whose end is not known yet."""
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


PICO = 12  # digits of seconds: ends that differ by less count as equal
STEPS = 3  # steps walked on a GPU: enough for the host's lead to settle, unless host and device are near balance


def walk(graph: Graph) -> Walk:
    """The times of all events of a graph; UsageError if ranks wait for each other forever."""
    if not graph.on_gpu:
        return _walked(graph)
    whole = _walked(_repeated(graph, STEPS))
    begin = min(times.begin[-len(tape)] for tape, times in zip(graph.ranks, whole.ranks, strict=True) if tape)
    ranks = [_last_step(times, len(tape), begin) for tape, times in zip(graph.ranks, whole.ranks, strict=True)]
    meetings = [replace(each, begin=each.begin - begin, end=each.end - begin)
                for each in whole.meetings[(STEPS - 1) * len(graph.collectives) :]]  # fmt: skip
    done = Walk(graph, ranks, meetings, None, 0.0, whole)
    last = max(_ends(graph), key=lambda place: (round(_added(done, place), PICO), place[0] == "host"))
    return replace(done, last=last, step_s=_added(done, last))


def _ends(graph: Graph) -> Iterator[Place]:
    """The last event of each host thread and each stream, and the last collective."""
    for rank, tape in enumerate(graph.ranks):
        streams = {event.stream: place for place, event in enumerate(tape) if event.kind == Kind.LAUNCH}
        yield from (("stream", rank, place) for place in streams.values())
        if tape:
            yield "host", rank, len(tape) - 1
    if graph.collectives:
        yield "lane", graph.collectives[-1].ranks[0], len(graph.collectives) - 1


def _added(walk: Walk, place: Place) -> float:
    """Seconds from the end of a place in the step before last to its end in the last step."""
    where, rank, which = place_in(walk, place)
    each = len(walk.graph.collectives if where == "lane" else walk.graph.ranks[rank])
    whole = walk.repeated or walk
    return end_of(whole, (where, rank, which)) - end_of(whole, (where, rank, which - each))


def _repeated(graph: Graph, steps: int) -> Graph:
    """A graph that holds the step several times in a row."""
    each = len(graph.collectives)

    def shifted(event: Event, number: int) -> Event:
        return event if event.collective < 0 else event._replace(collective=event.collective + number * each)

    tapes = tuple(tuple(shifted(event, number) for number in range(steps) for event in tape) for tape in graph.ranks)
    return replace(graph, ranks=tapes, collectives=graph.collectives * steps)


def _last_step(times: EventTimes, events: int, begin: float) -> EventTimes:
    """The times of the last of several steps, counted from its start; causes stay indices into all steps."""

    def last(values: list[float]) -> list[float]:
        return [value - begin for value in values[len(values) - events :]]

    return EventTimes(last(times.begin), last(times.end), last(times.work_begin), last(times.work_end),
                      times.cause[len(times.cause) - events :])  # fmt: skip


def _walked(graph: Graph) -> Walk:
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
    done = Walk(graph, [rank.times for rank in ranks], meetings, None, 0.0)
    last = _last(done)
    return done if last is None else replace(done, last=last, step_s=end_of(done, last))


def _last(walk: Walk) -> Place | None:
    """The place that ends last, or None if the graph is empty."""
    ends: list[tuple[float, Place]] = []
    for rank, times in enumerate(walk.ranks):
        if times.end:
            ends.append((times.end[-1], ("host", rank, len(times.end) - 1)))
            late = max(range(len(times.work_end)), key=times.work_end.__getitem__)
            ends.append((times.work_end[late], ("stream", rank, late)))
    ends += [(each.end, ("lane", each.rank, i)) for i, each in enumerate(walk.meetings)]
    return max(ends, key=lambda pair: pair[0])[1] if ends else None


def _meet(graph: Graph, ranks: list[_Rank], collective: int) -> CollectiveTimes:
    """The times of the next collective; on each of its ranks it takes the lane that is free first."""
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
