"""This machine as Linux reports it, and its loopback interface."""

import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from support.listeners import LOOK_S, listening, watched_listeners
from support.listeners import wide as beyond_loopback

from recsmith.errors import RecSmithError
from recsmith.jobs import machine
from recsmith.jobs.machine import (
    FIRST_PORT,
    LOOPBACK,
    PORTS,
    describe_cpu,
    free_bytes,
    free_cores,
    free_port,
    is_loopback,
    listener,
    loopback_interface,
)


def test_this_machine_is_described():
    assert f"{os.cpu_count()} cores, last cache " in describe_cpu()
    assert 1 <= free_cores() <= (os.cpu_count() or 1)
    assert (free_bytes() or 0) > 2**20


def test_what_linux_does_not_say_is_unknown(monkeypatch: pytest.MonkeyPatch):
    def unreadable(path: Path) -> str:
        raise OSError

    monkeypatch.setattr(Path, "read_text", unreadable)
    assert describe_cpu() == f"unknown processor, {os.cpu_count()} cores, last cache unknown"
    assert free_bytes() is None


def test_sizes_are_read_in_kibibytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Path, "read_text", lambda path: "MemTotal: 9 kB\nMemAvailable:   3 kB\n")
    assert free_bytes() == 3072


def test_the_interface_is_one_of_this_machine():
    assert loopback_interface() in {name for _, name in socket.if_nameindex()}


def test_a_free_port_can_be_bound_and_is_never_given_to_outgoing_connections():
    port = free_port()
    assert FIRST_PORT <= port < FIRST_PORT + PORTS <= 32_768
    with socket.socket() as probe:
        probe.bind((LOOPBACK, port))


def test_ports_that_are_taken_are_passed_over(monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        port = taken.getsockname()[1]
        draws: Any = iter([port - FIRST_PORT, port - FIRST_PORT, 7])
        monkeypatch.setattr(machine.secrets, "randbelow", lambda _: next(draws))
        assert free_port() == FIRST_PORT + 7
        monkeypatch.setattr(machine.secrets, "randbelow", lambda _: port - FIRST_PORT)
        with pytest.raises(RecSmithError, match=r"found no free port on 127\.0\.0\.1 in 100 tries from 20000 to 31999"):
            free_port()


def test_a_listener_is_where_it_was_asked_for_alone():
    """And what tests of jobs look with sees one that is wider, as the store of torchrun's own agents was."""
    with listener() as narrow, socket.socket() as wide, socket.socket(socket.AF_INET6) as wider:
        for each in (wide, wider):
            each.bind(("", 0))
            each.listen()
        addresses = listening([os.getpid()])
        ports = {f"{each.getsockname()[1]:04X}": each for each in (narrow, wide, wider)}
        found = {each: each.rpartition(":")[0] for each in addresses if each.rpartition(":")[2] in ports}
        assert len(found) == 3
        assert len(beyond_loopback(found)) == 2
        assert narrow.getsockname()[0] == LOOPBACK


def test_a_wide_listener_is_noticed_while_a_job_runs():
    with (
        pytest.raises(AssertionError, match="listens where other machines reach it"),
        watched_listeners(),
        socket.create_server(("", 0)),
    ):
        time.sleep(5 * LOOK_S)


@pytest.mark.parametrize(("host", "inner"), [
    ("127.0.0.1", True), ("127.9.9.9", True), ("[::1]", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
    ("node7", False), ("10.0.0.1", False),
])  # fmt: skip
def test_which_addresses_others_cannot_reach(host: str, inner: bool):
    assert is_loopback(host) == inner
