"""Every window is made, in any order of losses, and never further ahead than memory allows."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.errors import RecSmithError
from recsmith.feeding.buffer import Buffer
from recsmith.feeding.leases import MOST_LOST, Leases
from recsmith.feeding.load import Load


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


def test_workers_follow_the_load() -> None:
    load = Load()
    load.at = 0.0
    assert load.workers(1, 3, waited_s=0.5, idle_s=0.0, now=1.0) == 2
    assert load.workers(2, 3, waited_s=0.9, idle_s=0.0, now=2.0) == 3
    assert load.workers(3, 3, waited_s=1.5, idle_s=0.0, now=3.0) == 3  # no more than the cores


def test_a_worker_goes_only_where_the_others_can_do_its_work() -> None:
    load = Load()
    load.at = load.calm_at = 0.0
    assert [load.workers(3, 3, waited_s=0.0, idle_s=0.9 * i, now=1.0 * i) for i in range(1, 25)] == [3] * 24
    idle = 0.9 * 24
    counts = [load.workers(3, 3, waited_s=0.0, idle_s=idle + 1.5 * i, now=24.0 + i) for i in range(1, 13)]
    assert counts == [3] * 11 + [2]  # four windows of each worker
    assert load.workers(2, 3, waited_s=0.5, idle_s=idle + 18, now=37.0) == 3


def test_a_worker_that_has_nothing_to_do_is_idle() -> None:
    buffer = Buffer(Leases(0, 1, 2), 0)
    assert buffer.want(1) == [0]
    assert buffer.lease(0) == 0
    assert buffer.idle_s == 0
    buffer.complete(0)
    threading.Timer(0.05, buffer.close).start()
    assert buffer.lease(0) is None
    assert buffer.idle_s > 0.02
