"""The meeting of a job's hosts: a shared folder without a leading host.

Waiting hosts that reach each other form the next round; the first one to see that it is time writes it, under a lock. A
host of a round waits again if its ranks have failed, or if `changed` says that a host is lost or has come.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from recsmith.errors import RecSmithError
from recsmith.jobs.hosts.pings import AskedHost, HostPings, HostStatus, open_door
from recsmith.jobs.hosts.rounds import (
    HostAgent,
    HostRound,
    broken_file,
    group_of,
    in_order,
    may_replace,
    read_round,
    refusal_file,
    write_round,
)

FIRST_S = 30.0  # seconds for which hosts of a new job wait for more hosts, once the fewest are there
AGAIN_S = 1.0  # seconds for which hosts of a round that has ended wait for more hosts
PARTED_S = 3.0  # least seconds to wait if not all waiting hosts reach each other
HERE_S = 1.5  # seconds for which a new host must have been seen before a round ends for it
LOOK_S = 0.2  # seconds between two checks of a waiting host
READ_S = 1.0  # seconds between two reads of the round's file by a training host
ALONE_S = 10.0  # seconds after which a host reports that it waits for more hosts
PATIENCE_S = 600.0  # seconds for which a host waits for the fewest hosts


class JobEnded(RecSmithError):
    """The job has ended on other hosts."""


class JobRefused(RecSmithError):
    """A rank raised an error of RecSmith, which another start of the ranks would raise again."""


class HostMeeting:
    """A job's meeting as seen by this host.

    Args:
        folder: the folder of the job's hosts.
        name: this host's name in messages.
        address: this host's address.
        ranks: number of ranks that this host starts.
        counts: numbers of hosts that may train together; further hosts wait.
        say: called with messages for people.
        patience_s: seconds to wait for the fewest hosts.
        first_s: seconds for which hosts of a new job wait for more than these.
    """

    def __init__(
        self, folder: Path, name: str, address: str, *, ranks: int, counts: Sequence[int],
        say: Callable[[str], object], patience_s: float = PATIENCE_S, first_s: float = FIRST_S,
    ) -> None:  # fmt: skip
        self.folder, self._counts, self._say = folder, sorted(counts), say
        self.least, self.most = self._counts[0], self._counts[-1]
        self._patience_s, self._first_s = patience_s, first_s
        folder.mkdir(parents=True, exist_ok=True)
        door = open_door(address)
        self.agent = HostAgent(id=uuid4().hex[:12], name=name, address=address, port=door.getsockname()[1], ranks=ranks)
        self.round: HostRound | None = None  # the round that this host is in
        self._waits, self._store, self._told = False, (0, 0), threading.Lock()
        self._group, self._since, self._read, self._saw_open = list[str](), 0.0, 0.0, False
        self.pings = HostPings(folder, self.agent, door, self._status)

    def close(self, *, ended: bool) -> None:
        """Leave the meeting. ended: whether the job has ended on all hosts."""
        if ended and self.round is not None:
            with self._locked():
                now = read_round(self.folder)
                if now is not None and now.number == self.round.number and not now.closed:
                    write_round(self.folder, HostRound(number=now.number, hosts=now.hosts, closed=True))
        self.pings.close()

    def next_round(self) -> HostRound:
        """Wait for the next round that includes this host.

        Raises:
            JobEnded: the job that this host was to join has ended.
            JobRefused: a rank of its last round raised an error of RecSmith.
            RecSmithError: fewer hosts than the least number have come in time, or hosts have different numbers of
                ranks.
        """
        begun, said, self._group = time.monotonic(), False, []
        with self._told:
            self._waits = True
        while True:
            now = read_round(self.folder)
            if now is not None and now.number > self._after and self.agent.id in now.ids and not now.closed:
                with self._told:
                    self.round, self._waits = now, False
                return now
            self._check_open(now)
            self._check_ranks()
            self._make_round(now)
            waited = time.monotonic() - begun
            if waited > ALONE_S and not said and (said := len(self._group) < self.least):
                self._say(self._few())
            if waited > self._patience_s and len(self._group) < self.least:
                raise RecSmithError(
                    f"{self._few()}, for {self._patience_s:g} s; start the command on more hosts, and training goes on "
                    "from the newest checkpoint"
                )
            time.sleep(LOOK_S)

    def holds_store(self, port: int) -> None:
        """Announce the port on this host at which the store of this round's ranks listens."""
        assert self.round is not None
        self._store = (self.round.number, port)

    def store_of_first(self) -> tuple[str, int] | None:
        """Address and port of this round's store; None until its first host has announced it."""
        assert self.round is not None
        first = self.pings.others.get(self.round.ids[0])
        store = None if first is None or first.status is None else first.status.store
        return None if store is None or store[0] != self.round.number else (self.round.hosts[0].address, store[1])

    def changed(self) -> bool:
        """Whether this round must end: one of its hosts is lost or waits again, or new hosts allow a larger round."""
        running = self.round
        if running is None:
            return False
        others = self.pings.answering()
        lost = [each for each in running.hosts if each.id != self.agent.id and each.id not in others]
        waiting = [key for key, each in others.items() if key in running.ids and _waits_after(each, running.number)]
        if lost or waiting or self._is_replaced(running):
            self._break(running, [each.name for each in lost])
            return True
        here = [
            key for key, each in others.items()
            if key not in running.ids and each.status is not None and each.status.waits
            and time.monotonic() - each.since > HERE_S and {*running.ids} <= {*each.status.sees}
        ]  # fmt: skip
        return self._fitting(len(running.hosts) + len(here)) > len(running.hosts)

    @property
    def _after(self) -> int:
        return 0 if self.round is None else self.round.number

    def _status(self) -> HostStatus:
        with self._told:
            sees = tuple(self.pings.answering()) if hasattr(self, "pings") else ()
            return HostStatus(id=self.agent.id, waits=self._waits, after=self._after, sees=sees, store=self._store)

    def _few(self) -> str:
        here = f"{len(self._group) or 1} of the at least {self.least} hosts of this job"
        return f"{here} {'is' if len(self._group) < 2 else 'are'} here"

    def _check_open(self, now: HostRound | None) -> None:
        """Raise JobRefused if a rank refused to train, or JobEnded if the round that this host knows of is closed."""
        if refusal_file(self.folder, self._after).exists():
            raise JobRefused("a rank refused to train")
        if now is None or not now.closed:
            self._saw_open |= now is not None and any(key in now.ids for key in self.pings.answering())
        elif self._saw_open or self._after >= now.number:
            raise JobEnded("the job has ended on the other hosts")

    def _check_ranks(self) -> None:
        """Raise RecSmithError if this host's number of ranks differs from that of another host."""
        for each in self.pings.answering().values():
            if each.agent.ranks != self.agent.ranks:
                raise RecSmithError(
                    f"host {self.agent.name} is to start {self.agent.ranks} ranks and host {each.agent.name} "
                    f"{each.agent.ranks}; all hosts of a job start as many, so give the run `ranks`"
                )

    def _fitting(self, hosts: int) -> int:
        """The largest allowed number of hosts that is at most `hosts`; 0 if there is none."""
        return max((each for each in self._counts if each <= hosts), default=0)

    def _is_replaced(self, running: HostRound) -> bool:
        if time.monotonic() - self._read < READ_S:
            return False
        self._read = time.monotonic()
        now = read_round(self.folder)
        return now is not None and now.number > running.number

    def _break(self, running: HostRound, lost: Sequence[str]) -> None:
        """Mark this round as broken, so that its ranks know that they can no longer save."""
        file = broken_file(self.folder, running.number)
        if lost and not file.exists():
            self._say(f"{' and '.join(lost)} no longer answers; going on with the hosts that are left")
        file.touch()

    def _make_round(self, now: HostRound | None) -> None:
        """Write the next round if it is time for it."""
        running = None if now is None or now.closed else now
        others = self.pings.answering()
        statuses = {key: each.status for key, each in others.items() if each.status is not None}
        waiting = {key: each for key, each in statuses.items() if each.waits and _is_free(key, each, running)}
        sees = {key: [*status.sees] for key, status in waiting.items()} | {self.agent.id: [*waiting]}
        whole = in_order(group_of(self.agent.id, sees), running)
        group = whole[: self._fitting(len(whole))] or whole
        if group != self._group:
            self._group, self._since = group, time.monotonic()
        if self.agent.id not in group or len(group) < self.least or not self._may(running, whole, others, waiting):
            return
        goes_on = running is not None and any(key in running.ids for key in group)
        wait_s = AGAIN_S if goes_on else self._first_s
        wait_s = 0.0 if len(group) == self.most else wait_s
        wait_s = max(wait_s, PARTED_S) if len(group) < self._fitting(len(waiting) + 1) else wait_s
        if time.monotonic() - self._since >= wait_s:
            self._write(now, group, others)

    def _may(
        self,
        running: HostRound | None,
        group: Sequence[str],
        others: dict[str, AskedHost],
        waiting: dict[str, HostStatus],
    ) -> bool:
        """Whether a group may train: no host of the running round still trains, and the group may replace it."""
        if running is None:
            return True
        if any(key in running.ids and key not in waiting for key in others):
            return False
        known = self.pings.others
        there = {key for key in running.ids if key in known and not known[key].is_gone}
        return may_replace(running, group, there)

    def _write(self, now: HostRound | None, group: Sequence[str], others: dict[str, AskedHost]) -> None:
        agents = {key: each.agent for key, each in others.items()} | {self.agent.id: self.agent}
        with self._locked():
            there = read_round(self.folder)
            if (there and there.number) != (now and now.number):
                return
            goes_on = now is not None and not now.closed and any(key in now.ids for key in group)
            before = now.hosts if now is not None and goes_on else ()
            lost = [each for each in before if each.id not in group and each.id not in others]
            seen = [self.pings.others[each.id].answered_at for each in lost if each.id in self.pings.others]
            ids = {each.id for each in before}
            write_round(self.folder, HostRound(
                number=1 if now is None else now.number + 1, hosts=tuple(agents[key] for key in group),
                lost=tuple(each.name for each in lost), lost_at_s=max(filter(None, seen), default=None),
                joined=tuple(agents[key].name for key in group if ids and key not in ids),
            ))  # fmt: skip

    @contextmanager
    def _locked(self) -> Generator[None]:
        handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _waits_after(asked: AskedHost, number: int) -> bool:
    return asked.status is not None and asked.status.waits and asked.status.after >= number


def _is_free(key: str, status: HostStatus, running: HostRound | None) -> bool:
    """Whether a waiting host has left the running round, or was never in it."""
    return running is None or key not in running.ids or status.after >= running.number
