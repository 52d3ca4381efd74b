"""Calls to a server, a process of its own, over rpc and Ray: what crosses, what is refused, how long is waited."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from recsmith.errors import RecSmithError, UsageError
from recsmith.feeding.on_ray import Connection
from recsmith.jobs.machine import free_port
from recsmith.training.remote import calls
from recsmith.training.remote.calls import HELLO, ServerFunctions, ServerPlace, worded, words_of

torch = pytest.importorskip("torch")
on_rpc = pytest.importorskip("recsmith.training.remote.on_rpc")

SOURCES = Path(calls.__file__).parents[2]


ray = pytest.param("ray", marks=[
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray"), pytest.mark.filterwarnings("ignore"),
])  # fmt: skip
MAKER = "training.remote.echo_server:functions"


@contextmanager
def rpc_trainer() -> Iterator[tuple[ServerPlace, Any]]:
    """A server that is a process, and the calls of a trainer."""
    place = place_of("rpc", f"127.0.0.1:{free_port()}")
    script = Path(__file__).with_name("echo_server.py")
    environment = {**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, str(script), json.dumps(asdict(place))], env=environment)
    trainer = on_rpc.RpcCalls(place, "first")
    yield place, trainer
    trainer.close()
    process.kill()
    process.wait()


@contextmanager
def ray_trainer() -> Iterator[tuple[ServerPlace, Any]]:
    """A server that is an actor of a Ray of this machine, and the calls of a trainer."""
    from recsmith.training.remote.on_ray import RayCalls, RayServers

    connection = Connection(None)
    place = place_of("ray", connection.ray.get_runtime_context().gcs_address)
    with pytest.raises(RecSmithError, match=r"no 1 servers of job 'test'; start them first"):
        RayCalls(place, "first")
    with pytest.raises(RecSmithError, match=r"^server 0 is not to be made$"):
        RayServers(place, MAKER, {"wrong": True})
    servers = RayServers(place, MAKER, {})
    trainer = RayCalls(place, "first")
    yield place, trainer
    trainer.close()
    servers.close()
    connection.close()


def place_of(backend: str, address: str) -> ServerPlace:
    return ServerPlace(backend=backend, address=address, job="test", key=secrets.token_hex(16), servers=1)


@pytest.mark.parametrize("backend", ["rpc", ray])
def test_calls_of_one_server(backend: str) -> None:
    """One thing after the other: greeting, echo, refusals, a server that is stopped, and one that is killed."""
    with {"rpc": rpc_trainer, "ray": ray_trainer}[backend]() as (place, trainer):
        calls_of_one_server(place, trainer)


def calls_of_one_server(place: ServerPlace, trainer: Any) -> None:
    with pytest.raises(RecSmithError, match="server 0 was not greeted by 'first'; greet it first"):
        trainer.call(0, "echo", {}, 5)
    trainer.greet()
    given = {"rows": torch.tensor([[1.5, float("nan")]]), "ids": torch.arange(3)[::2], "none": torch.zeros(0, 4)}
    answer = trainer.call(0, "echo", worded(given, step=3, text="ä"), 5)
    assert words_of(answer) == {"step": 3, "text": "ä"}
    assert all(torch.equal(answer[name].nan_to_num(7), each.nan_to_num(7)) for name, each in given.items())
    with pytest.raises(RecSmithError, match=r"server 0 has no function 'system'; it has echo, fail, pid"):
        trainer.call(0, "system", {}, 5)
    with pytest.raises(RecSmithError, match=r"server 0 failed in 'fail': KeyError: 'row 7'"):
        trainer.call(0, "fail", {}, 5)
    stranger, trainer.place = trainer.place, replace(place, key="another")
    with pytest.raises(RecSmithError, match="server 0 does not know 'first', which has not the key of its job"):
        trainer.call(0, "echo", {}, 5)
    trainer.place = stranger

    server = words_of(trainer.call(0, "pid", {}, 5))["pid"]
    os.kill(server, signal.SIGSTOP)
    begun = time.monotonic()
    with pytest.raises(RecSmithError, match=r"server 0 did not answer 'echo' within 0\.5 s"):
        trainer.call(0, "echo", {"rows": torch.zeros(2**20)}, 0.5)
    assert 0.5 <= time.monotonic() - begun < 5  # within its timeout; the rest is a busy machine's
    os.kill(server, signal.SIGCONT)
    assert trainer.call(0, "echo", {}, 20) == {}
    os.kill(server, signal.SIGKILL)
    with pytest.raises(RecSmithError, match=r"server 0 (cannot be reached for|did not answer) 'echo'"):
        trainer.call(0, "echo", {}, 5)


def test_other_versions_and_schemas_are_refused() -> None:
    functions = ServerFunctions(2, "k", {})
    for said in ({"version": "0.0", "schema": calls.SCHEMA}, {"version": calls.__version__, "schema": "old/1"}, {}):
        answer = functions.answer("late", "k", HELLO, {calls.WORDS: calls.to_tensor(said)})
        with pytest.raises(RecSmithError, match=r"server 2 has .* install the same version"):
            calls.answered(answer)
    assert functions.answer("late", "k", HELLO, worded(version=calls.__version__, schema=calls.SCHEMA)) == {}


def test_a_message_names_no_function_of_its_own() -> None:
    """What arrives is JSON: a pickle, which PyTorch would run, is none."""
    import pickle

    plain = on_rpc.PlainMessages()
    with pytest.raises(ValueError, match=r".*"):
        plain.deserialize(pickle.dumps(os.getpid), [])
    made = plain.deserialize(b'{"call": ["a", "k", "os.system"], "names": []}', [])
    assert made.func is on_rpc.answer_call
    assert made.args == ("a", "k", "os.system", {})


def test_an_address_in_use() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UsageError, match=f"servers cannot listen at {address} .* another port"):
            on_rpc.server_store(address)


def test_one_file_alone_imports_rpc() -> None:
    said = re.compile(
        r"^\s*(from torch\.distributed import .*\brpc\b|(from|import) torch\.distributed\.rpc)", re.MULTILINE
    )
    assert [file.name for file in SOURCES.rglob("*.py") if said.search(file.read_text())] == ["on_rpc.py"]
