"""The all-to-alls of a seed: what each rank sends to each other, and how late each starts.

Pooled embeddings as table- and column-wise plans exchange them: every rank serves tables of `width` columns to the
batch of every rank, forward; backward their gradients come back. Widths are uneven, as plans are, and ranks start
unevenly, as they do after uneven kernels.

Legend: W ranks.
"""

import statistics
from collections.abc import Sequence

import numpy as np

from recsmith._types import Floats, Ints, noun
from recsmith.hardware.dice import EXCHANGES, Dice
from recsmith.measuring.journal import Row

UNEVEN = 4.0  # widths differ by up to this factor from their middle, either way
LATEST_S = 0.02  # NeuroShard's start skews reach 20 ms
ELEMENT_BYTES = 4


@noun
class Sizes:
    """How large exchanges get. least, most: bytes that a rank sends, on average.

    soonest_s: where given, the latest start is drawn between it and LATEST_S, evenly in its logarithm; else it is
    LATEST_S.
    """

    least: float
    most: float
    soonest_s: float | None = None


LOCAL = Sizes(least=2.0**10, most=2.0**25)
"""Of local ranks."""
GPU = Sizes(least=2.0**16, most=2.0**30, soonest_s=1e-5)
"""Of simulated GPUs, which pass 32 MiB in a tenth of a millisecond: from what latency hides to a gibibyte."""


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
        return (self.elements * ELEMENT_BYTES).astype(np.float64)

    @property
    def sent_bytes(self) -> list[int]:
        """From each rank to others (W,)."""
        away = self.elements * ELEMENT_BYTES * (1 - np.eye(len(self.width), dtype=np.int64))
        return away.sum(axis=1).tolist()

    @property
    def received_bytes(self) -> list[int]:
        """By each rank from others (W,)."""
        away = self.elements * ELEMENT_BYTES * (1 - np.eye(len(self.width), dtype=np.int64))
        return away.sum(axis=0).tolist()


def draw_exchange(seed: int, number: int, ranks: int, sizes: Sizes = LOCAL) -> Exchange:
    """The exchange of a number: bytes even in their logarithm; a third with equal widths, half without skew."""
    dice = Dice(seed, number, EXCHANGES)
    forward, equal, together = (dice.uniform(3) < (1 / 2, 1 / 3, 1 / 2)).tolist()
    size, middle = (float(dice.between(low, high, 1)[0]) for low, high in ((sizes.least, sizes.most), (8, 1024)))
    shares = np.ones(ranks) if equal else dice.between(1 / UNEVEN, UNEVEN, ranks)
    width: Ints = np.maximum(4, np.rint(middle * shares / shares.mean() / 4) * 4).astype(np.int64)
    batch = max(1, round(size / (float(width.mean()) * ELEMENT_BYTES * ranks)))
    late = np.zeros(ranks) if together else dice.uniform(ranks) * LATEST_S
    if sizes.soonest_s is not None:
        late *= float(dice.between(sizes.soonest_s / LATEST_S, 1.0, 1)[0])
    return Exchange(
        number=number, forward=forward, batch_size=batch, width=tuple(width.tolist()),
        skew_s=tuple((late - late.min()).tolist()),
    )  # fmt: skip


def row_of(exchange: Exchange, times: Sequence[Sequence[float]]) -> Row:
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
