"""Steps whose forward all-to-all begins, on each rank, when that rank is ready.

`step_seconds` (steps.py) lets the forward all-to-all begin on all ranks at once, when the last is ready; that is what
cost models price. Real ranks enter it one by one, and what the early ones have exchanged by the time the last one comes
is done. So such a step is never longer where the all-to-all takes its longest, and how much shorter it is depends on
what the last rank still has to send.

Legend: W ranks.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from recsmith._types import Floats
from recsmith.costs.comm_network import CommModel
from recsmith.errors import UsageError
from recsmith.hardware.simulated_links import SimulatedLinks
from recsmith.measuring.exchanges import Exchange

Seconds = Callable[[Exchange], Floats]
"""Seconds (W,) of each rank of an exchange, from its own start to its end."""


def by_links(links: SimulatedLinks) -> Seconds:
    """What simulated links take, without noise."""
    return lambda exchange: links.seconds(exchange.traffic, np.array(exchange.skew_s))


def by_model(model: CommModel) -> Seconds:
    """What a learned model says."""
    return lambda exchange: model.seconds(
        np.array(exchange.sent_bytes, dtype=np.float64), np.array(exchange.received_bytes, dtype=np.float64),
        np.array(exchange.skew_s), forward=exchange.forward,
    )  # fmt: skip


def step_with_skew(ready_s: Floats, exchange: Exchange, seconds: Seconds) -> float:
    """Seconds until the last rank has its forward all-to-all behind it: the largest ready_s + its seconds.

    ready_s: when each rank is ready, after its backward all-to-all, backward and forward kernels (W,). exchange: the
    forward all-to-all; its starts are those of ready_s.

    Raises:
        UsageError: as many starts are missing or too many.
    """
    if len(ready_s) != len(exchange.width):
        raise UsageError(f"{len(ready_s)} ranks are ready for an exchange of {len(exchange.width)}; give one time each")
    late = ready_s - ready_s.min()
    return float((ready_s + seconds(replace(exchange, skew_s=tuple(late.tolist())))).max())
