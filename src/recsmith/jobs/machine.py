"""Facts about this machine, as Linux reports them: processor, free cores and memory, loopback interface and ports."""

import ipaddress
import os
import secrets
import socket
from contextlib import suppress
from pathlib import Path

from recsmith.errors import RecSmithError


def describe_cpu() -> str:
    """A text of the processor's name, cores and last-level cache; 'unknown' for what Linux does not report."""
    return f"{_model()}, {os.cpu_count()} cores, last cache {_last_cache()}"


PROGRAM_BYTES = 200 * 2**20  # least memory of a process with PyTorch, TorchRec and FBGEMM; 259 MiB were measured


def free_bytes() -> int | None:
    """Bytes of memory that programs can still take; None if Linux does not report it."""
    return _memory("MemAvailable")


def memory_bytes() -> int | None:
    """Bytes of all memory, used or free; None if Linux does not report it."""
    return _memory("MemTotal")


def _memory(field: str) -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:")), None)


def processor_flags() -> frozenset[str]:
    """Features of the processor by Linux's names, such as avx512_bf16; empty if Linux does not report them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), []))


def free_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown processor")


def _last_cache() -> str:
    """Size of the last-level cache as Linux writes it, such as 32768K."""
    try:
        return Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text().strip()
    except OSError:
        return "unknown"


LOOPBACK = "127.0.0.1"
FIRST_PORT, PORTS = 20_000, 12_000  # below 32768, from which Linux assigns ports to outgoing connections
TRIES = 100  # number of random ports that are tried; nearly all are free
_IFF_LOOPBACK = 0x8  # bit of an interface's flags, netdevice(7)


def loopback_interface() -> str:
    """Name of the loopback interface; without it, gloo may pick another interface and hang."""
    for _, name in socket.if_nameindex():
        flags = Path("/sys/class/net") / name / "flags"
        if flags.exists() and int(flags.read_text(), 16) & _IFF_LOOPBACK:
            return name
    return "lo"


def free_port() -> int:
    """A port of LOOPBACK that is free now, and that no outgoing connection takes before torchrun listens.

    Raises:
        RecSmithError: none of the tried ports was free.
    """
    for _ in range(TRIES):
        port = FIRST_PORT + secrets.randbelow(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port
    last = FIRST_PORT + PORTS - 1
    raise RecSmithError(
        f"found no free port on {LOOPBACK} in {TRIES} tries from {FIRST_PORT} to {last}; free one and try again"
    )


def is_loopback(host: str) -> bool:
    """Whether an address or host name is a loopback one, which other machines cannot reach."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def listener(host: str = LOOPBACK, port: int = 0) -> socket.socket:
    """A socket that listens at this address only. port: 0 takes a free port.

    Raises:
        OSError: another program listens there, or the address is not of this machine.
    """
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    made = socket.socket(family)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen()
    except BaseException:
        made.close()
        raise
    return made
