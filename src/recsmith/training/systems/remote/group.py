"""The process group of trainers that keep step, which each of them can leave while it waits in it.

gloo waits for a peer that is stopped, or behind a dead network, as long as its timeout says: connections stay open.
So the sockets of a group are remembered as they are made, and shutting them down ends every wait with an error.
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

STORE_S = 30.0  # of whoever asks a store and gets no answer
Sockets = set[tuple[int, str]]  # file descriptors, and what each stands for


class TrainerGroup:
    """The group of a generation, and its sockets."""

    def __init__(self) -> None:
        self._mine = set[tuple[int, str]]()
        self._before: Sockets | None = None

    def join(self, place: ServerPlace, meet: str, *, generation: int, rank: int, world: int) -> None:
        """Join the group of all trainers. meet: 'host:port' of the store where process groups form."""
        host, _, port = meet.rpartition(":")
        longest = timedelta(seconds=place.long_s)
        with self.opening():
            store = PrefixStore(
                f"{place.job}/trainers-{generation}", TCPStore(host, int(port), is_master=False, timeout=longest)
            )
            dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=longest)

    @contextmanager
    def opening(self) -> Generator[None]:
        """Sockets that are made within belong to the group."""
        before = self._before = _sockets()
        try:
            yield
        finally:
            self._mine |= _sockets() - before
            self._before = None

    def cut(self) -> None:
        """End every wait in the group, on any thread: gloo raises a RuntimeError."""
        now, before = _sockets(), self._before
        for descriptor, _ in (self._mine & now) | (set() if before is None else now - before):
            with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as each:
                each.getpeername()  # a listener has none: gloo aborts the process where one is shut down
                each.shutdown(socket.SHUT_RDWR)


def hosted_meeting(address: str) -> tuple[TCPStore, str]:
    """The store where process groups form, hosted here, and its 'host:port'.

    address: likewise, at which alone it listens; a port of 0 is a free one.

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
    """The sockets of this process, but for those to servers."""
    found: Sockets = set()
    spared = descriptors_to_servers()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            target = str(each.readlink())
            if target.startswith("socket:") and int(each.name) not in spared:
                found.add((int(each.name), target))
    return found
