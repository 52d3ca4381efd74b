"""Samples ids of a stream by their hash and keeps all lookups of the sampled ids in order, in bounded memory.

Waldspurger, Park, Garthwaite and Ahmad, "Efficient MRC Construction with SHARDS" (FAST 2015): if ids are sampled with
the rate R, a cache of N * R rows serves the same share of their lookups as a cache of N rows serves of all lookups.

n lookups of a batch, K lookups that are kept
"""

from dataclasses import replace

import numpy as np

from recsmith._random import mixed, salt
from recsmith._types import Ints, record
from recsmith.errors import CorruptFile

MOST = 2**20  # lookups kept per feature, 16 bytes each; trade-off: a fourth of them doubles the error of rows
HOT_PARTS = 64  # an id with more than 1/64 of the kept lookups is hot: its lookups are counted instead of kept
WHOLE = 2**63  # upper bound of hashes
SALT = np.uint64(salt("capacity"))
GROUPS = 8  # groups of ids, by their hash, whose spread gives the sampling error


def hashed(ids: Ints) -> Ints:
    """A hash of each id, from 0 to 2**63 - 1, by which ids are sampled; it is the same in every stream."""
    return (mixed(mixed(ids.astype(np.uint64) ^ SALT)) >> np.uint64(1)).astype(np.int64)


@record
class Sampled:
    """The lookups of sampled ids: the position of each in the stream (K,) and its id (K,), in order.

    lookups: number of lookups in the stream. rate: probability that an id is sampled, which is the case if its hash is
    below bound. hot_rows: estimated number of hot ids, which are left out and are served by a table of any size.
    hot_lookups: number of counted lookups of sampled hot ids.
    """

    places: Ints
    ids: Ints
    lookups: int
    rate: float = 1.0
    bound: int = WHOLE
    hot_rows: float = 0.0
    hot_lookups: int = 0

    @property
    def exact(self) -> bool:
        """Whether all lookups of the stream are kept."""
        return self.rate == 1 and not self.hot_rows

    def first(self, lookups: int) -> "Sampled":
        """The sample of the first `lookups` lookups of the stream."""
        kept = int(np.searchsorted(self.places, lookups))
        return replace(self, places=self.places[:kept], ids=self.ids[:kept], lookups=min(lookups, self.lookups))

    def last(self, lookups: int) -> "Sampled":
        """The sample of the last `lookups` lookups of the stream."""
        begin = max(0, self.lookups - lookups)
        kept = int(np.searchsorted(self.places, begin))
        return replace(self, places=self.places[kept:] - begin, ids=self.ids[kept:], lookups=self.lookups - begin)

    def fewer(self, most: int) -> "Sampled":
        """The lookups of fewer ids, at most `most` lookups; the sample itself if it has no more."""
        made = self
        while len(made.ids) > most:
            known, numbers, counts = np.unique(made.ids, return_inverse=True, return_counts=True)
            hot = counts > most // HOT_PARTS
            if hot.any():
                chosen, rate, bound = ~hot[numbers], made.rate, made.bound
            else:
                rate, bound = made.rate / 2, made.bound // 2
                chosen = (hashed(known) < bound)[numbers]
            made = replace(
                made, places=made.places[chosen], ids=made.ids[chosen], rate=rate, bound=bound,
                hot_rows=made.hot_rows + float(hot.sum()) / made.rate,
                hot_lookups=made.hot_lookups + int(counts[hot].sum()),
            )  # fmt: skip
        return made

    def groups(self) -> "list[Sampled]":
        """Samples of an eighth of the ids each."""
        number = mixed(hashed(self.ids).astype(np.uint64)) % np.uint64(GROUPS)
        return [
            replace(self, places=self.places[number == group], ids=self.ids[number == group], rate=self.rate / GROUPS)
            for group in range(GROUPS)
        ]


class IdSample:
    """Samples ids of a feature while its lookups come; the longer the stream, the lower the sampling rate.

    most: number of lookups that are kept. Cost: linear in lookups. Memory: 16 bytes per kept lookup, three times that
    while the sample is thinned.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most, self.lookups = most, 0
        self._bound, self._rate = WHOLE, 1.0
        self._places, self._ids = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        self._kept = 0
        self._hot = np.zeros(0, np.int64)
        self._hot_rows, self._hot_lookups = 0.0, 0

    def add(self, ids: Ints) -> None:
        """Add the next lookups (n,); CorruptFile if an id is negative."""
        if len(ids) and ids.min() < 0:
            raise CorruptFile(f"the id {ids.min()} is negative; ids are whole numbers of 0 or more")
        places = np.arange(self.lookups, self.lookups + len(ids))
        self.lookups += len(ids)
        if self._rate < 1:
            chosen = hashed(ids) < self._bound
            ids, places = ids[chosen], places[chosen]
        if len(self._hot):
            hot = np.isin(ids, self._hot)
            self._hot_lookups += int(hot.sum())
            ids, places = ids[~hot], places[~hot]
        self._ids.append(ids.astype(np.int64))
        self._places.append(places)
        self._kept += len(ids)
        if self._kept > self.most:
            self._shrink()

    def _shrink(self) -> None:
        """Keep the lookups of fewer ids; lookups of new hot ids are only counted from now on."""
        before = self.sampled()
        kept = before.fewer(self.most)
        if kept.hot_rows > before.hot_rows:
            known, counts = np.unique(before.ids, return_counts=True)
            self._hot = np.union1d(self._hot, known[counts > self.most // HOT_PARTS])
        self._hot_rows, self._hot_lookups = kept.hot_rows, kept.hot_lookups
        self._rate, self._bound, self._kept = kept.rate, kept.bound, len(kept.ids)
        self._ids, self._places = [kept.ids], [kept.places]

    def sampled(self) -> Sampled:
        """The sample so far."""
        return Sampled(
            places=np.concatenate(self._places), ids=np.concatenate(self._ids), lookups=self.lookups, rate=self._rate,
            bound=self._bound, hot_rows=self._hot_rows, hot_lookups=self._hot_lookups,
        )  # fmt: skip
