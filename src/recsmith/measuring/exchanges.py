"""The all-to-alls of a seed: bytes from each rank to each other rank, and the delay of each rank's start.

They are exchanges of pooled embeddings as in table- and column-wise plans. Forward, every rank sends rows of `width`
columns for the batch of every rank; backward, their gradients come back. Widths are uneven, as in plans, and ranks
start at different times, as they do after uneven kernels.

Legend: W ranks.
"""

import statistics
from collections.abc import Sequence

import numpy as np

from recsmith._types import Floats, Ints, noun
from recsmith.errors import UsageError
from recsmith.hardware.case import EXCHANGES, KeyedRandom
from recsmith.jobs.machine import free_cores
from recsmith.measuring.journal import Row


def check_ranks(ranks: int) -> None:
    """Raise UsageError for fewer than two ranks, which exchange nothing."""
    if ranks < 2:
        raise UsageError(f"{ranks} ranks exchange nothing; measure at least 2")


def oversubscribed(ranks: int) -> bool:
    """Whether there are more ranks than cores for this process, so that the scheduler is measured, not the link."""
    return ranks > free_cores()


UNEVEN = 4.0  # largest factor, in either direction, between the width of a rank and the middle
LATEST_S = 0.02  # seconds; NeuroShard's start skews reach 20 ms
FLOAT_BYTES = 4  # bytes of an element: pooled embeddings and gradients are sent as fp32
WIDTHS = 8, 1024  # columns: range of the mean width of ranks
WIDTH_STEP = 4  # columns: widths are multiples of it, as embedding dims are


@noun
class Sizes:
    """Range of the sizes of exchanges.

    least, most: bytes that a rank sends, on average. soonest_s: if given, the latest start is drawn between it and
    LATEST_S, evenly in its logarithm; otherwise it is LATEST_S.
    """

    least: float
    most: float
    soonest_s: float | None = None


LOCAL = Sizes(least=2.0**10, most=2.0**25)
"""Of local ranks: 1 KiB to 32 MiB."""
GPU = Sizes(least=2.0**16, most=2.0**30, soonest_s=1e-5)
"""Of simulated GPUs, which pass 32 MiB in a tenth of a millisecond: from what latency hides (64 KiB) to 1 GiB."""


@noun
class Exchange:
    """One all-to-all. width: columns that each rank serves (W,); skew_s: each rank's start after the first one (W,).

    Forward, rank r sends batch_size * width[r] elements to every rank; backward, it receives as many from each.
    """

    number: int
    forward: bool
    batch_size: int
    width: tuple[int, ...]
    skew_s: tuple[float, ...]

    @property
    def elements(self) -> Ints:
        """Elements from each rank to each rank (W, W)."""
        sent = np.repeat(np.array(self.width, dtype=np.int64)[:, None] * self.batch_size, len(self.width), axis=1)
        return sent if self.forward else sent.T

    @property
    def traffic(self) -> Floats:
        """Bytes from each rank to each rank (W, W)."""
        return (self.elements * FLOAT_BYTES).astype(np.float64)

    @property
    def sent_bytes(self) -> list[int]:
        """Bytes from each rank to all others (W,)."""
        return self._to_others.sum(axis=1).tolist()

    @property
    def received_bytes(self) -> list[int]:
        """Bytes that each rank receives from all others (W,)."""
        return self._to_others.sum(axis=0).tolist()

    @property
    def _to_others(self) -> Ints:
        """Bytes from each rank to each other rank (W, W); 0 from a rank to itself."""
        return self.elements * FLOAT_BYTES * (1 - np.eye(len(self.width), dtype=np.int64))


def draw_exchange(seed: int, number: int, ranks: int, sizes: Sizes = LOCAL) -> Exchange:
    """The exchange with this number.

    Bytes are evenly distributed in their logarithm; a third of exchanges has equal widths, half starts all ranks at
    once.
    """
    draws = KeyedRandom(seed, number, EXCHANGES)
    forward, equal, together = (draws.uniform(3) < (1 / 2, 1 / 3, 1 / 2)).tolist()
    size, middle = (float(draws.between(low, high, 1)[0]) for low, high in ((sizes.least, sizes.most), WIDTHS))
    shares = np.ones(ranks) if equal else draws.between(1 / UNEVEN, UNEVEN, ranks)
    steps = np.rint(middle * shares / shares.mean() / WIDTH_STEP)
    width: Ints = np.maximum(WIDTH_STEP, steps * WIDTH_STEP).astype(np.int64)
    batch = max(1, round(size / (float(width.mean()) * FLOAT_BYTES * ranks)))
    late = np.zeros(ranks) if together else draws.uniform(ranks) * LATEST_S
    if sizes.soonest_s is not None:
        late *= float(draws.between(sizes.soonest_s / LATEST_S, 1.0, 1)[0])
    return Exchange(
        number=number, forward=forward, batch_size=batch, width=tuple(width.tolist()),
        skew_s=tuple((late - late.min()).tolist()),
    )  # fmt: skip


def exchange_columns(exchange: Exchange, times: Sequence[Sequence[float]]) -> Row:
    """The columns with an exchange and its times. times: seconds of each rank's repetitions."""
    return {
        "ranks": len(exchange.width),
        "direction": "forward" if exchange.forward else "backward",
        "batch_size": exchange.batch_size,
        "width": list(exchange.width),
        "skew_s": list(exchange.skew_s),
        "sent_bytes": exchange.sent_bytes,
        "received_bytes": exchange.received_bytes,
        "status": "ok",
        "fastest_s": [min(each) for each in times],
        "median_s": [statistics.median(each) for each in times],
        "repetitions": len(times[0]),
    }
