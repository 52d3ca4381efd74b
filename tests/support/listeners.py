"""Where the processes of a job listen, as Linux tells it: for tests that a job is on the loopback alone."""

import os
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

LOOPBACK = ("0100007F", "0" * 16 + "FFFF00000100007F", "0" * 24 + "01000000")  # 127.0.0.1, and as IPv6, in /proc/net
LISTENS = "0A"
LOOK_S = 0.1


def descendants(process: int) -> list[int]:
    """All processes that a process has started, and those that they have."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found, last = list[int](), [process]
    while last:
        last = [child for child, parent in parents.items() if parent in last]
        found += last
    return found


def sockets_of(processes: Iterable[int]) -> set[str]:
    """Numbers of the sockets that processes have open."""
    found = set[str]()
    for process in processes:
        with suppress(OSError):
            for link in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):
                    found.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    return found


def all_listening() -> dict[str, str]:
    """Where anything on this machine listens for TCP, as /proc/net has it, by the number of the socket."""
    found = dict[str, str]()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            _, local, _, state, *_, number = line.split()[:10]
            if state == LISTENS:
                found[number] = local
    return found


def listening(processes: Iterable[int]) -> set[str]:
    """The addresses at which processes listen for TCP, as /proc/net has them: 'hexadecimal address:port'."""
    own = sockets_of(processes)
    return {place for number, place in all_listening().items() if number in own}


def wide(addresses: Iterable[str]) -> set[str]:
    """Those of addresses that other machines can reach."""
    return {each for each in addresses if each.partition(":")[0] not in LOOPBACK}


@contextmanager
def watched_listeners(*processes: int) -> Generator[None]:
    """Look again and again where processes (without any: this one), and all that they have started, listen.

    At the end of the block none of them may have listened beyond the loopback. Whose a wide socket is, is looked up
    once: that takes milliseconds, and most machines have sockets of other programs that stay.
    """
    found, others, ended = set[str](), set[str](), threading.Event()

    def look() -> None:
        listeners = all_listening()
        if unknown := {number for number, place in listeners.items() if wide([place])} - others:
            own = sockets_of(each for top in processes or (os.getpid(),) for each in (top, *descendants(top)))
            found.update(listeners[number] for number in unknown & own)
            others.update(unknown - own)

    def watch() -> None:
        while not ended.wait(LOOK_S):
            look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
    assert not found, "a job listens where other machines reach it"
