"""The interface and the ports on which local ranks meet."""

import socket
from typing import Any

import pytest

from recsmith.errors import RecSmithError
from recsmith.jobs import loopback
from recsmith.jobs.loopback import FIRST_PORT, LOOPBACK, PORTS, free_port, loopback_interface


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
        monkeypatch.setattr(loopback.secrets, "randbelow", lambda _: next(draws))
        assert free_port() == FIRST_PORT + 7
        monkeypatch.setattr(loopback.secrets, "randbelow", lambda _: port - FIRST_PORT)
        with pytest.raises(RecSmithError, match=r"found no free port on 127\.0\.0\.1 in 100 tries from 20000 to 31999"):
            free_port()
