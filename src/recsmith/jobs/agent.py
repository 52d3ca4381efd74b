"""A torchrun agent that ends with its parent process: python -m recsmith.jobs.agent, with torchrun's options.

Every process of a local job, agent or rank, calls `end_with_parent` first, so that none outlives the job. Linux only.

The store of torchrun's own rendezvous listens on every address of the machine, even if torchrun is given only one, and
has no password. So agents use the rendezvous LOCAL, which takes a listener that the parent has bound to the loopback.
"""

import ctypes
import os
import signal
import sys
from datetime import timedelta
from typing import Any

PARENT = "RECSMITH_PARENT"  # environment variable: id of the process that a child of a job must not outlive
LOCAL = "local"  # --rdzv-backend: torchrun's `static` with a listener; --rdzv-conf rank=HOST,listener=DESCRIPTOR
STORE_TIMEOUT = timedelta(minutes=10)  # torchrun's own timeout
_PR_SET_PDEATHSIG = 1  # option of prctl(2): the signal that a process gets when its parent dies


def end_with_parent() -> None:
    """Make Linux kill this process when its parent dies, even by SIGKILL; exit at once if it is already dead."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(os.environ[PARENT]):
        sys.exit("the process that started this job is gone")
    os.environ[PARENT] = str(os.getpid())  # for the children of this process


def hosted_store(host: str, port: int, listener: int, timeout: timedelta) -> Any:
    """A TCPStore of PyTorch that serves on an existing listener at 'host:port', and closes it in the end.

    listener: file descriptor of the listening socket.
    """
    from torch._C._distributed_c10d import TCPStore

    return TCPStore(
        host, port, is_master=True, timeout=timeout, wait_for_workers=False, multi_tenant=True,
        master_listen_fd=listener,
    )  # fmt: skip


def register_local_rendezvous() -> None:
    """Register the rendezvous backend LOCAL with torchrun."""
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
