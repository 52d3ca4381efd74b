# pyright: basic
"""Code that each local rank runs while all-to-alls are measured (imports torch)."""

import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from recsmith._version import __version__
from recsmith.jobs.machine import describe_cpu
from recsmith.measuring.cases import case_of
from recsmith.measuring.columns import origin_columns
from recsmith.measuring.exchanges import Exchange, draw_exchange, exchange_columns, oversubscribed
from recsmith.measuring.journal import Journal, Row

REPETITIONS = 7  # timed, after one that is not. Trade-off: more steady the median, and fewer exchanges are measured
SENT_VALUE = 0.01  # value of every element that is sent; bytes are only moved, so any value would do


def measure_ranks(folder: str, seed: int, start: int, budget_s: float) -> int:
    """Measure exchanges from a position on until the budget ends; returns the number of measured exchanges."""
    end = time.monotonic() + budget_s
    journal = Journal(Path(folder)) if dist.get_rank() == 0 else None
    position = start
    while _agreed(time.monotonic() < end):
        begun = time.monotonic()
        number, visit = case_of(position)
        exchange = draw_exchange(seed, number, dist.get_world_size())
        times = _gathered(_measure(exchange))
        if journal:
            row = {"position": position, "seed": seed, "number": number, "visit": visit, **_row(exchange, times)}
            journal.write(row | origin_columns(time.monotonic() - begun, dist.get_backend(), _device(), _versions()))
        position += 1
    return position - start


def measure_exchanges(exchanges: list[dict[str, Any]], visits: int) -> list[list[float]]:
    """Median seconds of this rank for each exchange (plain data of an Exchange), visit by visit; they take turns."""
    made = [Exchange(**each) for each in exchanges]
    return [[statistics.median(_measure(exchange)) for exchange in made] for _ in range(visits)]


def _agreed(go_on: bool) -> bool:
    """The first rank's decision, on every rank."""
    decision: list[Any] = [go_on]
    dist.broadcast_object_list(decision)
    return decision[0]


def _gathered(mine: list[float]) -> list[list[float]]:
    """The seconds of every rank, on every rank."""
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    return everyone


def _measure(exchange: Exchange) -> list[float]:
    """Seconds of this rank's repetitions, from its own start to its end."""
    rank, elements, place = dist.get_rank(), exchange.elements, _place()
    sends, receives = elements[rank].tolist(), elements[:, rank].tolist()
    source, target = torch.full((sum(sends),), SENT_VALUE, device=place), torch.empty(sum(receives), device=place)
    times: list[float] = []
    for _ in range(REPETITIONS + 1):
        _synchronize()
        dist.barrier()
        _wait(exchange.skew_s[rank])
        begun = time.perf_counter()
        dist.all_to_all_single(target, source, receives, sends)
        _synchronize()
        times.append(time.perf_counter() - begun)
    return times[1:]


def _place() -> torch.device:
    return torch.device("cuda", int(os.environ["LOCAL_RANK"])) if dist.get_backend() == "nccl" else torch.device("cpu")


def _synchronize() -> None:
    if dist.get_backend() == "nccl":
        torch.cuda.synchronize()


def _wait(seconds: float) -> None:
    """Delay the start by sleeping, as a host does while a device computes."""
    if seconds:
        time.sleep(seconds)


def _row(exchange: Exchange, times: list[list[float]]) -> Row:
    outnumbered = dist.get_backend() == "gloo" and oversubscribed(dist.get_world_size())
    return exchange_columns(exchange, times) | {"backend": dist.get_backend(), "oversubscribed": outnumbered}


def _device() -> str:
    if dist.get_backend() == "nccl":
        return f"{dist.get_world_size()} x {torch.cuda.get_device_name()}"
    return describe_cpu()


def _versions() -> str:
    return f"recsmith {__version__}, torch {torch.__version__}"
