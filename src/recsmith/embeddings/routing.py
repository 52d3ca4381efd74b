"""Bags of ids, taken apart for physical features.

B samples, n ids of a feature in all of them
"""

from dataclasses import replace

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.data import JaggedIds
from recsmith.errors import UsageError


def renamed(ids: JaggedIds, values: Ints) -> JaggedIds:
    """The same bags with other ids in the same places. values: (n,)."""
    return replace(ids, values=values)


def kept(ids: JaggedIds, values: Ints, mask: Bools) -> JaggedIds:
    """The bags without the ids that a mask leaves out. values: (n,) of all places. mask: (n,)."""
    count = len(ids.lengths)
    sample = np.repeat(np.arange(count), ids.lengths)
    lengths = np.bincount(sample[mask], minlength=count).astype(ids.lengths.dtype)
    return JaggedIds(values=values[mask], lengths=lengths, weights=None if ids.weights is None else ids.weights[mask])


def places(ids: JaggedIds) -> Ints:
    """The place of each id within its bag (n,): 0 for the first."""
    starts = np.cumsum(ids.lengths, dtype=np.int64) - ids.lengths
    return np.arange(len(ids.values)) - np.repeat(starts, ids.lengths)


def check_ids(ids: JaggedIds, num_embeddings: int) -> None:
    """UsageError where an id is not one of the table's."""
    if len(ids.values) and not (ids.values.min() >= 0 and ids.values.max() < num_embeddings):
        wrong = ids.values[(ids.values < 0) | (ids.values >= num_embeddings)][0]
        raise UsageError(f"id {wrong} is not one of a table of {num_embeddings:,} rows; ids are 0 and more, below that")


def check_bags(ids: JaggedIds, longest: int, done: str) -> None:
    """UsageError where bags that are put together id by id have weights or too many ids. done: what is done to them."""
    if ids.weights is not None:
        raise UsageError(f"ids with weights cannot be {done}, which would not weigh them once; take operation add")
    found = int(ids.lengths.max(initial=0))
    if found > longest:
        raise UsageError(
            f"a bag holds {found} ids and max_bag is {longest}; raise max_bag, or take quotient_remainder with "
            "operation add, which has no such limit"
        )
