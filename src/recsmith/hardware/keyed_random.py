"""Random numbers that follow from a key on every machine, drawn one after another."""

import math

import numpy as np

from recsmith._random import draw, philox, uniform
from recsmith._types import Floats

CASES, IDS, EXCHANGES, NOISE = range(4)  # streams of one key, one for each purpose; visit v draws noise from NOISE + v
PLANS = 2**32  # a stream that no visit reaches: of tasks that are planned for their cases


class KeyedRandom:
    """The random numbers of a key: a seed, the number of a case, and a stream."""

    def __init__(self, seed: int, number: int, stream: int) -> None:
        self._words = philox(seed, number, stream)

    def uniform(self, count: int) -> Floats:
        """The next uniform numbers, 0 to below 1 (count,)."""
        return uniform(draw(self._words, count))

    def between(self, low: float, high: float, count: int) -> Floats:
        """The next numbers between low and high, whose logarithms are uniform (count,)."""
        return low * np.exp(self.uniform(count) * math.log(high / low))

    def normal(self, count: int) -> Floats:
        """The next standard normal numbers, by Box and Muller's transform (count,)."""
        first, second = self.uniform(count), self.uniform(count)
        return np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second)
