"""The backend of Ray: a server is an actor on any machine of a cluster, and tensors pass through Ray's object store.

Arrays of 100 kB and more are in shared memory of the machine, or copied between stores; smaller ones are in the call.
Ray pickles calls, as for every program, so a cluster must be trusted like the trainers' machine (decision 21).
An actor is never restarted: its tables would have lost what they learned, which is in a checkpoint.
"""

import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recsmith._components import load
from recsmith.errors import RecSmithError
from recsmith.feeding.on_ray import Connection
from recsmith.files import Raw, decode, encode
from recsmith.training.systems.remote.calls import (
    Pending,
    ServerCalls,
    ServerPlace,
    Tensors,
    answered,
    gone,
    lost,
    too_late,
)

THREADS = 16  # of a server: this many calls wait or run at once
NAMESPACE = "recsmith"  # Ray namespace of the actors' names
Arrays = dict[str, Any]


class ServerActor:
    """A Ray actor that runs the functions of one server.

    maker: 'package.module:function' of (place, server, settings) that makes the functions. folder: the working folder
    of the process that started the actor, from which relative paths are resolved.
    """

    def __init__(self, maker: str, place: Raw, server: int, settings: Raw, folder: str) -> None:
        self._problem = ""
        if Path(folder).is_dir():
            os.chdir(folder)
        try:
            self._functions = load(maker)(decode(ServerPlace, place, "the place"), server, settings)
        except RecSmithError as error:
            self._problem = str(error)

    def problem(self) -> str:
        """Why the server cannot answer; '' if it can."""
        return self._problem

    def rest(self) -> None:
        """Never return, so that the caller notices when the actor has ended."""
        threading.Event().wait()

    def answer(self, caller: str, key: str, function: str, arrays: Arrays) -> Arrays:
        """The answer to a call, or a message that says why there is none."""
        return to_arrays(self._functions.answer(caller, key, function, to_tensors(arrays)))


class RayServers:
    """The servers of a job on Ray, ready once this is made; `close` or the end of this process ends them.

    place: of the servers. maker: 'package.module:function' that makes the functions of each. settings: the maker's, as
    JSON data.

    Raises:
        MissingExtra: ray is not installed.
        RecSmithError: no cluster answers at the address, or a server cannot be made.
    """

    def __init__(self, place: ServerPlace, maker: str, settings: Raw) -> None:
        self._connection = joined(place.address)
        self._ray: Any = self._connection.ray
        actors, named = self._ray.remote(ServerActor), {"namespace": NAMESPACE, "scheduling_strategy": "SPREAD"}
        self._actors = [
            actors.options(name=server_name(place, each), max_concurrency=1 + THREADS, **named).remote(
                maker, encode(place), each, settings, str(Path.cwd())
            )
            for each in range(place.servers)
        ]
        try:
            self._wait(place.long_s)
            self._rests = [actor.rest.remote() for actor in self._actors]
        except BaseException:
            self.close()
            raise

    def _wait(self, longest: float) -> None:
        """Wait until all servers can answer."""
        problems = self._ray.exceptions
        try:
            said = self._ray.get([actor.problem.remote() for actor in self._actors], timeout=longest)
        except problems.GetTimeoutError:
            cores = self._ray.cluster_resources().get("CPU", 0)
            raise RecSmithError(
                f"not all {len(self._actors)} servers on Ray are ready after {longest:g} s; its cluster has "
                f"{cores:g} cores, and each server needs one to start"
            ) from None
        except problems.RayError as error:
            raise RecSmithError(f"Ray could not start a server ({_said(error)})") from None
        if any(said):
            raise RecSmithError(next(filter(None, said)))

    def failure(self) -> RecSmithError | None:
        """The error of a server that has ended; None while all of them live."""
        found, _ = self._ray.wait(self._rests, timeout=0)
        try:
            self._ray.get(found)
        except self._ray.exceptions.RayError as error:
            return lost(self._rests.index(found[0]), _said(error))
        return None

    def close(self) -> None:
        """End the servers; may be called more than once."""
        if self._ray.is_initialized():
            for actor in self._actors:
                self._ray.kill(actor, no_restart=True)
        self._actors = []
        self._connection.close()


class RayCalls(ServerCalls):
    """A trainer's connection to all servers, which must be running.

    Raises:
        MissingExtra: ray is not installed.
        RecSmithError: no cluster answers at the address, or it has no such servers.
    """

    def __init__(self, place: ServerPlace, name: str) -> None:
        super().__init__(place, name)
        self._connection = joined(place.address)
        self._ray: Any = self._connection.ray
        try:
            self._actors = [self._ray.get_actor(server_name(place, each), NAMESPACE) for each in range(place.servers)]
        except ValueError:  # Ray has no actor of this name
            self._connection.close()
            raise RecSmithError(
                f"the Ray cluster at {place.address} has no {place.servers} servers of job '{place.job}'; start them "
                "first"
            ) from None

    def begin(self, server: int, function: str, tensors: Tensors, timeout: float) -> Pending:
        """Call the `answer` method of a server's actor."""
        problems, ends = self._ray.exceptions, time.monotonic() + timeout

        def wait() -> Tensors:
            try:
                return answered(to_tensors(self._ray.get(asked, timeout=max(0.0, ends - time.monotonic()))))
            except problems.GetTimeoutError:
                raise too_late(server, function, timeout) from None
            except problems.RayError as error:
                raise gone(server, function, _said(error)) from None

        try:
            asked = self._actors[server].answer.remote(self.name, self.place.key, function, to_arrays(tensors))
        except problems.RayError as error:
            raise gone(server, function, _said(error)) from None
        return wait

    def close(self) -> None:
        """Leave the cluster."""
        self._connection.close()


@contextmanager
def cluster(address: str | None) -> Generator[tuple[str, str]]:
    """Yield a cluster's address, and 'host:0' of this machine as the cluster knows it.

    address: None means that of RAY_ADDRESS, or a Ray on this machine.

    Raises:
        MissingExtra: ray is not installed.
        RecSmithError: no cluster answers at the address.
    """
    connection = joined(address)
    try:
        ray = connection.ray
        yield ray.get_runtime_context().gcs_address, f"{ray.util.get_node_ip_address()}:0"
    finally:
        connection.close()


def joined(address: str | None) -> Connection:
    """Connect this process to the cluster of a job."""
    return Connection(address, asks="remote.backend: ray", key="remote.address")


def server_name(place: ServerPlace, server: int) -> str:
    """The name of a server's actor in the cluster."""
    return f"{place.job}-server-{server}"


def to_arrays(tensors: Tensors) -> Arrays:
    """Tensors as NumPy arrays, which Ray copies once."""
    return {name: each.detach().contiguous().numpy() for name, each in tensors.items()}


def to_tensors(arrays: Arrays) -> Tensors:
    """Copies of arrays as tensors: arrays from Ray's store must not be written to."""
    return {name: torch.from_numpy(np.array(each)) for name, each in arrays.items()}


def _said(error: Exception) -> str:
    """A short form of Ray's message, which may fill a page: the first sentence of its last line."""
    return str(error).strip().splitlines()[-1].strip().partition(". ")[0]
