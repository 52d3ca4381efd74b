"""Shapes of dense layers, and their number of elements; the part of prediction that the training loop needs."""

from collections.abc import Sequence
from math import prod

Shapes = Sequence[Sequence[int]]
NUMBER_BYTES = 4


def numbers_of(shapes: Shapes) -> int:
    """Number of elements of parameters of these shapes."""
    return sum(map(prod, shapes))
