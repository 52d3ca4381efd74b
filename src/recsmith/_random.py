"""Random words that follow from a key on every machine: Philox, whose stream NumPy guarantees never to change."""

import numpy as np
import numpy.typing as npt

from recsmith._types import Floats

Words = npt.NDArray[np.uint64]
TO_UNIT = 2.0**-53  # 53 random bits to a number below 1: as many as a double holds
DROPPED_BITS = np.uint64(11)  # of a word's 64


def philox(seed: int, number: int, stream: int) -> np.random.Philox:
    """The generator of a seed, a number (of a case, a block, an epoch) and a stream, one for each purpose."""
    key = np.array([seed, number], dtype=np.uint64)
    return np.random.Philox(key=key, counter=np.array([0, 0, 0, stream], dtype=np.uint64))


def draw(generator: np.random.Philox, count: int) -> Words:
    """The next words of a generator (count,)."""
    return np.asarray(generator.random_raw(count), dtype=np.uint64)


def uniform(words: Words) -> Floats:
    """Numbers from 0 to below 1, one of each word."""
    return (words >> DROPPED_BITS).astype(np.float64) * TO_UNIT
