"""The engine for several machines: workers are actors of a Ray cluster, and parts come through its object store.

An actor runs the same code as a process of the local engine (worker.py). Actors are spread over the nodes of the
cluster; an actor that ends, with its node or alone, is lost, and the feed starts another. Ray could restart it, too,
but only the feed knows when losses over the same window are no accident. Imports ray only when an engine is created.

Ray is joined or started at the first use in a process, and left after the last one. A Ray that is started here listens
on the loopback interface only, has no dashboard, does not report its use, and ends with this process, however that
ends. A random token keeps other users of the machine out. Ray reads the environment variables below when it is
imported, so they are set before that.
"""

import logging
import os
import secrets
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from recsmith._install import RAY
from recsmith._version import __version__
from recsmith.errors import MissingExtra, RecSmithError
from recsmith.feeding.worker import ERROR, FeedSettings, worker_of
from recsmith.files import dump_json, encode
from recsmith.jobs.machine import LOOPBACK
from recsmith.jobs.processes import Arrays, encode_text, places_of_modules

KNOCK_S = 10.0  # seconds to wait for an answer from a cluster's head node
ADDRESS = "RAY_ADDRESS"  # Ray's own environment variable: the cluster to join
SILENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # otherwise Ray reports usage statistics to its developers
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # do not hide GPUs from a process that requests none
}
ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # Ray's variable for listening on 127.0.0.1 only
AHEAD = 8  # largest number of a worker's parts in the object store; trade-off: more hide network delays, cost memory


class Connection:
    """One use of Ray in this process; all uses share the cluster that the first one joined or started.

    address: address of a cluster; None: that of RAY_ADDRESS, or a new Ray on this machine. asks, key: the run settings
    that ask for Ray and name the address, for errors. The attribute `ray` is the module.

    Raises:
        MissingExtra: ray is not installed.
        RecSmithError: no cluster answers at the address.
    """

    _lock = threading.Lock()
    _uses = 0
    _ours = False  # whether this class called ray.init, and not the user's program

    def __init__(self, address: str | None, *, asks: str = "data.engine: ray", key: str = "data.ray_address") -> None:
        address = address or os.environ.get(ADDRESS)
        if address is None:
            for name, value in {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}.items():
                os.environ.setdefault(name, value)
        self.ray = imported_ray(loopback=address is None or address.startswith(f"{LOOPBACK}:"), asks=asks)
        self._closed = False
        with Connection._lock:
            if not self.ray.is_initialized():
                _join(self.ray, address, key)
                Connection._ours = True
            Connection._uses += 1

    def close(self) -> None:
        """End this use; after the last use the cluster is left. May be called more than once."""
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
    """Start a Ray on this machine for all processes that are started in the context, unless RAY_ADDRESS is set.

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


def imported_ray(*, loopback: bool, asks: str = "data.engine: ray") -> Any:
    """Import ray with its environment variables set. loopback: whether it listens on the loopback interface only.

    asks: the run setting that asks for Ray, for errors.

    Raises:
        MissingExtra: ray is not installed.
    """
    if find_spec("ray") is None:
        raise MissingExtra(f"`{asks}` needs Ray: {RAY}")
    for name, value in {**SILENT, **(ON_LOOPBACK if loopback else {})}.items():
        os.environ.setdefault(name, value)
    return import_module("ray")


def _join(ray: Any, address: str | None, key: str) -> None:
    """Join the cluster at an address, or start Ray on this machine. key: the run setting that names the address."""
    # Set as by Ray's remote clients, so that Ray does not add the working folder to the actors' module search path.
    places = ray.job_config.JobConfig(_client_job=True, _py_driver_sys_path=places_of_modules(own=True))
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "job_config": places}
    try:
        if address is None:
            ray.init(address="local", include_dashboard=False, **options)
        else:
            _knock(address)
            ray.init(address=address, **options)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        what = "start on this machine" if address is None else f"be joined at '{address}'"
        raise RecSmithError(
            f"Ray cannot {what} ({error}); {key} is the address of a cluster's head node, such as "
            "host0:6379, and without one a Ray of this machine is started"
        ) from None
    if address is None and ray.util.get_node_ip_address() != LOOPBACK:
        ray.shutdown()
        raise RecSmithError(
            "Ray was imported before RecSmith started one, and so it would listen beyond this machine; let RecSmith "
            f"start it first, or start Ray yourself and give its address as {key}"
        )


def _knock(address: str) -> None:
    """Raise OSError quickly if no server listens at 'host:port'; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK_S).close()


class FeedActor:
    """The class of the Ray actor. folder: the trainer's working folder, from which relative paths of data start."""

    def __init__(self, settings: str, folder: str, version: str) -> None:
        self.worker, self.version = worker_of(settings), version
        if Path(folder).is_dir():
            os.chdir(folder)

    def place(self) -> str:
        """The actor's host name and process id."""
        return f"{socket.gethostname()}:{os.getpid()}"

    def answers(self, window: int) -> Iterator[Arrays]:
        """The worker's answers to a window, one object in the store each; an error if RecSmith's versions differ."""
        if self.version != __version__:
            text = (
                f"the Ray node {socket.gethostname()} has RecSmith {__version__}, the trainer {self.version}, and they "
                "may order samples differently; install the same on both"
            )
            yield {ERROR: encode_text(text)}
            return
        yield from self.worker.answers(window)


class RayEngine:
    """Runs workers as Ray actors, at most one per core of the cluster.

    address: address of a Ray cluster ('host:port'); None: that of RAY_ADDRESS, or a new Ray on this machine, which
    listens on the loopback interface only and ends with the feed.

    Raises:
        MissingExtra: ray is not installed.
        RecSmithError: no cluster answers at the address.
    """

    name = "ray"

    def __init__(self, settings: FeedSettings, address: str | None = None) -> None:
        self._connection = Connection(address)
        self._ray: Any = self._connection.ray
        self.most = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._settings = dump_json(encode(settings))
        self._actors: Any = self._ray.remote(FeedActor).options(max_restarts=0, scheduling_strategy="SPREAD")

    def start(self) -> "RayWorker":
        """Start an actor on one of the cluster's nodes."""
        return RayWorker(self._ray, self._actors.remote(self._settings, str(Path.cwd()), __version__))

    def close(self) -> None:
        """Leave the cluster after the last use in this process; a Ray that was started here then ends."""
        self._connection.close()


class RayWorker:
    """A worker that runs in a Ray actor."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self.place = ""
        self._ray, self._actor = ray, actor

    def answers(self, window: int) -> Iterator[Arrays]:
        """Request a window, and copy the answers from the object store until it is complete or the actor has ended."""
        problems = self._ray.exceptions
        try:
            self.place = self.place or self._ray.get(self._actor.place.remote())
            asked = self._actor.answers.options(num_returns="streaming", _generator_backpressure_num_objects=AHEAD)
            for answer in asked.remote(window):
                yield {name: np.array(value) for name, value in self._ray.get(answer).items()}
        except problems.RayTaskError as error:
            raise RecSmithError(f"a worker of the feed failed on a Ray node: {error}") from None
        except problems.RayActorError as error:
            if getattr(error, "actor_init_failed", False):
                raise RecSmithError(f"Ray could not start a worker of the feed: {error}") from None
        except problems.RayError:
            return  # the actor's objects are lost with its node

    def end(self) -> None:
        """End the actor, even if it has not started yet."""
        if self._ray.is_initialized():
            self._ray.kill(self._actor, no_restart=True)
