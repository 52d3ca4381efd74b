"""The rendezvous backend `recsmith_hosts`, which connects a meeting of hosts to torchrun.

Ranks meet in a store that the first host of each round runs. It is new in each round, so no host is needed for longer
than its round. Agents use it only to report that they are done.
"""

import os
import time
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed import DistNetworkError, DistStoreError
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

from recsmith.jobs.agent import STORE_TIMEOUT, hosted_store
from recsmith.jobs.hosts.meeting import HostMeeting
from recsmith.jobs.hosts.pings import open_door
from recsmith.jobs.hosts.rank import HOST_ROUND

BACKEND = "recsmith_hosts"
STORE_S = 20.0  # seconds for which a host waits for the store of a round's first host
LOOK_S = 0.1


class HostsRendezvous(RendezvousHandler):
    """A meeting of hosts with the interface of torchrun's rendezvous handlers."""

    def __init__(self, meeting: HostMeeting, run_id: str) -> None:
        self.meeting, self._run_id = meeting, run_id
        self._held: Any = None  # the store of this round, if this host is its first
        self.shut = False

    def get_backend(self) -> str:
        """The name of the backend."""
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        """True: ranks use the store of the first host's agent."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for the next round with this host, and for the store of its ranks."""
        while True:
            made = self.meeting.next_round()
            place = made.place_of(self.meeting.agent.id)
            try:
                store, address, port = self._hold() if place == 0 else self._joined()
            except (DistNetworkError, DistStoreError, TimeoutError):
                continue  # the first host has already gone
            os.environ[HOST_ROUND] = str(made.number)  # for the ranks that are started now
            return RendezvousInfo(
                PrefixStore(f"hosts-{made.number}", store), place, len(made.hosts), RendezvousStoreInfo(address, port)
            )

    def _hold(self) -> tuple[Store, str, int]:
        address = self.meeting.agent.address
        door = open_door(address)
        port = door.getsockname()[1]
        self._held = hosted_store(address, port, door.detach(), STORE_TIMEOUT)
        self.meeting.holds_store(port)
        return self._held, address, port

    def _joined(self) -> tuple[Store, str, int]:
        begun = time.monotonic()
        while (found := self.meeting.store_of_first()) is None:
            if self.meeting.changed() or time.monotonic() - begun > STORE_S:
                raise TimeoutError
            time.sleep(LOOK_S)
        address, port = found
        store = TCPStore(address, port, is_master=False, timeout=timedelta(seconds=STORE_S), wait_for_workers=False)
        store.set_timeout(STORE_TIMEOUT)
        return store, address, port

    def is_closed(self) -> bool:
        """Whether the job has ended on this host."""
        return self.shut

    def set_closed(self) -> None:
        """Record that the job has ended."""
        self.shut = True

    def num_nodes_waiting(self) -> int:
        """1 if torchrun must end its ranks and meet again, else 0."""
        return int(self.meeting.changed())

    def get_run_id(self) -> str:
        """The id of this host's agent."""
        return self._run_id

    def shutdown(self) -> bool:
        """Record that the job has ended, with or without success; the agent undoes this if only this host ends."""
        self.set_closed()
        return True


def register(meeting: HostMeeting) -> HostsRendezvous:
    """Register the meeting of this process with torchrun, as the rendezvous backend BACKEND."""
    made = HostsRendezvous(meeting, meeting.agent.id)

    def handler(_: RendezvousParameters) -> RendezvousHandler:
        return made

    rendezvous_handler_registry.register(BACKEND, handler)
    return made
