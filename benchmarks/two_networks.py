"""Two hosts on one machine, each with a network of its own: Linux network namespaces joined by a pair of veth devices.

    with two_networks() as hosts:
        for host in hosts:
            subprocess.Popen([*host.enter, "some", "command"])

Needs root, unshare and ip; `why_not()` says what lacks. Both namespaces are new, so the machine's own network is left
as it is; they end with the block.
"""

import shutil
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

INTERFACE = "veth0"  # of each host
ADDRESSES = ("10.99.0.1", "10.99.0.2")


@dataclass(frozen=True)
class Host:
    """A host: what to write before a command that runs on it, and its address on the network between both."""

    enter: tuple[str, ...]
    address: str

    def run(self, command: Sequence[str]) -> None:
        """Run a command on this host."""
        subprocess.run([*self.enter, *command], check=True)


def why_not() -> str | None:
    """Why no such networks can be made here; None where they can."""
    missing = next((name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None), None)
    if missing is not None:
        return f"{missing} is not installed"
    pair = ["ip", "link", "add", INTERFACE, "type", "veth", "peer", "name", "veth1"]
    tried = subprocess.run(["unshare", "-n", *pair], capture_output=True, text=True)
    return f"network namespaces: {tried.stderr.strip()}" if tried.returncode else None


@contextmanager
def two_networks() -> Generator[tuple[Host, Host]]:
    """Two hosts that reach each other over veth devices alone, until the block ends."""
    with ExitStack() as stack:
        holders = [stack.enter_context(_namespace()) for _ in ADDRESSES]
        first, second = (
            Host(("nsenter", "-t", str(holder.pid), "-n"), address)
            for holder, address in zip(holders, ADDRESSES, strict=True)
        )
        first.run(["ip", "link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE,
                   "netns", str(holders[1].pid)])  # fmt: skip
        for host in (first, second):
            host.run(["ip", "link", "set", "lo", "up"])
            host.run(["ip", "addr", "add", f"{host.address}/24", "dev", INTERFACE])
            host.run(["ip", "link", "set", INTERFACE, "up"])
        yield first, second


@contextmanager
def _namespace() -> Generator[subprocess.Popen[bytes]]:
    """A process that holds a network namespace of its own until the block ends."""
    holder = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
    try:
        ours = Path("/proc/self/ns/net").readlink()
        while Path(f"/proc/{holder.pid}/ns/net").readlink() == ours:
            if holder.poll() is not None:
                raise SystemExit("a network namespace ended as it was made; run this as root")
            time.sleep(0.01)
        yield holder
    finally:
        holder.kill()
        holder.wait()
