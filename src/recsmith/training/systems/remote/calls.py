"""Calls of trainers to the servers that hold tables: named functions that take tensors and give tensors.

    answer = calls.call(0, "pull", {"ids": ids}, timeout=30.0)

A backend brings a call to a server and an answer back (on_sockets.py, on_rpc.py, on_ray.py). All else is here and the
same for each: which functions there are, who may call them, and what a failure becomes. Nothing is pickled: tensors
cross, and plain words, which are JSON in a tensor of bytes.
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

SCHEMA = "recsmith/remote/3"  # of all that crosses: a change of what functions take and give is a new number
HELLO = "hello"  # the first function that a peer calls
WORDS, PROBLEM = "words", "problem"  # names of tensors that hold JSON: what is said besides, and why there is no answer
TIMEOUT_S = 30.0
BACKENDS = {
    "sockets": "recsmith.training.systems.remote.on_sockets:SocketCalls",
    "rpc": "recsmith.training.systems.remote.on_rpc:RpcCalls",
    "ray": "recsmith.training.systems.remote.on_ray:RayCalls",
}
AGAIN = "the same command goes on from the newest checkpoint"
LONG = 20  # times the timeout: for what takes long, such as making all tables

Tensors = dict[str, torch.Tensor]
Function = Callable[[str, Tensors], Tensors]  # (who calls, what it gives) -> the answer
Pending = Callable[[], Tensors]  # waits for an answer


@noun
class ServerPlace:
    """Where the servers of a job are.

    backend: sockets, rpc or ray. address: a folder of Unix sockets or the host:port of server 0, of the store where
    servers and trainers of rpc meet, or of a Ray cluster. job: a name that no other job at the address has. key: a
    secret of this job; without it no call is answered. servers: how many there are. timeout_s: of a call, and of a
    trainer's silence.
    """

    backend: str
    address: str
    job: str
    key: str
    servers: int
    timeout_s: float = TIMEOUT_S

    @property
    def long_s(self) -> float:
        """Seconds after which nobody waits any more for what takes long."""
        return LONG * self.timeout_s


class Regroup(RecSmithError):
    """The trainers have changed, and those that live gather again."""


class LeftOut(RecSmithError):
    """This trainer was silent for too long, and the others go on without it."""


class Departed(RecSmithError):
    """This trainer was asked to end, and leaves the others, who go on."""


KINDS = {kind.__name__: kind for kind in (Regroup, LeftOut)}  # of errors that a peer tells apart


class ServerCalls(ABC):
    """What a trainer calls servers by. name: of this trainer, unlike any other's."""

    def __init__(self, place: ServerPlace, name: str) -> None:
        self.place, self.name = place, name

    @abstractmethod
    def begin(self, server: int, function: str, tensors: Tensors, timeout: float) -> Pending:
        """Call a function of a server without waiting; what is returned waits for the answer.

        timeout: seconds from now, after which waiting ends.

        Raises (when it is waited for):
            RecSmithError: the server refused the call, failed, has ended, or did not answer in time.
        """
        ...

    @abstractmethod
    def close(self) -> None:
        """Leave; calls that are under way are lost."""
        ...

    def call(self, server: int, function: str, tensors: Tensors, timeout: float) -> Tensors:
        """Call a function of a server, and wait; as `begin`."""
        return self.begin(server, function, tensors, timeout)()

    def greet(self) -> None:
        """Tell every server who this is; before this a server answers nothing else.

        Raises:
            RecSmithError: a server has another version or schema, or does not answer.
        """
        mine = worded(version=__version__, schema=SCHEMA)
        for waiting in [self.begin(each, HELLO, mine, self.place.timeout_s) for each in range(self.place.servers)]:
            waiting()


def connected(place: ServerPlace, name: str) -> ServerCalls:
    """Calls of a trainer of this name to the servers of a place; its backend is imported here."""
    return load(BACKENDS[place.backend])(place, name)


class ServerFunctions:
    """What a server lets its peers call, by name.

    server: its number. key: of the job; a call without it is refused. functions: each gets who calls and the tensors.
    deserted: whether nobody has called for so long that nobody will.
    """

    def __init__(
        self, server: int, key: str, functions: Mapping[str, Function], deserted: Callable[[], bool] = lambda: False
    ) -> None:
        self.server, self._key, self.deserted = server, key, deserted
        self._functions, self._peers = dict(functions), set[str]()

    def answer(self, caller: str, key: str, function: str, tensors: Tensors) -> Tensors:
        """The answer to a call, or why there is none; never an exception."""
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
    """An answer as it came; backends give every one to this.

    Raises:
        RecSmithError: it says why there is none; of KINDS where it is one of these.
    """
    if PROBLEM in tensors:
        kind, said = from_tensor(tensors[PROBLEM])
        raise KINDS.get(kind, RecSmithError)(said)
    return tensors


def unknown(server: int, caller: str) -> RecSmithError:
    """What is raised of a caller without the key of a server's job."""
    return RecSmithError(f"server {server} does not know '{caller}', which has not the key of its job")


def not_ready(place: ServerPlace) -> RecSmithError:
    """What backends raise where servers are not ready in time."""
    return RecSmithError(
        f"not all servers at {place.address} have made their tables within {place.long_s:g} s, 20 times "
        "remote.timeout_s; give it more"
    )


def too_late(server: int, function: str, timeout: float) -> RecSmithError:
    """What backends raise of a server that did not answer in time."""
    return RecSmithError(f"server {server} did not answer '{function}' within {timeout:g} s; {AGAIN}")


def unwritten(servers: list[int], place: ServerPlace) -> RecSmithError:
    """What is raised of servers that write a checkpoint for too long."""
    names = f"server{'s' if len(servers) > 1 else ''} {', '.join(map(str, servers))}"
    return RecSmithError(
        f"{names} wrote a checkpoint for more than {place.long_s:g} s, {LONG} times remote.timeout_s; give it more, or "
        f"a faster disk; {AGAIN}"
    )


def forsaken(place: ServerPlace) -> RecSmithError:
    """What server 0 raises where it hears of no trainer any more."""
    return RecSmithError(
        f"no trainer of this job was heard for more than {place.long_s:g} s, {LONG} times remote.timeout_s: all of "
        f"them are stopped, or cannot reach server 0; {AGAIN}"
    )


def gone(server: int, function: str, reason: str) -> RecSmithError:
    """What backends raise of a server that cannot be reached."""
    return RecSmithError(
        f"server {server} cannot be reached for '{function}' ({reason.splitlines()[0][:200]}); {AGAIN}"
    )


def ended_there(place: ServerPlace, reason: str) -> RecSmithError:
    """What backends raise where nobody listens at the place of a job's servers."""
    return RecSmithError(
        f"the job whose servers were at {place.address} has ended, or this machine does not reach it ({reason}); "
        f"{AGAIN}, and --join takes part in it once it runs"
    )


def lost(server: int, how: str) -> RecSmithError:
    """What whoever has started the servers raises of one that has ended."""
    return RecSmithError(f"server {server} has ended ({how}), and the rows that it held with it; {AGAIN}")


def spoken(function: Callable[..., Any]) -> Function:
    """A function of (who calls, **words) that returns JSON data, as one of tensors."""
    return lambda caller, tensors: worded(answer=function(caller, **words_of(tensors)))


def worded(tensors: Tensors | None = None, **words: Any) -> Tensors:
    """The tensors with words (JSON data) beside them."""
    return {**(tensors or {}), WORDS: to_tensor(words)}


def words_of(tensors: Tensors) -> dict[str, Any]:
    """The words beside tensors; none where there are none."""
    return from_tensor(tensors[WORDS]) if WORDS in tensors else {}


def to_tensor(value: Any) -> torch.Tensor:
    """JSON data as a tensor of bytes."""
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def from_tensor(tensor: torch.Tensor) -> Any:
    """JSON data of such a tensor."""
    return json.loads(tensor.numpy().tobytes())
