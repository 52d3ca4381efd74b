"""How many ids, and how many different rows, a batch draws of a block of rows: no more, in 999 of 1,000 batches.

A plan's seconds are those of mean batches. Its memory must hold the fullest one, so `real` memory counts these ids, and
the rows, outputs and temporaries that follow from them. Which rows a batch reads is drawn; how many ids it has is not,
so ids of whole tables are the workload's own. The quantiles of several tables of a rank are added up, which is more
than the quantile of their sum.

Legend: N blocks or tables; all arrays are (N,).
"""

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.elementary import expm1

QUANTILE = 0.999
DEVIATIONS = 3.0902  # standard deviations above the mean that one draw of 1,000 exceeds, by the normal law
FEW = (DEVIATIONS**2 - 1) / 6  # ids beyond: Cornish and Fisher's next term, of Poisson's law


def most_ids(ids: Floats, share: Floats, deviation: Floats) -> Floats:
    """The most ids of a block that has so many in the mean, which are this share (0..1) of its table's lookups.

    deviation: standard deviation of that share between batches, where batches were counted; never less than by chance.
    """
    lookups = ids / np.maximum(share, 1e-300)
    variance = np.maximum(ids * (1 - share), (lookups * deviation) ** 2)
    most = np.minimum(ids + DEVIATIONS * np.sqrt(variance) + FEW, lookups)
    return np.where((ids > 0) & (share < 1), most, ids)


def most_rows(rows: Ints, ids: Floats, different: Floats) -> Floats:
    """The most different rows among so many ids of a block of rows.

    different: those that the access profile lets expect, or infinite where there is none. Ids that are drawn evenly
    read the most rows that ids can. A row that is read makes others no likelier, so chance adds less than by Poisson's
    law.
    """
    even = -rows * expm1(-ids / rows)
    known = np.where(np.isfinite(different), different, 0.0)
    return np.where(np.isfinite(different), np.minimum(even, known + DEVIATIONS * np.sqrt(known) + FEW), even)
