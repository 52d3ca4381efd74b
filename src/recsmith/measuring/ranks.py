# pyright: basic
"""What each rank of a communication measurement runs (imports torch)."""

import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from recsmith._version import __version__
from recsmith.jobs.machine import describe_cpu
from recsmith.measuring.comm import oversubscribed
from recsmith.measuring.exchanges import Exchange, draw_exchange, row_of
from recsmith.measuring.journal import Journal, Row
from recsmith.measuring.run import origin
from recsmith.measuring.samples import which

REPETITIONS = 7  # that are timed, after one that is not


def measure_ranks(folder: str, seed: int, start: int, budget_s: float) -> int:
    """Measure exchanges from a position on until the budget ends; how many."""
    end = time.monotonic() + budget_s
    journal = Journal(Path(folder)) if dist.get_rank() == 0 else None
    position = start
    while _together(time.monotonic() < end):
        begun = time.monotonic()
        number, visit = which(position)
        exchange = draw_exchange(seed, number, dist.get_world_size())
        times = _everyones(_measure(exchange))
        if journal:
            row = {"position": position, "seed": seed, "number": number, "visit": visit, **_row(exchange, times)}
            journal.write(row | origin(time.monotonic() - begun, dist.get_backend(), _device(), _versions()))
        position += 1
    return position - start


def measure_exchanges(exchanges: list[dict[str, Any]], visits: int) -> list[list[float]]:
    """Median seconds of this rank for each exchange (plain data of an Exchange), visit by visit; they take turns."""
    made = [Exchange(**each) for each in exchanges]
    return [[statistics.median(_measure(exchange)) for exchange in made] for _ in range(visits)]


def _together(go_on: bool) -> bool:
    """What the first rank says, on every rank."""
    words: list[Any] = [go_on]
    dist.broadcast_object_list(words)
    return words[0]


def _everyones(mine: list[float]) -> list[list[float]]:
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    return everyone


def _measure(exchange: Exchange) -> list[float]:
    """Seconds of this rank's repetitions, from its own start to its end."""
    rank, elements, place = dist.get_rank(), exchange.elements, _place()
    sends, receives = elements[rank].tolist(), elements[:, rank].tolist()
    source, target = torch.full((sum(sends),), 0.01, device=place), torch.empty(sum(receives), device=place)
    times: list[float] = []
    for _ in range(REPETITIONS + 1):
        _settle()
        dist.barrier()
        _wait(exchange.skew_s[rank])
        begun = time.perf_counter()
        dist.all_to_all_single(target, source, receives, sends)
        _settle()
        times.append(time.perf_counter() - begun)
    return times[1:]


def _place() -> torch.device:
    return torch.device("cuda", int(os.environ["LOCAL_RANK"])) if dist.get_backend() == "nccl" else torch.device("cpu")


def _settle() -> None:
    """Wait for the device."""
    if dist.get_backend() == "nccl":
        torch.cuda.synchronize()


def _wait(seconds: float) -> None:
    """Start late; asleep, as the host is while a device computes."""
    if seconds:
        time.sleep(seconds)


def _row(exchange: Exchange, times: list[list[float]]) -> Row:
    gloo = dist.get_backend() == "gloo"
    crowded = gloo and oversubscribed(dist.get_world_size())
    return row_of(exchange, times) | {"backend": dist.get_backend(), "oversubscribed": crowded}


def _device() -> str:
    if dist.get_backend() == "nccl":
        return f"{dist.get_world_size()} x {torch.cuda.get_device_name()}"
    return describe_cpu()


def _versions() -> str:
    return f"recsmith {__version__}, torch {torch.__version__}"
