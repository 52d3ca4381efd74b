"""Two hosts on one machine, each with a network of its own, and a link between them whose rate and bytes are known.

    python benchmarks/two_networks.py --rate 200mbit --ranks 2 -- recsmith train run.yaml

starts the command twice on each host, with the variables that torchrun sets, and prints the seconds that it took and
the bytes that crossed the link each way. In Python:

    with two_networks(rate="200mbit") as hosts:
        before = sent_bytes(hosts)
        run_ranks(hosts, ["some", "command"], ranks_per_host=2)

Hosts are Linux network namespaces joined by a pair of veth devices; a rate is a token bucket (tc tbf) at both ends.
This needs root, unshare, nsenter, setpriv, ip and, for a rate, tc; `why_not()` says what lacks. Both namespaces are
new, so the machine's own network is left as it is; they end with the block, and when this process is killed.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

INTERFACE = "veth0"  # of each host
ADDRESSES = ("10.99.0.1", "10.99.0.2")
PORT = 29_500  # of the first host, whose network nobody else has
ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")  # what is started so is killed when this process is
BURST, LATENCY = "256kb", "400ms"  # of the token bucket: some TCP segments as Linux hands them over, and its queue


@dataclass(frozen=True)
class Host:
    """A host: what to write before a command that runs on it, and its address on the network between both."""

    enter: tuple[str, ...]
    address: str

    def run(self, command: Sequence[str]) -> str:
        """Run a command on this host; what it printed."""
        return subprocess.run([*self.enter, *command], check=True, stdout=subprocess.PIPE, text=True).stdout


def why_not(rate: str | None = None) -> str | None:
    """Why no such networks can be made here; None where they can. rate: whether a link of it is wanted."""
    tools = ("unshare", "nsenter", "setpriv", "ip", *(("tc",) if rate else ()))
    missing = next((name for name in tools if shutil.which(name) is None), None)
    if missing is not None:
        return f"{missing} is not installed"
    pair = ["ip", "link", "add", INTERFACE, "type", "veth", "peer", "name", "veth1"]
    tried = subprocess.run(["unshare", "-n", *pair], capture_output=True, text=True)
    return f"network namespaces: {tried.stderr.strip()}" if tried.returncode else None


@contextmanager
def two_networks(rate: str | None = None) -> Generator[tuple[Host, Host]]:
    """Two hosts that reach each other over veth devices alone, until the block ends.

    rate: of each direction, as tc writes it (200mbit); None: as fast as this machine is.
    """
    with ExitStack() as stack:
        holders = [stack.enter_context(_namespace()) for _ in ADDRESSES]
        first, second = (
            Host((*ENDS_WITH_US, "nsenter", "-t", str(holder.pid), "-n"), address)
            for holder, address in zip(holders, ADDRESSES, strict=True)
        )
        first.run(["ip", "link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE,
                   "netns", str(holders[1].pid)])  # fmt: skip
        for host in (first, second):
            host.run(["ip", "link", "set", "lo", "up"])
            host.run(["ip", "addr", "add", f"{host.address}/24", "dev", INTERFACE])
            host.run(["ip", "link", "set", INTERFACE, "up"])
        set_rate((first, second), rate)
        yield first, second


def set_rate(hosts: Sequence[Host], rate: str | None) -> None:
    """Give the link between hosts this rate in each direction, in place of the one that it has."""
    for host in hosts:
        if "tbf" in host.run(["tc", "qdisc", "show", "dev", INTERFACE]) if shutil.which("tc") else "":
            host.run(["tc", "qdisc", "del", "dev", INTERFACE, "root"])
        if rate is not None:
            bucket = ["tbf", "rate", rate, "burst", BURST, "latency", LATENCY]
            host.run(["tc", "qdisc", "add", "dev", INTERFACE, "root", *bucket])


def sent_bytes(hosts: Sequence[Host]) -> list[int]:
    """Bytes that each host has sent over the link so far, headers of TCP, IP and Ethernet included."""
    shown = [json.loads(host.run(["ip", "-json", "-statistics", "link", "show", INTERFACE])) for host in hosts]
    return [links[0]["stats64"]["tx"]["bytes"] for links in shown]


def run_ranks(
    hosts: Sequence[Host],
    command: Sequence[str],
    ranks_per_host: int = 1,
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 3600.0,
) -> int:
    """Run a command as every rank of a job over the hosts, as torchrun would; the exit status of the first that fails.

    What rank 0 prints is printed. When a rank fails, or time is up, the others are ended.
    """
    world = len(hosts) * ranks_per_host
    shared = {
        **os.environ, "GLOO_SOCKET_IFNAME": INTERFACE, "TP_SOCKET_IFNAME": INTERFACE, "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": hosts[0].address, "MASTER_PORT": str(PORT), "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(ranks_per_host), **(environment or {}),
    }  # fmt: skip
    with ExitStack() as stack:
        ranks = []
        for rank in range(world):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank % ranks_per_host),
                   "GROUP_RANK": str(rank // ranks_per_host)}  # fmt: skip
            enter = hosts[rank // ranks_per_host].enter
            output = None if rank == 0 else subprocess.DEVNULL
            process = subprocess.Popen([*enter, *command], env={**shared, **own}, stdout=output)
            stack.callback(_ended, process)
            ranks.append(process)
        return _first_failure(ranks, timeout_s)


def _first_failure(ranks: Sequence[subprocess.Popen[bytes]], timeout_s: float) -> int:
    """The exit status of the first rank that fails, 0 where none does."""
    end, running = time.monotonic() + timeout_s, list(ranks)
    while running:
        for process in list(running):
            status = process.poll()
            if status:
                return status
            if status == 0:
                running.remove(process)
        if time.monotonic() > end:
            return 124
        time.sleep(0.02)
    return 0


def _ended(process: subprocess.Popen[bytes]) -> None:
    """End a process, kindly at first."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


@contextmanager
def _namespace() -> Generator[subprocess.Popen[bytes]]:
    """A process that holds a network namespace of its own until the block ends, or this process does."""
    holder = subprocess.Popen(["unshare", "-n", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
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


def main() -> int:
    """Run a command on two hosts; its exit status, and what crossed the link, on stderr."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", help="of the link, each way, such as 200mbit; the default is as fast as it goes")
    parser.add_argument("--ranks", type=int, default=1, help="of each host (1)")
    parser.add_argument("command", nargs="+", help="what every rank runs, after --")
    arguments = parser.parse_args()
    reason = why_not(arguments.rate)
    if reason is not None:
        print(f"two networks cannot be made here: {reason}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with two_networks(arguments.rate) as hosts:
        before, begun = sent_bytes(hosts), time.monotonic()
        status = run_ranks(hosts, arguments.command, arguments.ranks)
        seconds = time.monotonic() - begun
        sent = [after - start for after, start in zip(sent_bytes(hosts), before, strict=True)]
    print(f"{seconds:.2f} s; sent over the link: {sent[0]:,} bytes by host 0, {sent[1]:,} by host 1", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
