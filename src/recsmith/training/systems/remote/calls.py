"""Calls of trainers to the servers that hold tables: named functions that take tensors and return tensors.

    answer = calls.call(0, "pull", {"ids": ids}, timeout=30.0)

A backend carries a call to a server and the answer back (on_sockets.py, on_rpc.py, on_ray.py). Everything else is here
and the same for each backend: which functions exist, who may call them, and which error a failure becomes. Nothing is
pickled: only tensors are sent, and words, which are JSON in a tensor of bytes.
"""

import hmac
import json
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch

from recsmith._components import load
from recsmith._types import noun
from recsmith._version import __version__
from recsmith.errors import RecSmithError

SCHEMA = "recsmith/remote/3"  # of all messages: raised when functions take or return something else
HELLO = "hello"  # the function that a peer must call first
WORDS, PROBLEM = "words", "problem"  # names of tensors that hold JSON: further arguments, and why there is no answer
TIMEOUT_S = 30.0
BACKENDS = {
    "sockets": "recsmith.training.systems.remote.on_sockets:SocketCalls",
    "rpc": "recsmith.training.systems.remote.on_rpc:RpcCalls",
    "ray": "recsmith.training.systems.remote.on_ray:RayCalls",
}
AGAIN = "the same command goes on from the newest checkpoint"
LONG = 20  # times the timeout: the limit for slow work, such as making all tables

Tensors = dict[str, torch.Tensor]
Function = Callable[[str, Tensors], Tensors]  # (name of the caller, its tensors) -> the answer
Pending = Callable[[], Tensors]  # waits for an answer


@noun
class ServerPlace:
    """Where the servers of a job are.

    backend: sockets, rpc or ray. address: a folder of Unix sockets, or the host:port of server 0, of the store where
    servers and trainers of rpc meet, or of a Ray cluster. job: a name that no other job at the address has. key: a
    secret of this job; without it no call is answered. servers: number of servers. timeout_s: seconds that a call may
    take, and that a trainer may be silent.
    """

    backend: str
    address: str
    job: str
    key: str
    servers: int
    timeout_s: float = TIMEOUT_S

    @property
    def long_s(self) -> float:
        """Seconds after which nobody waits any longer for slow work."""
        return LONG * self.timeout_s


class Regroup(RecSmithError):
    """The trainers of the job have changed, and those that live gather again."""


class LeftOut(RecSmithError):
    """This trainer was silent for too long, and the others go on without it."""


class Departed(RecSmithError):
    """This trainer was asked to end, and leaves the others, who go on."""


KINDS = {kind.__name__: kind for kind in (Regroup, LeftOut)}  # errors that a caller can distinguish


class ServerCalls(ABC):
    """The connection through which a trainer calls servers. name: this trainer's own, which no other trainer has."""

    def __init__(self, place: ServerPlace, name: str) -> None:
        self.place, self.name = place, name

    @abstractmethod
    def begin(self, server: int, function: str, tensors: Tensors, timeout: float) -> Pending:
        """Call a function of a server without waiting; the returned function waits for the answer.

        Args:
            server: number of the server.
            function: name of the function.
            tensors: its arguments (`worded` adds JSON data).
            timeout: seconds from now after which waiting ends.

        Raises (when the answer is waited for):
            RecSmithError: the server refused the call, failed, has ended, or did not answer in time.
        """
        ...

    @abstractmethod
    def close(self) -> None:
        """Close the connections; calls that are under way are lost."""
        ...

    def call(self, server: int, function: str, tensors: Tensors, timeout: float) -> Tensors:
        """Call a function of a server, and wait for its answer; arguments and errors are those of `begin`."""
        return self.begin(server, function, tensors, timeout)()

    def greet(self) -> None:
        """Introduce this trainer to every server, which answers no other call before that.

        Raises:
            RecSmithError: a server has another version or schema, or does not answer.
        """
        mine = worded(version=__version__, schema=SCHEMA)
        for waiting in [self.begin(each, HELLO, mine, self.place.timeout_s) for each in range(self.place.servers)]:
            waiting()


def connected(place: ServerPlace, name: str) -> ServerCalls:
    """A trainer's connection to the servers of a place; its backend is imported here. name: of the trainer."""
    return load(BACKENDS[place.backend])(place, name)


class ServerFunctions:
    """The functions of a server that its peers may call, by name.

    server: its number. key: of the job; a call without it is refused. functions: each gets the caller's name and its
    tensors. deserted: whether no trainer has called for so long that none will.
    """

    def __init__(
        self, server: int, key: str, functions: Mapping[str, Function], deserted: Callable[[], bool] = lambda: False
    ) -> None:
        self.server, self._key, self.deserted = server, key, deserted
        self._functions, self._peers = dict(functions), set[str]()

    def answer(self, caller: str, key: str, function: str, tensors: Tensors) -> Tensors:
        """The answer to a call, or a message that says why there is none; never raises."""
        try:
            if not hmac.compare_digest(key.encode(), self._key.encode()):
                raise unknown(self.server, caller)
            return self._greeted(caller, tensors) if function == HELLO else self._called(caller, function, tensors)
        except RecSmithError as error:
            return {PROBLEM: to_tensor([type(error).__name__, str(error)])}
        except Exception as error:
            traceback.print_exc()
            last = f"{type(error).__name__}: {error}"
            return {PROBLEM: to_tensor(["", f"server {self.server} failed in '{function}': {last}"])}

    def _called(self, caller: str, function: str, tensors: Tensors) -> Tensors:
        if caller not in self._peers:
            raise RecSmithError(f"server {self.server} was not greeted by '{caller}'; greet it first")
        if function not in self._functions:
            raise RecSmithError(
                f"server {self.server} has no function '{function}'; it has {', '.join(sorted(self._functions))}"
            )
        return self._functions[function](caller, tensors)

    def _greeted(self, caller: str, tensors: Tensors) -> Tensors:
        said = words_of(tensors)
        for what, mine in {"version": __version__, "schema": SCHEMA}.items():
            if said.get(what) != mine:
                raise RecSmithError(
                    f"server {self.server} has {what} {mine}, and '{caller}' has {what} {said.get(what)}; install the "
                    "same version of RecSmith for servers and trainers"
                )
        self._peers.add(caller)
        return {}


def answered(tensors: Tensors) -> Tensors:
    """The answer as it was received; backends pass every answer through this function.

    Raises:
        RecSmithError: the message says why there is no answer; an error of KINDS if it names one.
    """
    if PROBLEM in tensors:
        kind, said = from_tensor(tensors[PROBLEM])
        raise KINDS.get(kind, RecSmithError)(said)
    return tensors


def unknown(server: int, caller: str) -> RecSmithError:
    """The error if a caller does not have the key of a server's job."""
    return RecSmithError(f"server {server} does not know '{caller}', which has not the key of its job")


def not_ready(place: ServerPlace) -> RecSmithError:
    """The error of backends if servers are not ready in time."""
    return RecSmithError(
        f"not all servers at {place.address} have made their tables within {place.long_s:g} s, 20 times "
        "remote.timeout_s; give it more"
    )


def too_late(server: int, function: str, timeout: float) -> RecSmithError:
    """The error of backends if a server did not answer in time."""
    return RecSmithError(f"server {server} did not answer '{function}' within {timeout:g} s; {AGAIN}")


def unwritten(servers: list[int], place: ServerPlace) -> RecSmithError:
    """The error if servers take too long to write a checkpoint."""
    names = f"server{'s' if len(servers) > 1 else ''} {', '.join(map(str, servers))}"
    return RecSmithError(
        f"{names} wrote a checkpoint for more than {place.long_s:g} s, {LONG} times remote.timeout_s; give it more, or "
        f"a faster disk; {AGAIN}"
    )


def forsaken(place: ServerPlace) -> RecSmithError:
    """The error of server 0 if it hears no trainer any more."""
    return RecSmithError(
        f"no trainer of this job was heard for more than {place.long_s:g} s, {LONG} times remote.timeout_s: all of "
        f"them are stopped, or cannot reach server 0; {AGAIN}"
    )


def gone(server: int, function: str, reason: str) -> RecSmithError:
    """The error of backends if a server cannot be reached."""
    return RecSmithError(
        f"server {server} cannot be reached for '{function}' ({reason.splitlines()[0][:200]}); {AGAIN}"
    )


def ended_there(place: ServerPlace, reason: str) -> RecSmithError:
    """The error of backends if nobody listens at the place of a job's servers."""
    return RecSmithError(
        f"the job whose servers were at {place.address} has ended, or this machine does not reach it ({reason}); "
        f"{AGAIN}, and --join takes part in it once it runs"
    )


def lost(server: int, how: str) -> RecSmithError:
    """The error of the process that started the servers if one of them has ended."""
    return RecSmithError(f"server {server} has ended ({how}), and the rows that it held with it; {AGAIN}")


def spoken(function: Callable[..., Any]) -> Function:
    """A function of tensors from one of (caller's name, **words) that returns JSON data."""
    return lambda caller, tensors: worded(answer=function(caller, **words_of(tensors)))


def worded(tensors: Tensors | None = None, **words: Any) -> Tensors:
    """The tensors, with words (JSON data) as one more tensor."""
    return {**(tensors or {}), WORDS: to_tensor(words)}


def words_of(tensors: Tensors) -> dict[str, Any]:
    """The words among tensors; an empty dictionary if there are none."""
    return from_tensor(tensors[WORDS]) if WORDS in tensors else {}


def to_tensor(value: Any) -> torch.Tensor:
    """JSON data as a tensor of bytes."""
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def from_tensor(tensor: torch.Tensor) -> Any:
    """The JSON data in a tensor of bytes."""
    return json.loads(tensor.numpy().tobytes())
