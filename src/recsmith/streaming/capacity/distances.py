"""LRU stack distances: the number of other ids read between two lookups of an id, which its table must have rows for.

Mattson, Gecsei, Slutz and Traiger, "Evaluation techniques for storage hierarchies" (IBM Systems Journal 9(2), 1970).

K lookups
"""

import numpy as np

from recsmith._types import Ints

BY_HAND = 16  # length of blocks in which elements are compared pairwise, before blocks are merged


def previous(ids: Ints) -> Ints:
    """The index of the previous lookup of the same id (K,); -1 for its first lookup."""
    order = np.argsort(ids, kind="stable")
    again = ids[order[1:]] == ids[order[:-1]]
    made = np.full(len(ids), -1, dtype=np.int64)
    made[order[1:][again]] = order[:-1][again]
    return made


def distances(ids: Ints) -> Ints:
    """Number of different other ids between each lookup and the previous one of its id (K,); -1 for a first lookup.

    Of the lookups in between, the first one of each id is counted. Cost: K log K.
    """
    before = previous(ids)
    between = np.arange(len(ids)) - 1 - before - _later_before(before)
    return np.where(before < 0, -1, between)


def _later_before(values: Ints) -> Ints:
    """Number of larger elements before each element (K,): pairwise within small blocks, then by a merge sort."""
    count = len(values)
    found = np.zeros(count, dtype=np.int64)
    block = np.arange(count) // BY_HAND
    for shift in range(1, min(BY_HAND, count)):
        found[shift:] += (values[:-shift] > values[shift:]) & (block[:-shift] == block[shift:])
    span, width = np.int64(values.max(initial=0) + 2), BY_HAND
    order = np.argsort(block * span + values + 1, kind="stable")
    while width < count:
        pair = order // (2 * width)
        order = order[np.argsort(pair * span + values[order] + 1, kind="stable")]
        pair = order // (2 * width)
        right = (order // width) % 2 == 1
        lefts = np.cumsum(~right)
        starts = np.flatnonzero(np.diff(pair, prepend=-1))
        before = np.repeat(lefts[starts] - ~right[starts], np.diff(np.append(starts, count)))
        of_pair = np.minimum(width, count - pair * 2 * width)  # number of elements in the left block
        found[order[right]] += (of_pair - (lefts - before))[right]
        width *= 2
    return found
