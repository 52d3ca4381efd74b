"""A torchrun agent that ends with the process which started it: python -m recsmith.jobs.agent, with torchrun's options.

Every process of a local job, agent or rank, calls `end_with_parent` first, so that none outlives the job. Linux only.

The store where ranks meet listens on every address of the machine, whatever address torchrun is given, and asks for no
password. So an agent names the rendezvous LOCAL, which takes a listener that the parent has bound to the loopback.
"""

import ctypes
import os
import signal
import sys
from datetime import timedelta
from typing import Any

PARENT = "RECSMITH_PARENT"  # environment: the process that a child of a job must not outlive
LOCAL = "local"  # torchrun's --rdzv-backend: its `static`, with a listener; --rdzv-conf rank=HOST,listener=DESCRIPTOR
STORE_TIMEOUT = timedelta(minutes=10)  # torchrun's own
_PR_SET_PDEATHSIG = 1  # of prctl(2): the signal that a process gets when its parent dies


def end_with_parent() -> None:
    """Have Linux kill this process when its parent dies, even by SIGKILL; leave at once where it is dead already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(os.environ[PARENT]):
        sys.exit("the process that started this job is gone")
    os.environ[PARENT] = str(os.getpid())  # for the children of this one


def hosted_store(host: str, port: int, listener: int, timeout: timedelta) -> Any:
    """A store of PyTorch's behind a listener at 'host:port', which it closes when it ends.

    listener: file descriptor of a listening socket.
    """
    from torch._C._distributed_c10d import TCPStore

    return TCPStore(
        host, port, is_master=True, timeout=timeout, wait_for_workers=False, multi_tenant=True,
        master_listen_fd=listener,
    )  # fmt: skip


def register_local_rendezvous() -> None:
    """Let torchrun know LOCAL."""
    from torch.distributed.elastic.rendezvous import RendezvousParameters, rendezvous_handler_registry
    from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous

    class LocalRendezvous(StaticTCPRendezvous):
        def get_backend(self) -> str:
            return LOCAL

    def made(parameters: RendezvousParameters) -> LocalRendezvous:
        host, _, port = parameters.endpoint.rpartition(":")
        rank, listener = int(parameters.config["rank"]), parameters.config.get("listener")
        found = LocalRendezvous(
            host, int(port), rank, parameters.max_nodes, parameters.run_id, int(STORE_TIMEOUT.total_seconds())
        )
        if listener is not None:
            found._store = hosted_store(host, int(port), int(listener), STORE_TIMEOUT)
        return found

    rendezvous_handler_registry.register(LOCAL, made)


if __name__ == "__main__":
    end_with_parent()
    register_local_rendezvous()
    from torch.distributed.run import main

    main()
