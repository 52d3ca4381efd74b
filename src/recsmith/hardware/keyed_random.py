"""Random numbers that follow from a key on every machine.

They are made of raw words of Philox, a counter-based generator whose stream NumPy guarantees never to change.
"""

import math

import numpy as np

from recsmith._types import Floats

CASES, IDS, EXCHANGES, NOISE = range(4)  # streams of one key, one for each purpose; visit v draws noise from NOISE + v
PLANS = 2**32  # a stream that no visit reaches: of tasks that are planned for their cases
TO_UNIT = 2.0**-53  # 53 random bits to a number below 1: as many as a double holds
DROPPED_BITS = np.uint64(11)  # of a word's 64


class KeyedRandom:
    """The random numbers of a key: a seed, the number of a case, and a stream."""

    def __init__(self, seed: int, number: int, stream: int) -> None:
        key = np.array([seed, number], dtype=np.uint64)
        self._words = np.random.Philox(key=key, counter=np.array([0, 0, 0, stream], dtype=np.uint64))

    def uniform(self, count: int) -> Floats:
        """The next uniform numbers, 0 to below 1 (count,)."""
        words = np.asarray(self._words.random_raw(count), dtype=np.uint64)
        return (words >> DROPPED_BITS).astype(np.float64) * TO_UNIT

    def between(self, low: float, high: float, count: int) -> Floats:
        """The next numbers between low and high, whose logarithms are uniform (count,)."""
        return low * np.exp(self.uniform(count) * math.log(high / low))

    def normal(self, count: int) -> Floats:
        """The next standard normal numbers, by Box and Muller's transform (count,)."""
        first, second = self.uniform(count), self.uniform(count)
        return np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second)
