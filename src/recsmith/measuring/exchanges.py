"""The all-to-alls of a seed: how many bytes each rank sends to each other rank, and how late each rank starts.

Pooled embeddings as table- and column-wise plans exchange them: every rank serves tables of `width` columns to the
batch of every rank, forward; backward their gradients come back. Widths are uneven, as plans are, and ranks start
unevenly, as they do after uneven kernels.

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
    """Refuse fewer than two ranks, which exchange nothing."""
    if ranks < 2:
        raise UsageError(f"{ranks} ranks exchange nothing; measure at least 2")


def oversubscribed(ranks: int) -> bool:
    """Whether ranks outnumber the cores that this process may use, so that the scheduler is measured, not the link."""
    return ranks > free_cores()


UNEVEN = 4.0  # factor, up or down, by which the widths of ranks differ from their middle at most
LATEST_S = 0.02  # seconds; NeuroShard's start skews reach 20 ms
FLOAT_BYTES = 4  # of an element: pooled embeddings and gradients travel as fp32
WIDTHS = 8, 1024  # columns: between them the mean width of ranks is drawn
WIDTH_STEP = 4  # columns: widths are multiples of it, as embedding dims are


@noun
class Sizes:
    """How large exchanges get.

    least, most: bytes that a rank sends, on average. soonest_s: where given, the latest start is drawn between it and
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
    """One all-to-all. width: columns that each rank serves (W,); skew_s: how much later than the first it starts (W,).

    Rank r sends batch_size * width[r] elements to every rank, forward; backward it gets as many from each.
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
    """The exchange of a number.

    Bytes are spread evenly in their logarithm; a third has equal widths, half starts all ranks at once.
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
    """The columns that say what was exchanged and what it took; times: seconds of each rank's repetitions."""
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
