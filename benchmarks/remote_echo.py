"""Tensors to another process of this machine and back: PyTorch RPC, gRPC with pickled tensors, and Ray actors.

    python benchmarks/remote_echo.py              # a minute; rows of gRPC and Ray where they are installed
    python benchmarks/remote_echo.py --quick      # few rounds

Table of docs/benchmarks/remote.md. Each transport has one server process, and one client calls them in turns, round
after round, so that other programs disturb all alike. A round sends a tensor of float32 and waits until the same values
are there again, as another tensor. Throughput is what went both ways over the median of seconds. CPU seconds are those
of client and server; of Ray, whose store has processes of its own, they are not counted.

gRPC sends what `pickle.dumps` makes of a tensor, with protocol 5, the fastest one, and without the limit of 4 MiB on
messages that it has by default. A second server gets the tensor's NumPy array instead, which pickles in one copy.
RecSmith itself has no gRPC and reads no such pickles: they stand for what people write by hand.
"""

import argparse
import math
import os
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from recsmith.jobs.machine import LOOPBACK, free_port, loopback_interface

SIZES = {"64 KiB": 2**16, "4 MiB": 2**22, "32 MiB": 2**25}
ROUNDS = {"64 KiB": 400, "4 MiB": 100, "32 MiB": 20}
WARM = 3
TIMEOUT_S = 60.0
RPC, GRPC, NUMPY, RAY = "torch.distributed.rpc", "gRPC, pickled tensors", "gRPC, pickled arrays", "Ray actor"
Echo = Callable[[torch.Tensor], torch.Tensor]
Spent = tuple[float, float]  # seconds of the clock, and of the processors of client and server


def echo(value: Any) -> Any:
    """What each server does."""
    return value


def same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def pickled(value: Any) -> bytes:
    return pickle.dumps(value, protocol=5)


# --- PyTorch RPC --------------------------------------------------------------------------------------------------


@contextmanager
def rpc_joined(rank: int, port: int) -> Any:
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
def over_rpc() -> Any:
    port = free_port()
    with served("rpc", port) as server, rpc_joined(0, port) as rpc:
        yield (lambda tensor: rpc.rpc_sync("server", echo, (tensor,))), server.pid


def serve_rpc(port: int) -> None:
    with rpc_joined(1, port):
        pass  # the group ends when both sides want it to


# --- gRPC ---------------------------------------------------------------------------------------------------------

UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


@contextmanager
def over_grpc(out: Callable[[torch.Tensor], Any], back: Callable[[Any], torch.Tensor]) -> Any:
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
    sys.stdin.read()  # until the client has gone
    server.stop(None)


# --- Ray ----------------------------------------------------------------------------------------------------------


class EchoActor:
    """What runs as an actor: arrays come out of Ray's store, and lie in it once more on the way back."""

    def echo(self, array: Any) -> Any:
        """What came, copied as any answer is that was computed."""
        return array.copy()


@contextmanager
def over_ray() -> Any:
    from recsmith.feeding.on_ray import Connection

    connection = Connection(None)
    ray = connection.ray
    actor = ray.remote(EchoActor).remote()
    try:
        yield (
            (lambda tensor: torch.from_numpy(ray.get(actor.echo.remote(tensor.numpy()), timeout=TIMEOUT_S).copy())),
            None,
        )
    finally:
        connection.close()


# --- turns --------------------------------------------------------------------------------------------------------


@contextmanager
def served(transport: str, port: int) -> Any:
    """A server in a process of its own, which ends when its standard input is closed."""
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve", transport, "--port", str(port)], stdin=subprocess.PIPE
    )
    try:
        yield server
    finally:
        assert server.stdin is not None
        server.stdin.close()
        server.wait(TIMEOUT_S)


def cpu_seconds(process: int | None) -> float:
    """Of this process and another one."""
    if process is None:
        return float("nan")
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def turns(transports: dict[str, tuple[Echo, int | None]], size: str, rounds: int) -> dict[str, list[Spent]]:
    """What each round took, of each transport; the first rounds are not counted."""
    tensor, found = torch.rand(SIZES[size] // 4), {name: [] for name in transports}
    for number in range(rounds + WARM):
        for name, (call, server) in transports.items():
            cpu, begun = cpu_seconds(server), time.perf_counter()
            answer = call(tensor)
            spent = time.perf_counter() - begun, cpu_seconds(server) - cpu
            assert torch.equal(answer, tensor)
            if number >= WARM:
                found[name].append(spent)
    return found


def table(quick: bool) -> None:
    """Print the rows of the table as they are measured."""
    torch.set_num_threads(1)
    with ExitStack() as stack:
        transports = {RPC: stack.enter_context(over_rpc())}
        if find_spec("grpc") is not None:
            transports[GRPC] = stack.enter_context(over_grpc(same, same))
            transports[NUMPY] = stack.enter_context(over_grpc(torch.Tensor.numpy, torch.from_numpy))
        else:
            print("gRPC is not installed, its rows are left out: pip install 'grpcio>=1.70'", file=sys.stderr)
        if find_spec("ray") is not None:
            transports[RAY] = stack.enter_context(over_ray())
        print("| tensor | transport | median ms | middle half | MiB/s both ways | beside gRPC | CPU ms | beside gRPC |")
        print("|---|---|---|---|---|---|---|---|")
        for size in SIZES:
            found = turns(transports, size, 3 if quick else ROUNDS[size])
            base = found.get(GRPC, [])
            for name, spent in found.items():
                print(f"| {size} | {name} | {row(SIZES[size], spent, base)} |", flush=True)


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
    """Print the table, or serve one transport."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three rounds, to see that it runs")
    parser.add_argument("--serve", choices=["rpc", "grpc"], help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        {"rpc": serve_rpc, "grpc": serve_grpc}[arguments.serve](arguments.port)
    else:
        table(arguments.quick)


if __name__ == "__main__":
    main()
