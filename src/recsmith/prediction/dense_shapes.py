"""Shapes of dense layers, and how many numbers they hold; what the training loop needs of prediction."""

from collections.abc import Sequence
from math import prod

Shapes = Sequence[Sequence[int]]
NUMBER_BYTES = 4


def numbers_of(shapes: Shapes) -> int:
    """Numbers of parameters of these shapes."""
    return sum(map(prod, shapes))
