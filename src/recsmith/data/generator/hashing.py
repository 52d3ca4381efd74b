"""Hashes of ids: shuffled ranks, hidden vectors and clusters of any row, without a table of all rows."""

import numpy as np
import numpy.typing as npt

from recsmith._random import Words
from recsmith._types import Ints

Vectors = npt.NDArray[np.float32]
WIDTH = 4  # numbers of a hidden vector: 16 bits of a word each
SPREAD = np.float32(np.sqrt(12) / 65536)  # so that a number of 16 random bits has a variance of 1


def mixed(words: Words) -> Words:
    """Words whose bits all depend on all bits of the given ones: the finalizer of SplitMix64 (Steele et al. 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def vectors(ids: Ints, salt: Words) -> Vectors:
    """Hidden vectors of ids (n, WIDTH): evenly distributed numbers of mean 0 and variance 1."""
    words = mixed(mixed(ids.astype(np.uint64) + salt))
    parts = words.astype("<u8").view("<u2").reshape(-1, WIDTH)
    return (parts.astype(np.float32) - np.float32(32767.5)) * SPREAD


def buckets(ids: Ints, salt: Words, count: int) -> Ints:
    """The bucket of each id among `count`."""
    return (mixed(mixed(ids.astype(np.uint64) + salt)) % np.uint64(count)).astype(np.int64)


class RowShuffle:
    """A drawn order of `rows` rows, worked out row by row.

    Multiplications by odd numbers and shifts map the numbers of b bits one to one; a number that falls at or above
    `rows` is mapped again until it is below (Black and Rogaway 2002, cycle walking).
    """

    def __init__(self, rows: int, salt: int) -> None:
        self.rows, bits = rows, max(1, (rows - 1).bit_length())
        self.mask, self.shift = np.uint64(2**bits - 1), np.uint64((bits + 1) // 2)
        keys = mixed(np.arange(1, 4, dtype=np.uint64) + np.uint64(salt))
        self.factors, self.offset = keys[:2] | np.uint64(1), keys[2] & self.mask

    def __call__(self, ranks: Ints) -> Ints:
        """The rows that hold ranks, which are 0 to rows - 1."""
        found = self._mapped(ranks.astype(np.uint64))
        outside = np.flatnonzero(found >= self.rows)
        while len(outside):
            found[outside] = self._mapped(found[outside])
            outside = outside[found[outside] >= self.rows]
        return found.astype(np.int64)

    def _mapped(self, words: Words) -> Words:
        words = (words + self.offset) & self.mask
        for factor in self.factors:
            words = (words ^ (words >> self.shift)) * factor & self.mask
        return words ^ (words >> self.shift)
