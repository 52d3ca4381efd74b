"""Draws a stream from a law: the lookups of a sample of its ids, as `IdSample` would keep them of the whole stream."""

import numpy as np

from recsmith._random import philox, salt
from recsmith.streaming.capacity.id_sample import HOT_PARTS, Sampled
from recsmith.streaming.capacity.law import IdLaw


def drawn(law: IdLaw, lookups: int, most: int, seed: int = 0) -> Sampled:
    """A sample of ids of a random stream of `lookups` lookups that follows the law; it keeps at most about `most`.

    Ids that are read too often are left out and counted, like the hot ids of a sample.
    """
    generator = np.random.Generator(philox(seed, 0, salt("a stream drawn by a law")))
    count, read = law.ranks()
    hot = read * lookups > most / HOT_PARTS
    hot_rows, hot_share = float(count[hot].sum()), float((count * read)[hot].sum())
    count, read = count[~hot], read[~hot]
    expected = float((count * read).sum()) * lookups
    rate = 1.0
    while rate * expected > most:
        rate /= 2
    upto = np.floor(np.cumsum(count * rate) + generator.random())
    slots = np.diff(np.append(0.0, upto)).astype(np.int64)  # number of sampled places in each bucket
    drawn_reads = generator.poisson(slots * read * lookups)
    slot = np.repeat(np.cumsum(slots) - slots, drawn_reads)
    slot = slot + (generator.random(len(slot)) * np.repeat(slots, drawn_reads)).astype(np.int64)
    places = np.sort(generator.integers(0, lookups, len(slot)))
    slot = generator.permutation(slot)
    order = np.lexsort((places, slot))
    gaps = np.diff(places[order], prepend=0)
    new = np.diff(slot[order], prepend=-1) != 0
    new |= generator.random(len(slot)) < -np.expm1(-law.churn * gaps)
    ids = np.empty(len(slot), np.int64)
    ids[order] = np.cumsum(new)
    return Sampled(
        places=places, ids=ids, lookups=lookups, rate=rate, hot_rows=hot_rows, hot_lookups=round(hot_share * lookups)
    )  # fmt: skip
