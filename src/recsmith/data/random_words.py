"""Random words that follow from a key on every machine: Philox, whose stream NumPy guarantees never to change."""

import hashlib

import numpy as np
import numpy.typing as npt

from recsmith._types import Floats, Ints

Words = npt.NDArray[np.uint64]
TO_UNIT = 2.0**-53  # 53 random bits to a number below 1: as many as a double holds
DROPPED_BITS = np.uint64(11)  # of a word's 64


def random_words(seed: int, number: int, purpose: str, count: int) -> Words:
    """Words of the stream of a seed, a number (of a block, of an epoch) and a purpose (count,)."""
    key = np.array([seed, number], dtype=np.uint64)
    counter = np.array([0, 0, 0, salt(purpose)], dtype=np.uint64)
    return np.asarray(np.random.Philox(key=key, counter=counter).random_raw(count), dtype=np.uint64)


def salt(*words: object) -> int:
    """A number of 64 bits that stands for some words."""
    return int.from_bytes(hashlib.sha256("\0".join(map(str, words)).encode()).digest()[:8], "little")


def uniform(words: Words) -> Floats:
    """Numbers from 0 to below 1, one of each word."""
    return (words >> DROPPED_BITS).astype(np.float64) * TO_UNIT


def permutation(seed: int, number: int, purpose: str, count: int) -> Ints:
    """The numbers 0 to count - 1 in random order (count,); all orders are as likely."""
    return np.argsort(random_words(seed, number, purpose, count), kind="stable")
