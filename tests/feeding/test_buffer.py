"""Every window is made, in any order of losses, and never further ahead than memory allows."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.errors import RecSmithError
from recsmith.feeding.buffer import MOST_LOST, Buffer, Leases
from recsmith.feeding.feed import WorkerScaling


@given(
    count=st.integers(0, 6), ahead=st.integers(1, 4),
    events=st.lists(st.tuples(st.sampled_from(["give", "done", "lose"]), st.integers(0, 3)), max_size=60),
)  # fmt: skip
def test_each_window_is_made_once_whatever_is_lost(count: int, ahead: int, events: list[tuple[str, int]]) -> None:
    leases, made, used = Leases(0, count, ahead), list[int](), 0
    try:
        for event, worker in [*events, *[("give", 0), ("done", 0)] * (count + len(events) + 4)]:
            if event == "give":
                window = leases.next_for(worker)
                assert window is None or leases.current <= window < min(leases.current + ahead, count)
            elif event == "done" and worker in leases.held:
                made.append(leases.held[worker])
                leases.complete(worker)
            elif event == "lose":
                leases.lost(worker)
            assert len(set(leases.held.values())) == len(leases.held)  # no window is made by two at once
            while used in made:
                used += 1
                leases.use(min(used, count))
            if event == "done" and worker == 0 and not leases.held.get(0):
                for other in [each for each in leases.held if each != 0][:1]:
                    made.append(leases.held[other])
                    leases.complete(other)
    except RecSmithError:
        assert sum(event == "lose" for event, _ in events) >= MOST_LOST
        return
    assert sorted(made) == list(range(count))


def test_all_windows_of_a_step_are_made_however_many_they_are() -> None:
    leases = Leases(0, 6, 2)
    leases.use(1, 5)
    given = [leases.next_for(worker) for worker in range(6)]
    assert given == [1, 2, 3, 4, None, None]


def test_losses_over_the_same_window_are_no_accident() -> None:
    leases = Leases(0, 2, 2)
    for _ in range(MOST_LOST - 1):
        assert leases.next_for(0) == 0
        leases.lost(0)
    leases.next_for(0)
    with pytest.raises(RecSmithError, match="over the same window"):
        leases.lost(0)


def counts_of(load: WorkerScaling, count: int, most: int, windows: list[tuple[float, float, float]]) -> list[int]:
    """How many workers there are after each window, of how long it took, what was waited and how many were idle."""
    counts, now, waited, idle = list[int](), load.at, 0.0, 0.0
    for took, waiting, idling in windows:
        now, waited, idle = now + took, waited + waiting * took, idle + idling * took
        count = load.workers(count, most, waited, idle, now)
        counts.append(count)
    return counts


def test_workers_are_as_many_as_the_waiting_asks_for() -> None:
    waiting = [(1.0, 0.86, 0.0)] * 2 + [(1.0, 0.72, 0.0)] * 4 + [(1.0, 0.4, 0.0)] * 8
    assert counts_of(WorkerScaling(), 1, 16, waiting) == [1, 2] + [2] * 3 + [4] + [4] * 7 + [7]
    assert counts_of(WorkerScaling(), 3, 4, [(1.0, 0.9, 0.0)] * 20)[-1] == 4  # no more than the cores
    assert counts_of(WorkerScaling(), 4, 16, [(1.0, 0.03, 0.0)] * 8)[-1] == 5  # one at least


def test_what_is_waited_while_workers_start_does_not_count() -> None:
    assert counts_of(WorkerScaling(), 3, 16, [(9.0, 0.99, 0.0)] * 3 + [(1.0, 0.0, 0.1)] * 60) == [3] * 63


def test_a_worker_goes_only_where_the_others_can_do_its_work() -> None:
    assert counts_of(WorkerScaling(), 3, 3, [(1.0, 0.0, 1.2)] * 60) == [3] * 60
    assert counts_of(WorkerScaling(), 3, 3, [(1.0, 0.0, 1.5)] * 15) == [3] * 14 + [2]  # after four rounds that count
    assert counts_of(WorkerScaling(), 1, 3, [(1.0, 0.0, 1.0)] * 60) == [1] * 60  # never the last


def test_a_worker_that_has_nothing_to_do_is_idle() -> None:
    buffer = Buffer(Leases(0, 1, 2), 0)
    assert buffer.want(1) == [0]
    assert buffer.lease(0) == 0
    assert buffer.idle_s == 0
    buffer.complete(0)
    threading.Timer(0.05, buffer.close).start()
    assert buffer.lease(0) is None
    assert buffer.idle_s > 0.02
