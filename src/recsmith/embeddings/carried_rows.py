"""What the rows of a table become when its ids share them in another way.

S ids, R rows before, Q rows after, d columns
"""

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.embeddings.id_maps import IdMap


def carried_rows(values: Floats, before: IdMap, after: IdMap, counts: Ints, rows: int) -> Floats:
    """Each row after (Q, ...): the mean of what its ids had before (R, ...), an id weighing its count and one more.

    values: weights of a table, or the state of an optimizer. counts: how often each id occurs (S,). rows: Q. A row that
    no id has is zero. An id that is alone in its row keeps exactly what it had. Cost: a pass over the ids a column.
    """
    flat = values.reshape(len(values), -1).astype(np.float64)
    weights = counts.astype(np.float64) + 1.0
    total: Floats = np.maximum(np.bincount(after.numbers, weights, rows), 1.0)
    made = np.empty((rows, flat.shape[1]))
    for column in range(flat.shape[1]):
        made[:, column] = np.bincount(after.numbers, weights * flat[before.numbers, column], rows) / total
    return made.reshape(rows, *values.shape[1:])
