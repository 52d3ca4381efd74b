"""Random numbers that depend only on a key, on every machine: Philox words, permutations, id hashes, Zipf ranks."""

import hashlib
import math

import numpy as np
import numpy.typing as npt

from recsmith._types import Floats, Ints

Words = npt.NDArray[np.uint64]
TO_UNIT = 2.0**-53  # scales 53 random bits to a number below 1; a double holds 53 bits
DROPPED_BITS = np.uint64(11)  # lowest bits of a 64-bit word that are not used
HEAD = 4096  # most read rows whose chances are added one by one; beyond them sums are integrals, accurate to 1e-8


def philox(seed: int, number: int, stream: int) -> np.random.Philox:
    """The generator for a seed, a number (of a case, a block, an epoch) and a stream; each purpose has its own stream.

    NumPy guarantees that the numbers of Philox never change.
    """
    key = np.array([seed, number], dtype=np.uint64)
    return np.random.Philox(key=key, counter=np.array([0, 0, 0, stream], dtype=np.uint64))


def draw(generator: np.random.Philox, count: int) -> Words:
    """The next 64-bit words of a generator (count,)."""
    return np.asarray(generator.random_raw(count), dtype=np.uint64)


def uniform(words: Words) -> Floats:
    """One number in [0, 1) for each word."""
    return (words >> DROPPED_BITS).astype(np.float64) * TO_UNIT


def random_words(seed: int, number: int, purpose: str, count: int) -> Words:
    """Random words for a seed, a number (of a block, of an epoch) and a purpose (count,)."""
    return draw(philox(seed, number, salt(purpose)), count)


def salt(*words: object) -> int:
    """A 64-bit number derived from some words by SHA-256."""
    return int.from_bytes(hashlib.sha256("\0".join(map(str, words)).encode()).digest()[:8], "little")


def permutation(seed: int, number: int, purpose: str, count: int) -> Ints:
    """The numbers 0 to count - 1 in random order (count,); all orders are equally likely."""
    return np.argsort(random_words(seed, number, purpose, count), kind="stable")


def mixed(words: Words) -> Words:
    """Words whose bits all depend on all bits of the given words: the finalizer of SplitMix64 (Steele et al. 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def unmixed(words: Words) -> Words:
    """The inverse of `mixed`: the words from which `mixed` made these."""
    words = (words ^ (words >> np.uint64(31)) ^ (words >> np.uint64(62))) * np.uint64(0x319642B2D24D8EC3)
    words = (words ^ (words >> np.uint64(27)) ^ (words >> np.uint64(54))) * np.uint64(0x96DE1B173F119089)
    return words ^ (words >> np.uint64(30)) ^ (words >> np.uint64(60))


def buckets(ids: Ints, salt: Words, count: int) -> Ints:
    """The bucket of each id, 0 to count - 1, by a salted hash."""
    return (mixed(mixed(ids.astype(np.uint64) + salt)) % np.uint64(count)).astype(np.int64)


class RowShuffle:
    """A random permutation of `rows` rows that is computed row by row, without storing it.

    Multiplications by odd numbers and shifts map the numbers of b bits one to one; a result of `rows` or more is mapped
    again until it is below `rows` (Black and Rogaway 2002, cycle walking).
    """

    def __init__(self, rows: int, salt: int) -> None:
        self.rows, bits = rows, max(1, (rows - 1).bit_length())
        self.mask, self.shift = np.uint64(2**bits - 1), np.uint64((bits + 1) // 2)
        keys = mixed(np.arange(1, 4, dtype=np.uint64) + np.uint64(salt))
        self.factors, self.offset = keys[:2] | np.uint64(1), keys[2] & self.mask

    def __call__(self, ranks: Ints) -> Ints:
        """The row at each rank; ranks are 0 to rows - 1."""
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


class ZipfLaw:
    """Chances of ranks 1 to rows, in proportion to rank ** -exponent.

    Beyond the first HEAD ranks, rank r has the integral of x ** -exponent from r - 1/2 to r + 1/2, which differs from
    r ** -exponent by the share exponent * (exponent + 1) / (24 r ** 2).
    """

    def __init__(self, rows: int, exponent: float) -> None:
        self.rows, self.exponent = rows, exponent
        head = np.arange(1, min(rows, HEAD) + 1, dtype=np.float64) ** -exponent
        self.sums = np.cumsum(head)
        self.edge = self._integral(np.array([HEAD + 0.5]))[0]
        tail = self._integral(np.array([rows + 0.5]))[0] - self.edge if rows > HEAD else 0.0
        self.total = float(self.sums[-1] + tail)

    def ranks(self, uniform: Floats) -> Ints:
        """The ranks, counted from 0, that uniform numbers in [0, 1) select."""
        at = uniform * self.total
        ranks = np.searchsorted(self.sums, at, side="right")
        if self.rows > HEAD:
            behind = np.flatnonzero(ranks >= HEAD)
            place = self._inverse(at[behind] - self.sums[-1] + self.edge)
            ranks[behind] = np.clip(np.floor(place + 0.5).astype(np.int64), HEAD + 1, self.rows) - 1
        return np.minimum(ranks, self.rows - 1)

    def chances(self, ranks: Ints) -> Floats:
        """The chances of ranks, counted from 0."""
        return np.asarray((ranks + 1.0) ** -self.exponent / self.total, np.float64)

    def _integral(self, place: Floats) -> Floats:
        """The integral of x ** -exponent, from 1 to a place."""
        power = 1 - self.exponent
        return np.log(place) if abs(power) < 1e-9 else np.expm1(power * np.log(place)) / power

    def _inverse(self, integral: Floats) -> Floats:
        """The place up to which the integral has this value."""
        power = 1 - self.exponent
        return np.exp(integral if abs(power) < 1e-9 else np.log1p(power * integral) / power)


def poisson_lengths(mean: float, uniform: Floats) -> Ints:
    """Poisson numbers of a mean, one for each uniform number in [0, 1)."""
    most = int(mean + 12 * math.sqrt(mean) + 20)
    logs = np.arange(most) * math.log(max(mean, 1e-300)) - mean
    logs[1:] -= np.cumsum(np.log(np.arange(1, most)))
    return np.minimum(np.searchsorted(np.cumsum(np.exp(logs)), uniform, side="right"), most)
