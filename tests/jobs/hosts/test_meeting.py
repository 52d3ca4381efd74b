"""Hosts meet in a folder: they make rounds without one that is lost, and with one that comes. No torch, no ranks."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from recsmith.errors import RecSmithError, UsageError
from recsmith.jobs.hosts import meeting, pings
from recsmith.jobs.hosts.meeting import HostMeeting, JobEnded, JobRefused
from recsmith.jobs.hosts.rank import as_host_rank
from recsmith.jobs.hosts.rounds import HostRound, broken_file, refusal_file
from recsmith.jobs.machine import LOOPBACK


class Hosts:
    """Hosts of this process; `rounds` has what each waits for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made, self.said = folder, dict[str, HostMeeting](), list[str]()
        self.rounds, self._pool = dict[str, Future[HostRound]](), ThreadPoolExecutor(8)

    def join(
        self, name: str, *, counts: tuple[int, ...] = (2, 3), patience_s: float = 20.0, ranks: int = 1,
        first_s: float = 0.3,
    ) -> None:  # fmt: skip
        """first_s: for which a first round of fewer hosts than the most waits for more of them."""
        self.made[name] = HostMeeting(
            self.folder, name, LOOPBACK, ranks=ranks, counts=counts, say=self.said.append, patience_s=patience_s,
            first_s=first_s,
        )  # fmt: skip
        self.wait_again(name)

    def wait_again(self, name: str) -> None:
        self.rounds[name] = self._pool.submit(self.made[name].next_round)

    def names(self, *waiting: str) -> list[tuple[int, str]]:
        found = [self.rounds[name].result(20) for name in waiting]
        return [(each.number, ", ".join(host.name for host in each.hosts)) for each in found]

    def lose(self, name: str) -> None:
        """As kill -9 does: nobody listens any more, and the file stays."""
        lost = self.made.pop(name).pings
        lost._ended.set()
        lost._server.close()
        wake(lost.agent.port)

    def close(self) -> None:
        for each in self.made.values():
            each.close(ended=True)  # whoever waits still hears of it
        self._pool.shutdown()


def wake(port: int) -> None:
    """End a call of accept that a closed socket still waits in."""
    import socket

    with pytest.MonkeyPatch.context(), socket.socket() as peer:
        peer.connect_ex((LOOPBACK, port))


def soon(ready: Callable[[], object]) -> bool:
    end = time.monotonic() + 10
    while not ready() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(ready())


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    for module, name, value in (
        (pings, "ASK_S", 0.05), (meeting, "LOOK_S", 0.02), (meeting, "AGAIN_S", 0.1), (meeting, "HERE_S", 0.1),
        (meeting, "READ_S", 0.05), (meeting, "ALONE_S", 0.2), (meeting, "PARTED_S", 0.3), (pings, "GONE_S", 0.5),
        (pings, "TOUCH_S", 0.1), (pings, "SILENT_S", 1.0),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    made = Hosts(tmp_path / "hosts")
    yield made
    made.close()


def test_a_host_is_lost_and_taken_in_again(hosts: Hosts):
    for name in "abc":
        hosts.join(name, first_s=10.0)
    (number, together), *rest = hosts.names(*"abc")
    assert (number, sorted(together)) == (1, sorted("a, b, c"))
    assert {*rest} == {(number, together)}
    assert not any(hosts.made[name].changed() for name in "abc")

    first = together[0]  # the host of rank 0 is no other than the others
    left = [name for name in together.split(", ") if name != first]
    hosts.lose(first)
    assert all(soon(hosts.made[name].changed) for name in left)
    assert broken_file(hosts.folder, 1).exists()
    assert any(f"{first} no longer answers" in each for each in hosts.said)
    for name in left:
        hosts.wait_again(name)
    assert hosts.names(*left) == [(2, ", ".join(left))] * 2
    found = hosts.rounds[left[0]].result()
    assert (found.lost, found.joined) == ((first,), ())
    assert abs((found.lost_at_s or 0.0) - time.time()) < 30

    hosts.join(first)
    assert all(soon(hosts.made[name].changed) for name in left)
    assert not broken_file(hosts.folder, 2).exists()  # its ranks can still save
    for name in left:
        hosts.wait_again(name)
    assert hosts.names(*together.split(", ")) == [(3, ", ".join([*left, first]))] * 3
    assert hosts.rounds[first].result().joined == (first,)


def test_a_host_whose_ranks_failed_meets_the_others_again(hosts: Hosts):
    for name in "ab":
        hosts.join(name)
    hosts.names(*"ab")
    hosts.wait_again("a")
    assert soon(hosts.made["b"].changed)
    assert broken_file(hosts.folder, 1).exists()
    hosts.wait_again("b")
    assert [number for number, _ in hosts.names(*"ab")] == [2, 2]
    assert hosts.rounds["a"].result().lost == ()


def test_fewer_hosts_than_the_least_are_told_and_end(hosts: Hosts):
    hosts.join("a", patience_s=0.6)
    with pytest.raises(RecSmithError, match="1 of the at least 2 hosts of this job is here, for"):
        hosts.rounds["a"].result(10)
    assert hosts.said == ["1 of the at least 2 hosts of this job is here"]


def test_the_last_host_of_a_range_goes_on_alone_once_the_others_are_gone(hosts: Hosts):
    for name in "ab":
        hosts.join(name, counts=(1, 2), first_s=10.0)
    (_, together), _ = hosts.names(*"ab")
    first, second = together.split(", ")
    hosts.lose(first)
    assert soon(hosts.made[second].changed)
    hosts.wait_again(second)
    assert hosts.names(second) == [(2, second)]


def test_a_job_that_ended_is_over_for_a_host_that_waits_and_starts_anew_for_one_that_comes(hosts: Hosts):
    for name in "ab":
        hosts.join(name)
    hosts.names(*"ab")
    hosts.join("c")
    assert soon(lambda: hosts.made["c"]._saw_open)
    hosts.made.pop("a").close(ended=True)
    with pytest.raises(JobEnded):
        hosts.rounds["c"].result(10)
    hosts.made.pop("b").close(ended=True)
    hosts.made.pop("c").close(ended=False)
    for name in "de":
        hosts.join(name)
    (number, together), _ = hosts.names(*"de")
    assert (number, sorted(together)) == (2, sorted("d, e"))
    assert hosts.rounds["d"].result().lost == ()


def test_hosts_that_share_no_batch_evenly_wait_until_more_come(hosts: Hosts):
    for name in "abc":
        hosts.join(name, counts=(2, 4))
    assert soon(lambda: sum(each.done() for each in hosts.rounds.values()) == 2)
    together = [name for name in "abc" if hosts.rounds[name].done()]
    (spare,) = {*"abc"} - {*together}
    assert soon(lambda: all(hosts.made[name].pings.answering() for name in together))
    time.sleep(0.3)
    assert not any(hosts.made[name].changed() for name in together)
    hosts.join("d", counts=(2, 4))
    assert all(soon(hosts.made[name].changed) for name in together)
    for name in together:
        hosts.wait_again(name)
    assert [number for number, _ in hosts.names(*"abcd")] == [2] * 4

    hosts.lose(spare)  # three are left, of whom two go on
    left = [name for name in "abcd" if name != spare]
    assert all(soon(hosts.made[name].changed) for name in left)
    for name in left:
        hosts.wait_again(name)
    assert soon(lambda: sum(hosts.rounds[name].done() for name in left) == 2)
    found = next(hosts.rounds[name].result() for name in left if hosts.rounds[name].done())
    assert (found.number, found.lost) == (3, (spare,))


def test_a_host_with_other_ranks_is_refused(hosts: Hosts):
    for name in "ab":
        hosts.join(name)
    hosts.names(*"ab")
    hosts.join("c", ranks=4)
    with pytest.raises(RecSmithError, match=r"host c is to start 4 ranks and host [ab] 1; all hosts of a job start as"):
        hosts.rounds["c"].result(10)


def test_what_a_rank_refuses_ends_the_job(hosts: Hosts):
    for name in "ab":
        hosts.join(name)
    hosts.names(*"ab")
    refusal_file(hosts.folder, 1).write_text("{}")
    hosts.wait_again("a")
    with pytest.raises(JobRefused):
        hosts.rounds["a"].result(10)


def test_a_refusal_is_never_read_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RECSMITH_HOSTS", str(tmp_path))
    monkeypatch.setenv("RECSMITH_HOST_ROUND", "1")
    monkeypatch.setattr("recsmith.jobs.hosts.rank._watch_signals", lambda: None)
    file = refusal_file(tmp_path, 1)
    file.write_text("of another rank")
    with file.open() as there:
        with pytest.raises(UsageError), as_host_rank():
            raise UsageError("no")
        assert there.read() == "of another rank"
    assert json.loads(file.read_text()) == {"kind": "UsageError", "message": "no"}


def test_a_host_that_was_paused_until_the_others_forgot_it_comes_back(hosts: Hosts):
    hosts.join("a")
    hosts.made["a"].pings.file.unlink()  # as another host does after FORGOTTEN_S without a sign
    hosts.join("b")
    assert sorted(hosts.names("a")[0][1]) == sorted("a, b")


def test_nothing_of_a_meeting_runs_on(hosts: Hosts):
    before = threading.active_count()
    hosts.join("a", patience_s=0.2)
    hosts.rounds["a"].exception(10)
    hosts.made.pop("a").close(ended=False)
    assert soon(lambda: threading.active_count() <= before + 1)  # the thread of this test's pool
    assert not [*hosts.folder.glob("*.host")]
