"""Shapes of dense layers, and their number of elements; the part of prediction that the training loop needs."""

from collections.abc import Sequence
from math import prod

Shapes = Sequence[Sequence[int]]
NUMBER_BYTES = 4


def numbers_of(shapes: Shapes) -> int:
    """Total number of elements of parameters with these shapes."""
    return sum(map(prod, shapes))
