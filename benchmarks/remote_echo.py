"""Tensors to another process of this machine and back: PyTorch RPC, gRPC with pickled tensors, and Ray actors.

    python benchmarks/remote_echo.py              # two minutes; rows of gRPC and Ray where they are installed
    python benchmarks/remote_echo.py --quick      # few rounds

Table of docs/remote.md. Each transport has a server and a client, processes that do nothing else, and their
turns come round after round, so that other programs disturb all alike. A turn sends a tensor of float32 and waits until
the same values are there again, as another tensor. Throughput is what went both ways over the median of seconds. CPU
seconds are those of client and server; of Ray, whose store has processes of its own, they are not counted.

`RecSmith over` is what the servers of a run are called by (`remote`), beside the bare transport. gRPC sends what
`pickle.dumps` makes of a tensor, with protocol 5, the fastest one, and without the limit of 4 MiB on messages that it
has by default; a second one sends the tensor's NumPy array, which pickles in one copy. RecSmith itself has no gRPC and
reads no such pickles: they stand for what people write by hand.
"""

import argparse
import math
import os
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from recsmith.feeding.on_ray import Connection
from recsmith.jobs.machine import LOOPBACK, free_port, loopback_interface
from recsmith.training.systems.remote.calls import ServerCalls, ServerFunctions, ServerPlace

SIZES = {"64 KiB": 2**16, "4 MiB": 2**22, "32 MiB": 2**25}
ROUNDS = {"64 KiB": 400, "4 MiB": 100, "32 MiB": 20}
WARM = 3
TIMEOUT_S = 60.0
BASE = "gRPC, pickled tensors"
Echo = Callable[[torch.Tensor], torch.Tensor]
Spent = tuple[float, float]  # seconds of the clock, and of the processors of client and server


def echo(value: Any) -> Any:
    """What each server does."""
    return value


# --- PyTorch RPC --------------------------------------------------------------------------------------------------


@contextmanager
def rpc_joined(rank: int, port: int) -> Iterator[Any]:
    """Join a group of two: the client, rank 0, and the server."""
    from torch.distributed import rpc

    os.environ.update(MASTER_ADDR=LOOPBACK, MASTER_PORT=str(port))
    os.environ.update(TP_SOCKET_IFNAME=loopback_interface(), GLOO_SOCKET_IFNAME=loopback_interface())
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=2, rpc_timeout=TIMEOUT_S)
    rpc.init_rpc(("client", "server")[rank], rank=rank, world_size=2, rpc_backend_options=options)
    try:
        yield rpc
    finally:
        rpc.shutdown()


@contextmanager
def over_rpc() -> Iterator[tuple[Echo, int]]:
    port = free_port()
    with served("rpc", port) as server, rpc_joined(0, port) as rpc:
        yield (lambda tensor: rpc.rpc_sync("server", echo, (tensor,))), server.pid


def serve_rpc(port: int) -> None:
    say_ready()
    with rpc_joined(1, port):
        pass  # the group ends when both sides want it to


# --- gRPC ---------------------------------------------------------------------------------------------------------

UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


def pickled(value: Any) -> bytes:
    return pickle.dumps(value, protocol=5)


@contextmanager
def over_grpc(out: Callable[[torch.Tensor], Any] = echo, back: Callable[[Any], torch.Tensor] = echo) -> Iterator[Any]:
    """out, back: what a tensor is pickled as, and the tensor of it."""
    import grpc  # pyright: ignore[reportMissingImports]

    port = free_port()
    with served("grpc", port) as server, grpc.insecure_channel(f"{LOOPBACK}:{port}", UNLIMITED) as channel:
        call = channel.unary_unary("/echo/echo", request_serializer=pickled, response_deserializer=pickle.loads)
        yield (lambda tensor: back(call(out(tensor), timeout=TIMEOUT_S, wait_for_ready=True))), server.pid


def serve_grpc(port: int) -> None:
    import grpc  # pyright: ignore[reportMissingImports]

    handler = grpc.unary_unary_rpc_method_handler(
        lambda value, _: echo(value), request_deserializer=pickle.loads, response_serializer=pickled
    )
    server = grpc.server(ThreadPoolExecutor(2), options=UNLIMITED)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo", {"echo": handler}),))
    server.add_insecure_port(f"{LOOPBACK}:{port}")
    server.start()
    say_ready()
    sys.stdin.read()  # until the client has gone
    server.stop(None)


# --- servers of runs ----------------------------------------------------------------------------------------------


def functions(place: ServerPlace, server: int, _settings: dict[str, Any]) -> ServerFunctions:
    """Of a server."""
    return ServerFunctions(server, place.key, {"echo": lambda _, tensors: tensors})


def place_of(backend: str, address: str) -> ServerPlace:
    return ServerPlace(backend=backend, address=address, job="echo", key="of this benchmark", servers=1)


def echo_by(calls: ServerCalls) -> Echo:
    calls.greet()
    return lambda tensor: calls.call(0, "echo", {"tensor": tensor}, TIMEOUT_S)["tensor"]


@contextmanager
def ours_over_rpc() -> Iterator[tuple[Echo, int]]:
    from recsmith.training.systems.remote.on_rpc import RpcCalls

    port = free_port()
    with served("ours", port) as server:
        calls = RpcCalls(place_of("rpc", f"{LOOPBACK}:{port}"), "client")
        yield echo_by(calls), server.pid
        calls.close()


def serve_ours(port: int) -> None:
    from recsmith.training.systems.remote.group import hosted_meeting
    from recsmith.training.systems.remote.on_rpc import RpcServer

    place = place_of("rpc", f"{LOOPBACK}:{port}")
    store = hosted_meeting(place.address)
    server = RpcServer(place, functions(place, 0, {}))
    say_ready()
    sys.stdin.read()
    server.close()
    del store


@contextmanager
def ours_over_sockets() -> Iterator[tuple[Echo, int]]:
    from recsmith.training.systems.remote.on_sockets import SocketCalls

    port = free_port()
    with served("sockets", port) as server:
        calls = SocketCalls(place_of("sockets", f"{LOOPBACK}:{port}"), "client")
        yield echo_by(calls), server.pid
        calls.close()


def serve_sockets(port: int) -> None:
    from recsmith.training.systems.remote.on_sockets import SocketServer, listen

    place = place_of("sockets", f"{LOOPBACK}:{port}")
    server = SocketServer(place, functions(place, 0, {}), listen(place.address, 0))
    say_ready()
    sys.stdin.read()
    server.close()


@contextmanager
def ours_over_ray() -> Iterator[tuple[Echo, None]]:
    from recsmith.training.systems.remote.on_ray import RayCalls, RayServers

    connection = Connection(None)
    place = place_of("ray", connection.ray.get_runtime_context().gcs_address)
    servers = RayServers(place, "remote_echo:functions", {})
    calls = RayCalls(place, "client")
    yield echo_by(calls), None
    calls.close()
    servers.close()
    connection.close()


# --- turns --------------------------------------------------------------------------------------------------------

TRANSPORTS: dict[str, tuple[str, Callable[[], Any]]] = {  # the package that each needs, and what opens it
    "PyTorch RPC": ("torch", over_rpc),
    "RecSmith over sockets": ("torch", ours_over_sockets),
    "RecSmith over rpc": ("torch", ours_over_rpc),
    BASE: ("grpc", over_grpc),
    "gRPC, pickled arrays": ("grpc", lambda: over_grpc(torch.Tensor.numpy, torch.from_numpy)),
    "RecSmith over Ray": ("ray", ours_over_ray),
}
SERVERS = {"rpc": serve_rpc, "grpc": serve_grpc, "ours": serve_ours, "sockets": serve_sockets}


@contextmanager
def served(transport: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A server in a process of its own, which ends when its standard input is closed."""
    with started("--serve", transport, "--port", str(port)) as server:
        ready(server)
        yield server


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """This script in another process, until its standard input is closed."""
    command = [sys.executable, "-W", "ignore", __file__, *words]
    quiet = {**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR"}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=quiet)
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(TIMEOUT_S)


def say_ready() -> None:
    print("ready", flush=True)


def ready(process: Any) -> None:
    """Wait until a process of this script has said so."""
    if process.stdout.readline() != b"ready\n":
        sys.exit(f"{' '.join(process.args[3:])} has failed")


def client(transport: str) -> None:
    """Take turns: a size comes in, and what the turn took goes out."""
    with TRANSPORTS[transport][1]() as (call, server):
        say_ready()
        for line in sys.stdin:
            tensor = torch.rand(int(line) // 4)
            cpu, begun = cpu_seconds(server), time.perf_counter()
            answer = call(tensor)
            print(time.perf_counter() - begun, cpu_seconds(server) - cpu, flush=True)
            assert torch.equal(answer, tensor)


def cpu_seconds(process: int | None) -> float:
    """Of this process and another one."""
    if process is None:
        return float("nan")
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def turn(process: Any, size: int) -> Spent:
    process.stdin.write(f"{size}\n".encode())
    process.stdin.flush()
    wall, cpu = map(float, process.stdout.readline().split())
    return wall, cpu


def table(quick: bool) -> None:
    """Print the rows of the table as they are measured."""
    with ExitStack() as stack:
        clients: dict[str, Any] = {}
        for name, (package, _) in TRANSPORTS.items():
            if find_spec(package) is None:
                print(f"{name} is left out: {package} is not installed", file=sys.stderr)
                continue
            clients[name] = stack.enter_context(started("--client", name))
            ready(clients[name])
        print("| tensor | transport | median ms | middle half | MiB/s both ways | beside gRPC | CPU ms | beside gRPC |")
        print("|---|---|---|---|---|---|---|---|")
        for size, count in SIZES.items():
            found: dict[str, list[Spent]] = {name: [] for name in clients}
            for _ in range(WARM + (3 if quick else ROUNDS[size])):
                for name, each in clients.items():
                    found[name].append(turn(each, count))
            base = found.get(BASE, [])[WARM:]
            for name, spent in found.items():
                print(f"| {size} | {name} | {row(count, spent[WARM:], base)} |", flush=True)


def row(size: int, spent: list[Spent], base: list[Spent]) -> str:
    """Cells of a transport. base: what gRPC took, nothing where it is not installed."""
    walls = sorted(wall for wall, _ in spent)
    middle, cpu = statistics.median(walls), statistics.fmean(cpu for _, cpu in spent)
    half = f"{walls[len(walls) // 4] * 1e3:.2f} to {walls[-1 - len(walls) // 4] * 1e3:.2f}"
    times = f"{statistics.median(wall for wall, _ in base) / middle:.1f}" if base else ""
    cpu_times = f"{statistics.fmean(cpu for _, cpu in base) / cpu:.1f}" if base and cpu > 0 else ""
    shown = "" if math.isnan(cpu) else f"{cpu * 1e3:.2f}"
    return f"{middle * 1e3:.2f} | {half} | {2 * size / 2**20 / middle:,.0f} | {times} | {shown} | {cpu_times}"


def main() -> None:
    """Print the table, or be the server or the client of one transport."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three rounds, to see that it runs")
    parser.add_argument("--serve", choices=SERVERS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--client", choices=TRANSPORTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.serve:
        SERVERS[arguments.serve](arguments.port)
    elif arguments.client:
        client(arguments.client)
    else:
        table(arguments.quick)


if __name__ == "__main__":
    main()
