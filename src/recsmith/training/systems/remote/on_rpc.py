"""The backend of torch.distributed.rpc (Damania et al., MLSys 2023), over TensorPipe; used only if a run names it.

TensorPipe is in maintenance, and requires no password: any process that reaches it may call PyTorch's own operators.
Nothing else in RecSmith imports torch.distributed.rpc. PyTorch pickles messages, and would run any function that they
name; here a message is JSON and tensors, and can name only `answer_call`. Processes join and leave one by one: in
PyTorch's own procedure each newcomer calls every other process, which fails if one of them has died.
"""

import json
import os
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_autograd import _init
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed import rpc
from torch.distributed.rpc import api, internal

from recsmith.errors import RecSmithError
from recsmith.jobs.machine import LOOPBACK, loopback_interface
from recsmith.training.systems.remote.calls import (
    TIMEOUT_S,
    Pending,
    ServerCalls,
    ServerFunctions,
    ServerPlace,
    Tensors,
    answered,
    ended_there,
    gone,
    not_ready,
    too_late,
)

THREADS = 16  # of a server: this many calls wait or run at once
PICKLER = internal._internal_rpc_pickler  # PyTorch's own
LATE = "ran for more than set timeout"  # in PyTorch's message of a timeout


class PlainMessages:
    """Replaces PyTorch's pickler for messages: it turns them into JSON and a list of tensors, and back."""

    def serialize(self, obj: Any) -> tuple[bytes, list[torch.Tensor]]:
        """Encode a call of `answer_call`, its answer, or an error of PyTorch."""
        if isinstance(obj, internal.PythonUDF):
            caller, key, function, tensors = obj.args
            said = {"call": [caller, key, function], "names": list(tensors)}
        elif isinstance(obj, internal.RemoteException):
            tensors, said = {}, {"failed": obj.msg}
        else:
            tensors, said = obj, {"names": list(obj)}
        return json.dumps(said).encode(), [each.contiguous() for each in tensors.values()]

    def _register_reducer(self, *_: Any) -> None:
        """Do nothing: PyTorch registers how it would pickle its modules, and nothing is pickled here."""

    def deserialize(self, binary_data: bytes, tensor_table: list[torch.Tensor]) -> Any:
        """Decode a message; a call is always one of `answer_call`, whatever the message says."""
        said = json.loads(binary_data)
        if "failed" in said:
            return internal.RemoteException(said["failed"], RuntimeError)
        tensors = dict(zip(said["names"], tensor_table, strict=True))
        return internal.PythonUDF(answer_call, (*said["call"], tensors), {}) if "call" in said else tensors


_answers: Callable[[str, str, str, Tensors], Tensors] | None = None  # answers calls if this process is a server


def answer_call(caller: str, key: str, function: str, tensors: Tensors) -> Tensors:
    """The answer of this process's server to a call."""
    if _answers is None:
        raise RecSmithError("a trainer answers no calls")
    return _answers(caller, key, function, tensors)


class RpcServer:
    """A server, which answers calls as soon as it is made. The store of `hosted_meeting` must exist before it."""

    def __init__(self, place: ServerPlace, functions: ServerFunctions) -> None:
        global _answers
        _answers = functions.answer
        _join(place, functions.server)

    def close(self) -> None:
        """Stop answering calls."""
        _leave()


class RpcCalls(ServerCalls):
    """A trainer's connection to all servers; making it waits until they are ready.

    Raises:
        RecSmithError: nobody listens at the place.
    """

    def __init__(self, place: ServerPlace, name: str) -> None:
        super().__init__(place, name)
        _join(place, None)

    def begin(self, server: int, function: str, tensors: Tensors, timeout: float) -> Pending:
        """Call a server through rpc_async."""

        def wait() -> Tensors:
            try:
                return answered(future.wait())
            except RuntimeError as error:
                raise _failure(error, server, function, timeout) from None

        given = (self.name, self.place.key, function, tensors)
        try:
            future: Any = rpc.rpc_async(_server_name(server), answer_call, given, timeout=timeout)
        except RuntimeError as error:
            raise _failure(error, server, function, timeout) from None
        return wait

    def close(self) -> None:
        """Leave the RPC group."""
        _leave()


def _failure(error: RuntimeError, server: int, function: str, timeout: float) -> RecSmithError:
    late = LATE in str(error)
    return too_late(server, function, timeout) if late else gone(server, function, str(error))


def _server_name(server: int) -> str:
    return f"server{server}"  # PyTorch cuts names at a hyphen


def _join(place: ServerPlace, server: int | None) -> None:
    """Join the RPC group of the job. server: number of this server; None for a trainer."""
    host, _, port = place.address.rpartition(":")
    if host == LOOPBACK:
        os.environ.setdefault("TP_SOCKET_IFNAME", loopback_interface())
    try:
        store = TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=TIMEOUT_S))
    except RuntimeError as error:
        raise ended_there(place, str(error).splitlines()[0]) from None
    own = PrefixStore(f"{place.job}/rpc", store)
    # PyTorch reads a list of names, adds its own and writes it back: of two servers at once, one would be lost.
    before = [f"ready/{each}" for each in range(place.servers if server is None else server)]
    try:
        own.wait(before, timedelta(seconds=place.long_s))
    except RuntimeError:
        raise not_ready(place) from None
    number = place.servers + int(own.add("trainers", 1)) if server is None else server
    plain: Any = PlainMessages()
    api._default_pickler = internal._internal_rpc_pickler = plain  # until this process leaves
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns that RPC is in maintenance, as docs/remote.md does
        options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=THREADS, rpc_timeout=TIMEOUT_S)
        name = f"trainer{number}" if server is None else _server_name(server)
        _init(number)
        agent: Any = rpc.TensorPipeAgent(own, name, number, None, options, {}, [])
        api._init_rpc_states(agent)
    if server is not None:
        own.set(f"ready/{server}", name)


def _leave() -> None:
    rpc.shutdown(graceful=False)
    api._default_pickler = internal._internal_rpc_pickler = PICKLER
