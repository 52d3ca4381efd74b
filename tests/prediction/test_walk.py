"""Walks over graphs whose times are known, and laws that hold for every graph."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from recsmith.errors import UsageError
from recsmith.prediction.graph import CollectiveRun, Event, Graph, Kind, Tape, check_graph
from recsmith.prediction.predict import account, covered, critical_path, terms_of
from recsmith.prediction.walk import STREAM_GAP_S, Walk, walk


def host(seconds: float, term: str = "T1") -> Event:
    return Event(Kind.HOST, seconds, term, "host")


def run(seconds: float, term: str = "gemm") -> Event:
    return Event(Kind.RUN, seconds, term, "kernel")


def launch(seconds: float, work: float, stream: str = "compute") -> Event:
    return Event(Kind.LAUNCH, seconds, "T4", "kernel", work, stream)


def issue(collective: int, seconds: float = 0.0, stream: str = "") -> Event:
    return Event(Kind.ISSUE, seconds, "T4", "issue", stream=stream, collective=collective)


def wait(collective: int) -> Event:
    return Event(Kind.AWAIT, 0.0, "wait", "wait", collective=collective)


def meeting(seconds: float, ranks: int) -> CollectiveRun:
    return CollectiveRun(name="all_reduce", bytes=1.0, seconds=seconds, ranks=tuple(range(ranks)))


def test_hosts_meet_at_a_collective_when_the_last_has_come():
    early: Tape = (run(1.0), issue(0), run(0.5), wait(0), host(0.25))
    late: Tape = (run(3.0), issue(0), wait(0), host(0.5))
    graph = Graph(ranks=(early, late), collectives=(meeting(2.0, 2),))
    done = walk(graph)
    assert done.step_s == 5.5
    path = critical_path(done)
    assert [(each.rank, each.term) for each in path] == [(1, "gemm"), (1, "all_reduce"), (1, "T1")]
    first, _ = account(done)
    assert (first.active_s, first.exposed_comm_s, first.idle_s) == (1.5, 2.0, 2.0)


def test_kernels_of_a_stream_follow_each_other_and_collectives_wait_for_them():
    tape: Tape = (launch(1.0, 5.0), launch(1.0, 2.0), issue(0, stream="compute"),
                  Event(Kind.STREAM_AWAIT, 0.0, "wait", "w", stream="compute", collective=0), launch(1.0, 1.0),
                  Event(Kind.SYNC, 0.0, "wait", "sync", stream="compute"), host(0.5))  # fmt: skip
    done = walk(Graph(ranks=(tape,), collectives=(meeting(3.0, 1),)))
    second_ends = 1.0 + 5.0 + STREAM_GAP_S + 2.0
    assert done.meetings[0].begin == pytest.approx(second_ends)
    assert done.step_s == pytest.approx(second_ends + 3.0 + STREAM_GAP_S + 1.0 + 0.5)
    terms = terms_of(critical_path(done))
    assert terms["T4"] == pytest.approx(1.0 + 8.0)  # the first launch, and what launches put on the stream


def test_a_gpu_may_still_be_at_work_on_the_step_before():
    bound_by_device: Tape = (host(0.2), launch(0.1, 1.0), launch(0.1, 1.0))
    done = walk(Graph(ranks=(bound_by_device,), collectives=()))
    assert done.step_s == pytest.approx(2 * (1.0 + STREAM_GAP_S))
    assert done.begin_s == pytest.approx(0.2 + 0.1 + 6 * 1.0 - 2.0 - 2 * 0.4, abs=1e-5)  # the host is two steps ahead
    assert account(done)[0].active_s == pytest.approx(2.0)
    waits_first: Tape = (host(0.2), Event(Kind.SYNC, 0.0, "wait", "sync", stream="compute"), launch(0.1, 1.0))
    assert walk(Graph(ranks=(waits_first,), collectives=())).step_s == pytest.approx(0.1 + 1.0)  # 0.2 are hidden
    bound_by_host: Tape = (host(2.0), launch(0.1, 1.0))
    assert walk(Graph(ranks=(bound_by_host,), collectives=())).step_s == pytest.approx(2.1)


def test_two_lanes_run_two_collectives_at_a_time():
    tape: Tape = (issue(0), issue(1), issue(2), wait(2))
    collectives = (meeting(4.0, 1), meeting(1.0, 1), meeting(1.0, 1))
    assert walk(Graph(ranks=(tape,), collectives=collectives, lanes=2)).step_s == 4.0
    assert walk(Graph(ranks=(tape,), collectives=collectives, lanes=1)).step_s == 6.0


def test_ranks_that_never_meet_are_refused():
    graph = Graph(ranks=((issue(0), wait(0)), (host(1.0),)), collectives=(meeting(1.0, 2),))
    with pytest.raises(UsageError, match="rank 1 starts collectives"):
        check_graph(graph)
    with pytest.raises(UsageError, match="some rank never starts"):
        walk(graph)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Graphs of 1 to 3 ranks that match: collectives in order, each awaited at some later place or never."""
    ranks, meetings = draw(st.integers(1, 3)), draw(st.integers(0, 4))
    seconds = st.floats(0.0, 1.0).map(lambda value: round(value, 3))
    tapes: list[Tape] = []
    for _ in range(ranks):
        tape: list[Event] = []
        waiting: list[int] = []
        for place in range(meetings + 1):
            for _ in range(draw(st.integers(0, 3))):
                tape.append(draw(st.sampled_from([host, run]))(draw(seconds)))
                if draw(st.booleans()):
                    tape.append(launch(draw(seconds), draw(seconds), draw(st.sampled_from(["a", "b"]))))
            tape += [wait(each) for each in waiting if draw(st.booleans())]
            if place < meetings:
                tape.append(issue(place, draw(seconds), draw(st.sampled_from(["", "a"]))))
                waiting.append(place)
        tapes.append(tuple(tape))
    made = tuple(meeting(draw(seconds), ranks) for _ in range(meetings))
    return Graph(ranks=tuple(tapes), collectives=made, lanes=draw(st.integers(1, 2)))


def is_steady(done: Walk) -> bool:
    """Whether every host thread took as long for the last of its repeated steps as for the one before.

    Where one did not, it is not as far ahead as it gets, and the step before was of another length than the last one.
    """
    if done.repeated is None:
        return True
    pairs = zip(done.repeated.ranks, done.graph.ranks, strict=True)
    ends = [times.end[::-1][:: len(tape)] for times, tape in pairs if tape]
    return all(last - before == pytest.approx(before - first) for last, before, first in ends)


@settings(max_examples=150, deadline=None)
@given(graphs(), st.floats(0.1, 1.0))
def test_laws_of_every_walk(graph: Graph, factor: float):
    assume(any(event.seconds + event.work_s > 0 for tape in graph.ranks for event in tape))  # no step is only gaps
    done = walk(graph)
    kernels = sum(event.kind is Kind.LAUNCH for tape in graph.ranks for event in tape)
    everything = sum(event.seconds + event.work_s for tape in graph.ranks for event in tape)
    everything += sum(each.seconds for each in graph.collectives) + STREAM_GAP_S * kernels
    longest = max([sum(event.seconds for event in tape) for tape in graph.ranks])
    assert longest - 1e-9 <= done.step_s <= everything + 1e-9
    path = critical_path(done)
    if is_steady(done):
        assert sum(each.end - each.begin for each in path) == pytest.approx(done.step_s)
    assert all(one.end == pytest.approx(two.begin) for one, two in itertools.pairwise(path))
    for each in account(done):
        assert each.active_s + each.exposed_comm_s + each.idle_s == pytest.approx(done.step_s)
        assert min(each.active_s, each.exposed_comm_s, each.idle_s) >= -1e-9
    faster = [tuple(event._replace(seconds=event.seconds * factor) for event in tape) for tape in graph.ranks]
    if graph.lanes == 1:  # with more lanes, less work can change who takes which: Graham's anomalies
        assert walk(Graph(ranks=tuple(faster), collectives=graph.collectives)).step_s <= done.step_s + 1e-9


def test_covered_counts_an_overlap_once():
    assert covered(np.array([[0.0, 2.0], [1.0, 3.0], [5.0, 6.0], [5.2, 5.4]])) == 4.0
    assert covered(np.empty((0, 2))) == 0.0


@pytest.mark.soak
def test_ten_thousand_events_of_64_ranks_take_less_than_5_seconds():
    tape: list[Event] = []
    for place in range(10_000):
        tape.append(issue(place // 200) if place % 200 == 50 else wait(place // 200) if place % 200 == 150
                    else launch(1e-6, 1e-5) if place % 3 else host(1e-6))  # fmt: skip
    graph = Graph(ranks=(tuple(tape),) * 64, collectives=(meeting(1e-3, 64),) * 50)
    begun = time.process_time()
    done = walk(graph)
    critical_path(done)
    account(done)
    assert time.process_time() - begun < 5.0
