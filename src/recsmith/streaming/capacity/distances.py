"""How many other ids are read between two lookups of an id: what a table needs in rows to serve the second under LRU.

Mattson, Gecsei, Slutz and Traiger, "Evaluation techniques for storage hierarchies" (IBM Systems Journal 9(2), 1970).

K lookups
"""

import numpy as np

from recsmith._types import Ints

BY_HAND = 16  # neighbours that are compared one by one before blocks are merged


def previous(ids: Ints) -> Ints:
    """Where each id was looked up last (K,); -1 for its first lookup."""
    order = np.argsort(ids, kind="stable")
    again = ids[order[1:]] == ids[order[:-1]]
    made = np.full(len(ids), -1, dtype=np.int64)
    made[order[1:][again]] = order[:-1][again]
    return made


def distances(ids: Ints) -> Ints:
    """How many different other ids lie between each lookup and the one before of its id (K,); -1 for a first lookup.

    Of what lies between, those count that were not read in between before. Cost: K log K.
    """
    before = previous(ids)
    between = np.arange(len(ids)) - 1 - before - _later_before(before)
    return np.where(before < 0, -1, between)


def _later_before(values: Ints) -> Ints:
    """How many elements before each are larger (K,): neighbours by hand, then blocks are merged in sorted order."""
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
        of_pair = np.minimum(width, count - pair * 2 * width)  # elements of the left block
        found[order[right]] += (of_pair - (lefts - before))[right]
        width *= 2
    return found
