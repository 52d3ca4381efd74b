"""Seconds of a step from those of its kernels and collectives.

`step_seconds` assumes that the forward all-to-all begins on all ranks at once, when the last is ready; cost models
price this. In a job, as on simulated links, ranks begin it one by one, and the exchanges between early ranks are over
when the last one begins. How much that shortens the step depends on what the last rank still has to exchange
(`step_with_skew`).

Legend: V visits, W ranks of a plan, B resamples; the last axis of kernels and collectives is forward, backward.
"""

from collections.abc import Callable
from dataclasses import replace
from zlib import crc32

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.costs.neural_comm import CommModel
from recsmith.errors import UsageError
from recsmith.hardware.simulated_links import SimulatedLinks
from recsmith.measuring.exchanges import Exchange

MOST_AT_ONCE = 2**22  # seconds that are resampled together: 32 MiB of each array, for any B


def step_seconds(kernels: Floats, comm: Floats) -> Floats:
    """Seconds of steps (...) from those of kernels and collectives (..., W, 2), each forward and backward.

    A rank is ready after its backward collectives, its backward and its forward kernels; the forward collectives begin
    when all ranks are ready (docs/cost-models.md).
    """
    ready = comm[..., 1] + kernels[..., 1] + kernels[..., 0]
    return ready.max(axis=-1) + comm[..., 0].max(axis=-1)


def median_step(kernels: Floats, comm: Floats) -> float:
    """Seconds of the step of a plan from its ranks' medians over visits; kernels and comm (V, W, 2).

    This is not the median of the visits' steps: in each visit the most disturbed rank is the slowest, which lengthens
    the steps of even plans most.
    """
    return float(step_seconds(np.median(kernels, axis=0), np.median(comm, axis=0)))


def resampled_steps(kernels: Floats, comm: Floats, drawn: Ints) -> Floats:
    """`median_step` (B,) of the visits that were drawn (B, V); kernels and comm (V, W, 2)."""
    found = np.empty(len(drawn))
    size = max(1, MOST_AT_ONCE // kernels.size)
    for start in range(0, len(drawn), size):
        some = drawn[start : start + size]
        ranks, links = (np.median(seconds[some], axis=1) for seconds in (kernels, comm))
        found[start : start + size] = step_seconds(ranks, links)
    return found


ExchangeSeconds = Callable[[Exchange], Floats]
"""A function: the seconds (W,) of each rank of an exchange, from the rank's own start to its end."""


def by_links(links: SimulatedLinks, noise: tuple[int, int] | None = None) -> ExchangeSeconds:
    """The seconds that simulated links take. noise: its seed and visit; None for no noise."""

    def seconds(exchange: Exchange) -> Floats:
        key = None if noise is None else (noise[0], crc32(f"{exchange.forward} {exchange.width}".encode()), noise[1])
        return links.seconds(exchange.traffic, np.array(exchange.skew_s), key)

    return seconds


def by_model(model: CommModel) -> ExchangeSeconds:
    """The seconds that a learned model predicts."""
    return lambda exchange: model.seconds(
        np.array(exchange.sent_bytes, dtype=np.float64), np.array(exchange.received_bytes, dtype=np.float64),
        np.array(exchange.skew_s), forward=exchange.forward,
    )  # fmt: skip


def with_starts(exchange: Exchange, ready_s: Floats) -> Exchange:
    """The same exchange, begun by each rank when it is ready (W,)."""
    if len(ready_s) != len(exchange.width):
        raise UsageError(f"{len(ready_s)} ranks are ready for an exchange of {len(exchange.width)}; give one time each")
    return replace(exchange, skew_s=tuple((ready_s - ready_s.min()).tolist()))


def step_with_skew(ready_s: Floats, exchange: Exchange, seconds: ExchangeSeconds) -> float:
    """Seconds until the last rank has finished its forward all-to-all: the largest ready_s + its seconds.

    ready_s: when each rank is ready, after its backward all-to-all, backward and forward kernels (W,). exchange: the
    forward all-to-all; its starts are replaced by ready_s.

    Raises:
        UsageError: ready_s has another number of ranks than the exchange.
    """
    return float((ready_s + seconds(with_starts(exchange, ready_s))).max())


def skewed_comm(kernels: Floats, forward: Exchange, backward: Exchange, seconds: ExchangeSeconds) -> Floats:
    """Seconds (W, 2) of both all-to-alls around kernels (W, 2), as `step_seconds` adds them up.

    The backward one begins on all ranks at once, the forward one on each rank when it is ready. Only the part of the
    forward one after the last rank is ready counts, so that a rank's wait is not counted twice.
    """
    back = seconds(backward)
    ready = back + kernels.sum(axis=-1)
    return np.stack([seconds(with_starts(forward, ready)) - waits(ready), back], axis=-1)


def waits(ready_s: Floats) -> Floats:
    """Seconds that each rank waits until the last one is ready (..., W)."""
    return ready_s.max(axis=-1, keepdims=True) - ready_s
