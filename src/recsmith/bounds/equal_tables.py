"""Tables that only their names tell apart: a bound prices one of them, and counts it as often as there are such.

Public models repeat a handful of tables hundreds of times, and what a bound works on falls with the repetitions.

Legend: T tables, C different tables, N facts (of a piece, or of an option).
"""

import numpy as np

from recsmith._types import Floats, Ints


def different_tables(tables: int, facts: list[tuple[Ints, Floats]]) -> tuple[Ints, Ints]:
    """(the first of each set of tables with equal facts (C,), in order; how many are in the set (C,)).

    facts: (table (N,), numbers (N, ...)) pairs; those of a table are compared in their order, to the last bit.
    """
    keys = [b""] * tables
    for table, numbers in facts:
        order = np.argsort(table, kind="stable")
        ends = np.searchsorted(table[order], np.arange(tables + 1))
        ordered = np.ascontiguousarray(numbers[order])
        for each in range(tables):
            keys[each] += b"|%d|" % (ends[each + 1] - ends[each]) + ordered[ends[each] : ends[each + 1]].tobytes()
    copies: dict[bytes, list[int]] = {}
    for each, key in enumerate(keys):
        copies.setdefault(key, []).append(each)
    return np.array([some[0] for some in copies.values()]), np.array([len(some) for some in copies.values()])
