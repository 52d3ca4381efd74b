"""The loopback interface, on which the ranks of a local job meet: its name, its address, and a free port."""

import secrets
import socket
from contextlib import suppress
from pathlib import Path

from recsmith.errors import RecSmithError

LOOPBACK = "127.0.0.1"
FIRST_PORT, PORTS = 20_000, 12_000  # below 32768, where Linux begins to give ports to outgoing connections
TRIES = 100  # of ports drawn at random; nearly all are free
_IFF_LOOPBACK = 0x8  # of an interface's flags, netdevice(7)


def loopback_interface() -> str:
    """Name of the loopback interface; gloo picks another one, and hangs, where this is not said."""
    for _, name in socket.if_nameindex():
        flags = Path("/sys/class/net") / name / "flags"
        if flags.exists() and int(flags.read_text(), 16) & _IFF_LOOPBACK:
            return name
    return "lo"


def free_port() -> int:
    """A port of LOOPBACK that is free now, and that no outgoing connection takes before torchrun listens.

    Raises:
        RecSmithError: none of those drawn was free.
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
