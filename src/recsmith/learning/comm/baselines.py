"""The baseline that a learned model of all-to-alls must beat: alpha + most bytes / bandwidth + wait for the last rank.

Legend: N exchanges, W ranks.
"""

from collections.abc import Sequence

import numpy as np

from recsmith._types import Floats
from recsmith.learning.comm.data import Exchanges
from recsmith.learning.least_squares import non_negative_fit


class WaitedAlphaBeta:
    """Alpha-beta of each number of ranks, fitted to exchanges that all ranks start at once; then the wait is added.

    A number of ranks without such exchanges takes the fit of the nearest number (by ratio) that has some.
    """

    def __init__(self, blocks: Sequence[Exchanges]) -> None:
        self._fits = {block.ranks: _fit(block.take(block.simultaneous)) for block in blocks if block.simultaneous.any()}

    def predict(self, block: Exchanges) -> Floats:
        """Seconds (N, W)."""
        nearest = min(self._fits, key=lambda ranks: abs(np.log(ranks / block.ranks)))
        alpha, per_byte = self._fits[nearest]
        return block.load.wait_s + alpha + per_byte * _most(block)


def _most(block: Exchanges) -> Floats:
    """The most bytes that a rank sends or receives (N, 1)."""
    return np.maximum(block.load.sent, block.load.received).max(axis=1, keepdims=True)


def _fit(block: Exchanges) -> tuple[float, float]:
    """(alpha, seconds a byte) of 0 or more, by least relative squares over exchanges and ranks."""
    size = np.broadcast_to(_most(block), block.seconds.shape).ravel()
    seconds = block.seconds.ravel()
    figures = np.stack([np.full(len(size), seconds.min()), seconds.max() * size / size.max()], axis=1)
    alpha, slope = non_negative_fit(figures / seconds[:, None], np.ones(len(size)))
    return float(alpha * seconds.min()), float(slope * seconds.max() / size.max())
