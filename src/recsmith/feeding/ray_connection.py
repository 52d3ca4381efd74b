"""Ray, as this process uses it: joined or started for the first who asks, left when the last one has gone.

A Ray that is started here listens on the loopback interface alone, with no dashboard and without telling anybody of
its use, and ends with this process, however that ends. A token of its own keeps other users of the machine out.
Ray reads the variables below when it is imported, so they are set before.
"""

import logging
import os
import secrets
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from recsmith._install import RAY
from recsmith.errors import MissingExtra, RecSmithError
from recsmith.jobs.loopback import LOOPBACK
from recsmith.jobs.safe_path import places_of_modules

KNOCK_S = 10.0  # for an answer from a cluster's head
ADDRESS = "RAY_ADDRESS"  # Ray's own variable: the cluster that its programs join
SILENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # Ray reports its use to its makers otherwise
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # no GPU is hidden from a process that asks Ray for none
}
ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # Ray's word for: this machine alone, on 127.0.0.1


class Connection:
    """One use of Ray in this process. ray: the module. Several uses share what the first one joined or started."""

    _lock = threading.Lock()
    _uses = 0
    _ours = False  # whether it was this class, not the user's program, that called ray.init

    def __init__(self, address: str | None) -> None:
        address = address or os.environ.get(ADDRESS)
        if address is None:
            for name, value in {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}.items():
                os.environ.setdefault(name, value)
        self.ray = imported_ray(loopback=address is None or address.startswith(f"{LOOPBACK}:"))
        self._closed = False
        with Connection._lock:
            if not self.ray.is_initialized():
                _join(self.ray, address)
                Connection._ours = True
            Connection._uses += 1

    def close(self) -> None:
        """This use is over; with the last one of them the cluster is left. More than once does no harm."""
        with Connection._lock:
            if self._closed:
                return
            self._closed = True
            Connection._uses -= 1
            if not Connection._uses and Connection._ours:
                Connection._ours = False
                self.ray.shutdown()


@contextmanager
def ray_for_ranks() -> Generator[None]:
    """A Ray of this machine that all processes started within join; none where RAY_ADDRESS names one already.

    Raises:
        MissingExtra: ray is not installed.
    """
    if os.environ.get(ADDRESS):
        yield
        return
    connection = Connection(None)
    os.environ[ADDRESS] = connection.ray.get_runtime_context().gcs_address
    try:
        yield
    finally:
        del os.environ[ADDRESS]
        connection.close()


def imported_ray(*, loopback: bool) -> Any:
    """The module. loopback: for a Ray that listens on the loopback interface.

    Raises:
        MissingExtra: it is not installed.
    """
    if find_spec("ray") is None:
        raise MissingExtra(f"`data.engine: ray` needs Ray: {RAY}")
    for name, value in {**SILENT, **(ON_LOOPBACK if loopback else {})}.items():
        os.environ.setdefault(name, value)
    return import_module("ray")


def _join(ray: Any, address: str | None) -> None:
    """Join the cluster at an address, or start a Ray of this machine's own."""
    # As Ray's remote clients do, so that Ray does not add the working folder to where actors find modules.
    places = ray.job_config.JobConfig(_client_job=True, _py_driver_sys_path=places_of_modules(own=True))
    words: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "job_config": places}
    try:
        if address is None:
            ray.init(address="local", include_dashboard=False, **words)
        else:
            _knock(address)
            ray.init(address=address, **words)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        what = "start on this machine" if address is None else f"be joined at '{address}'"
        raise RecSmithError(
            f"Ray cannot {what} ({error}); data.ray_address is the address of a cluster's head node, such as "
            "host0:6379, and without one a Ray of this machine is started"
        ) from None
    if address is None and ray.util.get_node_ip_address() != LOOPBACK:
        ray.shutdown()
        raise RecSmithError(
            "Ray was imported before the feed, and so it would listen beyond this machine; import recsmith's feed "
            "first, or start Ray yourself and give its address as data.ray_address"
        )


def _knock(address: str) -> None:
    """Try whether anybody listens at 'host:port', since Ray itself tries for minutes; OSError where nobody does."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK_S).close()
