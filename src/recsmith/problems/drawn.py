"""The number of ids and of different rows that a batch draws from a block of rows, not exceeded in 99.9 % of batches.

A plan's seconds are those of mean batches. Its memory must hold the fullest batch, so `real` memory counts these ids,
and the rows, outputs and temporaries that follow from them. Which rows a batch reads is random; its number of ids is
not, so ids of whole tables are the workload's own. The quantiles of several tables of a rank are added, which is more
than the quantile of their sum.

Legend: N blocks or tables; all arrays are (N,).
"""

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.elementary import expm1

QUANTILE = 0.999
DEVIATIONS = 3.0902  # standard deviations above the mean that one of 1,000 draws exceeds, by the normal law
FEW = (DEVIATIONS**2 - 1) / 6  # additional ids: the next term of the Cornish-Fisher expansion, for Poisson's law


def most_ids(ids: Floats, share: Floats, deviation: Floats) -> Floats:
    """The most ids of a block with `ids` mean ids, which are this share (0..1) of its table's lookups.

    deviation: standard deviation of that share between batches, if batches were counted; at least that of chance is
        used.
    """
    lookups = ids / np.maximum(share, 1e-300)
    variance = np.maximum(ids * (1 - share), (lookups * deviation) ** 2)
    most = np.minimum(ids + DEVIATIONS * np.sqrt(variance) + FEW, lookups)
    return np.where((ids > 0) & (share < 1), most, ids)


def most_rows(rows: Ints, ids: Floats, different: Floats) -> Floats:
    """The most different rows among `ids` ids of a block of rows.

    different: the number expected by the access profile, or infinite without a profile. Evenly drawn ids read the most
        rows that ids can. Reading one row does not make another likelier, so chance adds less than by Poisson's law.
    """
    even = -rows * expm1(-ids / rows)
    known = np.where(np.isfinite(different), different, 0.0)
    return np.where(np.isfinite(different), np.minimum(even, known + DEVIATIONS * np.sqrt(known) + FEW), even)
