"""Seconds of CPU kernels of sequence tables (pooling: none), from prices fitted to measured times.

FBGEMM's CPU kernels for sequences differ from those of pooled tables: forward copies a row for each id, and backward
gathers the gradients of equal ids in a hash map before it updates rows (benchmarks/sequences.py).

Legend: N pieces, f = 5 figures forward, b = 6 backward.
"""

import numpy as np

from recsmith._types import Floats, noun
from recsmith.elementary import log2

FORWARD = ("tables", "ids", "id columns", "rows", "row bytes")
BACKWARD = ("tables", "ids", "id columns", "rows", "rows, by each doubling of the map beyond 1 MiB", "row columns")
BESIDE = 0.55  # share of a row's time in the map that ids in row order save if all rows are read. Measured remainders:
# 0.3 to 0.67 if 96 % of the rows are read, 0.77 to 0.98 for 63 %, 0.85 to 1.03 for 22 to 44 % (FBGEMM 1.8, one core)
IN_ORDER_S = np.array([0.9e-9, 1.5e-9])  # seconds per number of rows from row blocks, forward and backward: jobs of
# benchmarks/dedup.py with 90 and 98 % repeated ids, split by rows or not
# bytes of the map: per row and per column of a row; and the most that caches hold
MAP_ROW, MAP_COLUMN, MAP_KEPT = 504.0, 4.0, 2.0**20


@noun
class SequenceSeconds:
    """Seconds per unit of each figure of FORWARD and of BACKWARD, beyond launches."""

    forward: tuple[float, ...]
    backward: tuple[float, ...]


def sequences_of(optimizer: str, data_type: str) -> str:
    """The name under which a card has the seconds of sequences."""
    return f"{optimizer} {data_type}"


def sequence_figures(
    ids: Floats, unique: Floats, width: Floats, element_bytes: Floats, in_order: Floats | float = 0.0
) -> tuple[Floats, Floats]:
    """Figures (N, f) and (N, b) of pieces, from their ids, different rows, columns, and bytes of an element.

    in_order: for ids that come in the order of rows, as deduplicated ids of each rank do, their share of all rows: the
        denser they are, the more often an id's place in the map is next to that of the one before. 0 for other ids.
    """
    tables = np.ones(len(ids))
    doublings = log2(1 + unique * (MAP_ROW + MAP_COLUMN * width) / MAP_KEPT)
    mapped = unique * (1 - BESIDE * np.square(in_order))
    forward = (tables, ids, ids * width, unique, unique * width * element_bytes)
    backward = (tables, ids, ids * width, mapped, mapped * doublings, unique * width)
    return np.stack(forward, axis=1), np.stack(backward, axis=1)
