"""Detects shifts of a series' mean by comparing means of blocks, which shows ramps and small shifts.

K blocks that are kept
"""

import math
from itertools import accumulate, pairwise

from recsmith.streaming.detectors.plain_state import PlainState

BLOCK, KEPT = 10, 50  # values in a block; blocks that are kept
NEWEST, LEAST = (
    (2, 4, 8, 16),
    8,
)  # numbers of newest blocks whose mean is compared with that of all earlier blocks; least number of earlier blocks
CLEAR = 12.0  # standard errors of a shift after which earlier blocks are forgotten, so that the next shift is seen
SMALLEST = 1e-9  # least deviation relative to the mean, for constant series


class MeanShift(PlainState):
    """Distance between the mean of the newest blocks and that of earlier ones, in standard errors; the largest one.

    The deviation of a block's mean is estimated from differences of neighbouring blocks, so that a ramp does not widen
    it, while autocorrelated noise does. After a clear shift, only the blocks since then are kept.
    """

    STATE = ("_means", "_sum", "_count")

    def __init__(self) -> None:
        self._means: list[float] = []  # (K,)
        self._sum, self._count = 0.0, 0  # sum and number of values in the current block

    def score(self, value: float) -> float | None:
        """The distance after the last value of a block; None within a block."""
        self._sum, self._count = self._sum + value, self._count + 1
        if self._count < BLOCK:
            return None
        self._means = [*self._means, self._sum / BLOCK][-KEPT:]
        self._sum, self._count = 0.0, 0
        count = len(self._means)
        sums = [0.0, *accumulate(self._means)]
        squares = [0.0, *accumulate((after - before) ** 2 / 2 for before, after in pairwise(self._means))]
        smallest, farthest, since = SMALLEST * (1 + abs(sums[-1] / count)), 0.0, count
        for newest in NEWEST:
            older = count - newest
            if older < LEAST:
                break
            deviation = math.sqrt(squares[older - 1] / (older - 1)) + smallest
            moved = abs((sums[count] - sums[older]) / newest - sums[older] / older)
            errors = moved / (deviation * math.sqrt(1 / newest + 1 / older))
            farthest, since = max((farthest, since), (errors, newest))
        if farthest > CLEAR:
            self._means = self._means[-since:]
        return farthest
