"""Random numbers that are the same for a key on every machine: raw words of Philox, whose stream NumPy guarantees."""

import math

import numpy as np

from recsmith._types import Floats

CASES, IDS, EXCHANGES, NOISE = range(4)  # streams of one key, for different purposes; noise goes on from its own
TO_UNIT = 2.0**-53


class Dice:
    """Uniform numbers of a seed, a number and a stream."""

    def __init__(self, seed: int, number: int, stream: int) -> None:
        key = np.array([seed, number], dtype=np.uint64)
        self._words = np.random.Philox(key=key, counter=np.array([0, 0, 0, stream], dtype=np.uint64))

    def uniform(self, count: int) -> Floats:
        """(count,) numbers, 0 to below 1."""
        words = np.asarray(self._words.random_raw(count), dtype=np.uint64)
        return (words >> np.uint64(11)).astype(np.float64) * TO_UNIT

    def between(self, low: float, high: float, count: int) -> Floats:
        """(count,) numbers whose logarithms are even between those of low and high."""
        return low * np.exp(self.uniform(count) * math.log(high / low))

    def normal(self, count: int) -> Floats:
        """(count,) normal numbers (Box and Muller)."""
        first, second = self.uniform(count), self.uniform(count)
        return np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second)
