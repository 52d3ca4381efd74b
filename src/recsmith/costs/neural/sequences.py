"""Seconds of kernels of sequence tables (pooling: none) on CPU, from figures that were fitted to what they took.

FBGEMM's CPU kernels of sequences are others than those of pooled tables: forward copies a row for each id, and backward
gathers the gradients of equal ids in a hash map before it updates rows (benchmarks/sequences.py).

Legend: N pieces, f = 5 figures forward, b = 6 backward.
"""

import numpy as np

from recsmith._types import Floats, noun
from recsmith.elementary import log2

FORWARD = ("tables", "ids", "id columns", "rows", "row bytes")
BACKWARD = ("tables", "ids", "id columns", "rows", "rows, by each doubling of the map beyond 1 MiB", "row columns")
MAP_ROW, MAP_COLUMN, MAP_KEPT = 504.0, 4.0, 2.0**20  # bytes of the map: of a row and its columns; which caches hold


@noun
class SequenceSeconds:
    """Seconds of a unit of each figure of FORWARD and of BACKWARD, beyond launches."""

    forward: tuple[float, ...]
    backward: tuple[float, ...]


def sequences_of(optimizer: str, data_type: str) -> str:
    """Under which name a card has the seconds of sequences."""
    return f"{optimizer} {data_type}"


def sequence_figures(ids: Floats, unique: Floats, width: Floats, element_bytes: Floats) -> tuple[Floats, Floats]:
    """Figures (N, f) and (N, b) of pieces: their ids, different rows, columns, and bytes of an element."""
    tables = np.ones(len(ids))
    doublings = log2(1 + unique * (MAP_ROW + MAP_COLUMN * width) / MAP_KEPT)
    forward = (tables, ids, ids * width, unique, unique * width * element_bytes)
    backward = (tables, ids, ids * width, unique, unique * doublings, unique * width)
    return np.stack(forward, axis=1), np.stack(backward, axis=1)
