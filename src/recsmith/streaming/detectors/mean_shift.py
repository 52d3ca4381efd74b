"""Whether the mean of a series moved, in the deviations that means of its blocks have: ramps and small shifts show so.

K blocks that are kept
"""

import math
from itertools import accumulate, pairwise

from recsmith.streaming.detectors.plain_state import PlainState

BLOCK, KEPT = 10, 50  # values of a block; blocks that are kept
NEWEST, LEAST = (
    (2, 4, 8, 16),
    8,
)  # blocks whose mean is compared with that of all before; and how many these are at least
CLEAR = 12.0  # standard errors of a move so clear that blocks before it are forgotten, and the next one is seen
SMALLEST = 1e-9  # a deviation, relative to the mean: of a constant series


class MeanShift(PlainState):
    """How far the mean of the newest blocks lies from that of those before, in its standard errors; the farthest.

    The deviation of a block's mean is that of differences between neighbouring blocks: so a ramp does not widen it, and
    noise whose neighbouring values are alike does. After a clear move the mean is that of the blocks since then.
    """

    STATE = ("_means", "_sum", "_count")

    def __init__(self) -> None:
        self._means: list[float] = []  # (K,)
        self._sum, self._count = 0.0, 0  # of the block that is not full

    def score(self, value: float) -> float | None:
        """The distance, at the last value of a block; None within one."""
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
