"""The process group of trainers that keep step, which a trainer can leave while it waits in a collective.

gloo waits for a peer that is stopped, or behind a dead network, until its timeout, because connections stay open. So
the sockets of a group are noted when they are made, and shutting them down ends every wait with an error.
"""

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from recsmith.errors import UsageError
from recsmith.jobs.agent import hosted_store
from recsmith.jobs.machine import listener
from recsmith.training.systems.remote.calls import ServerPlace
from recsmith.training.systems.remote.on_sockets import descriptors_to_servers

STORE_S = 30.0  # seconds after which a request to the store that gets no answer fails
Sockets = set[tuple[int, str]]  # (file descriptor, its target in /proc/self/fd)


class TrainerGroup:
    """The process group of one generation of trainers, and its sockets."""

    def __init__(self) -> None:
        self._mine = set[tuple[int, str]]()
        self._before: Sockets | None = None

    def join(self, place: ServerPlace, meet: str, *, generation: int, rank: int, world: int) -> None:
        """Join the process group of all trainers. meet: 'host:port' of the store where process groups form."""
        host, _, port = meet.rpartition(":")
        longest = timedelta(seconds=place.long_s)
        with self.opening():
            store = PrefixStore(
                f"{place.job}/trainers-{generation}", TCPStore(host, int(port), is_master=False, timeout=longest)
            )
            dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=longest)

    @contextmanager
    def opening(self) -> Generator[None]:
        """Within this context, every new socket is counted as one of the group."""
        before = self._before = _sockets()
        try:
            yield
        finally:
            self._mine |= _sockets() - before
            self._before = None

    def cut(self) -> None:
        """End every wait in the group, on any thread, with a RuntimeError of gloo."""
        now, before = _sockets(), self._before
        for descriptor, _ in (self._mine & now) | (set() if before is None else now - before):
            with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as each:
                each.getpeername()  # raises for a listener: gloo aborts the process if one is shut down
                each.shutdown(socket.SHUT_RDWR)


def hosted_meeting(address: str) -> tuple[TCPStore, str]:
    """The store where process groups form, hosted by this process, and its 'host:port'.

    address: the only 'host:port' at which it listens; port 0 picks a free port.

    Raises:
        UsageError: another program listens there.
    """
    host, _, wanted = address.rpartition(":")
    try:
        made = listener(host, int(wanted))
    except OSError as error:
        raise UsageError(
            f"servers cannot listen at {address} ({error.strerror or error}); give remote.address another port"
        ) from None
    port = made.getsockname()[1]
    return hosted_store(host, port, made.detach(), timedelta(seconds=STORE_S)), f"{host}:{port}"


def _sockets() -> Sockets:
    """The sockets of this process, except those connected to servers."""
    found: Sockets = set()
    spared = descriptors_to_servers()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            target = str(each.readlink())
            if target.startswith("socket:") and int(each.name) not in spared:
                found.add((int(each.name), target))
    return found
