"""Calls to a server, a process of its own, over each backend: what crosses, what is refused, how long is waited."""

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.listeners import watched_listeners

from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.feeding.on_ray import Connection
from recsmith.jobs.machine import free_port
from recsmith.training.systems.remote import calls
from recsmith.training.systems.remote.calls import HELLO, ServerFunctions, ServerPlace, worded, words_of

torch = pytest.importorskip("torch")
on_rpc = pytest.importorskip("recsmith.training.systems.remote.on_rpc")

from recsmith.training.systems.remote.frames import receive_frame, send_frame  # noqa: E402
from recsmith.training.systems.remote.group import hosted_meeting  # noqa: E402
from recsmith.training.systems.remote.on_sockets import GREETING, SocketCalls, SocketServer, listen  # noqa: E402

SOURCES = Path(calls.__file__).parents[3]


ray = pytest.param("ray", marks=[
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray"), pytest.mark.filterwarnings("ignore"),
])  # fmt: skip
MAKER = "training.systems.remote.echo_server:functions"


@contextmanager
def socket_trainer(address: str) -> Iterator[tuple[ServerPlace, Any]]:
    """A server that is a process, and the calls of a trainer. address: a folder, or host:port."""
    place = place_of("sockets", address)
    with pytest.raises(RecSmithError, match=r"the job whose servers were at .* has ended, or .*; the same command"):
        SocketCalls(place, "first")
    script = Path(__file__).with_name("echo_server.py")
    words = [sys.executable, str(script), json.dumps(asdict(place))]
    with subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"listens\n"
        trainer = SocketCalls(place, "first")
        yield place, trainer
        trainer.close()
        process.kill()


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
    from recsmith.training.systems.remote.on_ray import RayCalls, RayServers

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


@pytest.mark.parametrize("backend", ["unix", "tcp", "rpc", ray])
def test_calls_of_one_server(backend: str, tmp_path: Path) -> None:
    """One thing after the other: greeting, echo, refusals, a server that is stopped, and one that is killed."""
    deep = tmp_path / ("a folder of a long name" * 9)  # longer than the path of a Unix socket may be
    deep.mkdir()
    trainers = {
        "unix": partial(socket_trainer, str(deep)), "tcp": partial(socket_trainer, f"127.0.0.1:{free_port()}"),
        "rpc": rpc_trainer, "ray": ray_trainer,
    }  # fmt: skip
    with trainers[backend]() as (place, trainer), watched_listeners():
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
    wrong = partial(SocketCalls, trainer.place, "first")
    with pytest.raises(RecSmithError, match="server 0 does not know 'first', which has not the key of its job"):
        wrong() if place.backend == "sockets" else trainer.call(0, "echo", {}, 5)
    trainer.place = stranger

    server = words_of(trainer.call(0, "pid", {}, 5))["pid"]
    os.kill(server, signal.SIGSTOP)
    begun = time.monotonic()
    with pytest.raises(RecSmithError, match=r"server 0 did not answer 'echo' within 0\.5 s"):
        trainer.call(0, "echo", {"rows": torch.zeros(2**20)}, 0.5)
    assert 0.49 <= time.monotonic() - begun < 5  # its timeout, less a tick; the rest is a busy machine
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
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UsageError, match=f"servers cannot listen at {address} .* another port"):
            hosted_meeting(address)
        with pytest.raises(UsageError, match=f"servers cannot listen at {address} .* another port"):
            listen(address, 0)


def test_a_stranger_learns_nothing_and_nothing_is_read_of_it(tmp_path: Path) -> None:
    """Before it has shown the key: wrong proofs, another protocol, and silence are all the same; others are served."""
    place, asked = place_of("sockets", str(tmp_path)), list[str]()
    functions = ServerFunctions(0, place.key, {"echo": lambda who, tensors: asked.append(who) or tensors})
    server = SocketServer(place, functions, listen(place.address, 0))
    for said in (b"GET / HTTP/1.1\r\n" + b"x" * 99, GREETING + bytes(32) + bytes(32), GREETING + b"short"):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.settimeout(10)
            stranger.connect(f"{tmp_path}/server-0.socket")
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
            came = b""
            with suppress(ConnectionResetError):  # closed with what was not read
                while part := stranger.recv(4096):
                    came += part
            greets = said.startswith(GREETING) and len(said) >= len(GREETING) + 32
            assert len(came) == (64 if greets else 0)  # a nonce and a proof
    trainer = SocketCalls(place, "first")
    trainer.greet()
    assert set(trainer.call(0, "echo", {"ids": torch.arange(3)}, 5)) == {"ids"}
    assert asked == ["first"]
    trainer.close()
    server.close()


def test_whoever_stands_in_for_a_server_gets_no_call(tmp_path: Path) -> None:
    """A trainer sends nothing but its greeting until the other side has shown that it has the key."""
    place = place_of("sockets", str(tmp_path))
    got = list[bytes]()

    def stand_in() -> None:
        with listen(place.address, 0) as heard:
            ready.set()
            peer, _ = heard.accept()
            with peer:
                got.append(peer.recv(4096))
                peer.sendall(bytes(64))
                got.append(peer.recv(4096))

    ready, thread = threading.Event(), threading.Thread(target=stand_in)
    thread.start()
    ready.wait()
    with pytest.raises(RecSmithError, match="server 0 does not know 'first', which has not the key of its job"):
        SocketCalls(place, "first")
    thread.join()
    assert len(got[0]) == len(GREETING) + 32
    assert got[1] == b""


def test_frames() -> None:
    """All types, empty tensors and single numbers cross as they are; what is no frame is refused in words."""
    until = time.monotonic() + 60
    given = {
        str(dtype): torch.arange(6).reshape(2, 3).to(dtype)
        for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool)
    }
    given |= {"none": torch.zeros(0, 4), "one": torch.tensor(2.5), "nan": torch.tensor([float("nan")])}
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = threading.Thread(target=send_frame, args=(ours, ["ä", 3], given, until))
        sender.start()
        words, came = receive_frame(theirs, until)
        sender.join()
    assert words == ["ä", 3]
    assert list(came) == list(given)
    for name, each in given.items():
        assert came[name].dtype == each.dtype
        assert came[name].shape == each.shape
        assert torch.equal(*(one.reshape(-1).view(torch.uint8) for one in (came[name], each)))


@pytest.mark.parametrize(
    "text",
    ["[1]", "{", '[null, [["a", "float32", [-1]]]]', '[null, [["a", "float32", [1e3]]]]',
     '[null, [["a", "object", [1]]]]', '[null, [["a", "float64", [1000000, 10000000]]]]', 2**26 * "["],
)  # fmt: skip
def test_what_is_no_frame_is_refused(text: str) -> None:
    ours, theirs = socket.socketpair()
    until = time.monotonic() + 60
    with ours, theirs:
        length = len(text) + (len(text) == 2**26)
        ours.sendall(length.to_bytes(4, "big") + text[:100].encode())
        said = "says that its words have 67,108,865 bytes" if length > 2**26 else "is not what RecSmith sends"
        with pytest.raises(CorruptFile, match=f"a message {said}"):
            receive_frame(theirs, until)


def test_one_file_alone_imports_rpc() -> None:
    said = re.compile(
        r"^\s*(from torch\.distributed import .*\brpc\b|(from|import) torch\.distributed\.rpc)", re.MULTILINE
    )
    assert [file.name for file in SOURCES.rglob("*.py") if said.search(file.read_text())] == ["on_rpc.py"]
