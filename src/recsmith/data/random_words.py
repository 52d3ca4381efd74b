"""Random words and orders of samples, that follow from a seed, a number and a purpose on every machine."""

import hashlib

import numpy as np

from recsmith._random import Words, draw, philox
from recsmith._types import Ints


def random_words(seed: int, number: int, purpose: str, count: int) -> Words:
    """Words of the stream of a seed, a number (of a block, of an epoch) and a purpose (count,)."""
    return draw(philox(seed, number, salt(purpose)), count)


def salt(*words: object) -> int:
    """A number of 64 bits that stands for some words."""
    return int.from_bytes(hashlib.sha256("\0".join(map(str, words)).encode()).digest()[:8], "little")


def permutation(seed: int, number: int, purpose: str, count: int) -> Ints:
    """The numbers 0 to count - 1 in random order (count,); all orders are as likely."""
    return np.argsort(random_words(seed, number, purpose, count), kind="stable")
