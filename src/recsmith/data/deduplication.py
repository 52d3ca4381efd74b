"""Each distinct bag of a feature once, and which of them every sample has: RecD's inverse keyed jagged tensors.

Samples of one session say much the same of their user. Zhao et al., "RecD" (MLSys 2023, arXiv 2211.05239), keep the
distinct rows of a group of features, and for each sample the number of its row. Rows are found by a hash and compared
value by value, so two rows that only share a hash stay two.

B samples, U distinct rows of a group, n ids
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from recsmith._random import random_words
from recsmith._types import Bools, Ints, record
from recsmith.data.batch import Batch, JaggedIds, numbered, renumbered

Hashes = npt.NDArray[np.uint64]
FACTORS = 4096  # positions in a bag that have a factor of their own; later ones begin with the first again
REPEATED = 0.25  # of the bags, where repeats are sought among neighbours first
SALTS = 8  # hashes tried, until no two different rows share one
SHIFT = np.uint64(32)
LEVELS = 3  # octaves of factors that are looked up apart, from the least on; each costs a collective of its own


def deduplicated(batch: Batch, groups: Sequence[Sequence[str]], *, nearby: bool = False) -> Batch:
    """The batch with each distinct row of a group of features once; `Batch.inverse` says which row a sample has.

    groups: features that change together; the rows of a group are distinct in at least one of them. Rows that no sample
    has, and rows that came twice from different parts of a batch, are left out. nearby: where many rows are that of the
    sample before, leave these out only, which is half of the work. Cost: a pass over the ids.
    """
    batch = _expanded_unless(batch, groups)
    ids, inverse = dict(batch.ids), dict(batch.inverse)
    for group in groups:
        rows, before = [batch.ids[name] for name in group], batch.inverse.get(group[0])
        if nearby and before is not None:
            continue
        if before is not None:
            used, before = renumbered(before, len(rows[0].lengths))
            rows = [_taken(each, used) for each in rows]
        first, row = distinct_rows(rows, nearby=nearby)
        row = row if before is None else row[before]
        for name, each in zip(group, rows, strict=True):
            ids[name], inverse[name] = _taken(each, first), row
    return replace(batch, ids=ids, inverse=inverse)


def _taken(bags: JaggedIds, rows: Ints) -> JaggedIds:
    """Bags of some rows; the same ones where these are all rows in their order."""
    count = len(bags.lengths)
    return bags if len(rows) == count and bool((rows == np.arange(count)).all()) else bags.take(rows)


def with_runs_once(batch: Batch, features: Sequence[str]) -> Batch:
    """The batch with runs of equal bags once, for those of some features of which many bags repeat the one before."""
    ids, inverse = dict(batch.ids), dict(batch.inverse)
    for name in features:
        if name not in inverse and _often_repeats(ids[name]):
            changed = _differs(ids[name])
            ids[name], inverse[name] = ids[name].take(np.flatnonzero(changed)), np.cumsum(changed) - 1
    return replace(batch, ids=ids, inverse=inverse)


def expanded(batch: Batch, but: Sequence[str] = ()) -> Batch:
    """The batch with a bag for each sample again, but of some features."""
    kept = {name: row for name, row in batch.inverse.items() if name in but}
    if len(kept) == len(batch.inverse):
        return batch
    ids = {n: bags.take(batch.inverse[n]) if n in batch.inverse and n not in kept else bags
           for n, bags in batch.ids.items()}  # fmt: skip
    return replace(batch, ids=ids, inverse=kept)


def _expanded_unless(batch: Batch, groups: Sequence[Sequence[str]]) -> Batch:
    """The batch with a bag for each sample of all features but of groups whose features have the same rows."""
    alike = [group for group in groups if len({id(batch.inverse.get(name)) for name in group}) == 1]
    return expanded(batch, but=[name for group in alike for name in group])


def distinct_rows(bags: Sequence[JaggedIds], *, nearby: bool = False) -> tuple[Ints, Ints]:
    """(first, inverse): a sample for each distinct row (U,), as they first appear, and the row of each sample (B,).

    nearby: where many rows are that of the sample before, others may come twice.
    """
    if not _often_repeats(bags[0]):
        return _by_hash(bags)
    changed = np.any([_differs(each) for each in bags], axis=0)
    begins, run = np.flatnonzero(changed), np.cumsum(changed) - 1
    if nearby:
        return begins, run
    first, row = _by_hash([each.take(begins) for each in bags])
    return begins[first], row[run]


def _by_hash(bags: Sequence[JaggedIds]) -> tuple[Ints, Ints]:
    """As `distinct_rows`, whatever the order of the samples."""
    for salt in range(SALTS):
        hashes = sum((_hashes(each, salt * len(bags) + i) for i, each in enumerate(bags)), np.zeros(1, np.uint64))
        first, row = numbered(hashes)
        again = np.flatnonzero(first[row] != np.arange(len(row)))  # rows with the hash of one before them
        if not len(again) or all(_equal(each.take(again), each.take(first[row[again]])).all() for each in bags):
            return first, row
    return _compared(bags)


def _often_repeats(bags: JaggedIds) -> bool:
    """Whether many bags seem to be that of the sample before, which is quicker found than any other: by first ids."""
    ends = np.cumsum(bags.lengths, dtype=np.int64)
    some = bags.lengths > 0
    first = bags.values[(ends - bags.lengths)[some]]
    return len(first) > 1 and bool((first[1:] == first[:-1]).mean() > REPEATED)


def _differs(bags: JaggedIds) -> Bools:
    """Whether each bag is another than that of the sample before (B,); the first one is."""
    lengths = bags.lengths.astype(np.int64)
    differs = np.append(True, lengths[1:] != lengths[:-1])
    back = np.arange(len(bags.values)) - np.repeat(np.where(differs, 0, lengths), lengths)
    unlike = bags.values != bags.values[back]
    if bags.weights is not None:
        unlike |= bags.weights.view(np.uint32) != bags.weights.view(np.uint32)[back]
    some = np.flatnonzero(lengths)
    differs[some] |= np.logical_or.reduceat(unlike, (np.cumsum(lengths) - lengths)[some]) if len(some) else False
    return differs


def _hashes(bags: JaggedIds, salt: int) -> Hashes:
    """A number for each bag (B,), the same for equal ones: ids times random odd factors of their places, added up."""
    factors = _factors(salt)
    lengths = bags.lengths.astype(np.int64)
    values = bags.values.astype(np.uint64)  # a copy
    if bags.weights is not None:
        values ^= bags.weights.view(np.uint32).astype(np.uint64) << SHIFT
    width = int(lengths[0]) if len(lengths) else 0
    if width <= FACTORS and (lengths == width).all():
        sums = (values.reshape(len(lengths), width) * factors[:width]).sum(axis=1, dtype=np.uint64)
    else:
        ends = np.cumsum(lengths)
        values *= factors[(np.arange(len(values)) - np.repeat(ends - lengths, lengths)) % FACTORS]
        total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)])
        sums = total[ends] - total[ends - lengths]
    sums += lengths.astype(np.uint64) * factors[FACTORS]
    return (sums ^ (sums >> SHIFT)) * factors[0]


@lru_cache(maxsize=64)
def _factors(salt: int) -> Hashes:
    return random_words(salt, 0, "places in a bag", FACTORS + 1) | np.uint64(1)


def _equal(one: JaggedIds, other: JaggedIds) -> Bools:
    """Whether all bags are as long and hold the same ids and weights, as one truth value or a few (.,)."""
    if not np.array_equal(one.lengths, other.lengths) or not np.array_equal(one.values, other.values):
        return np.zeros(1, np.bool_)
    if one.weights is None or other.weights is None:
        return np.ones(1, np.bool_)
    return one.weights.view(np.uint32) == other.weights.view(np.uint32)


def _compared(bags: Sequence[JaggedIds]) -> tuple[Ints, Ints]:
    """As `distinct_rows`, one row after the other: for data made to share its hashes."""
    known: dict[bytes, int] = {}
    first: list[int] = []
    row = np.empty(len(bags[0].lengths), np.int64)
    for sample in range(len(row)):
        one = [each.take(np.array([sample])) for each in bags]
        key = b"".join(len(each.values).to_bytes(8, "little") + _bytes(each) for each in one)
        if key not in known:
            known[key] = len(first)
            first.append(sample)
        row[sample] = known[key]
    return np.array(first, np.int64), row


def _bytes(bag: JaggedIds) -> bytes:
    return bag.values.tobytes() + (b"" if bag.weights is None else bag.weights.tobytes())


@record
class DedupGroup:
    """Features that change together: their names, and samples for each distinct row (RecD's DedupeFactor).

    ids_before, ids_after: in all samples, and in distinct rows. mean_ids: in a bag.
    """

    features: tuple[str, ...]
    factor: float
    ids_before: int
    ids_after: int
    mean_ids: float

    def level(self, least: float) -> int:
        """Octave of the factor, 0 for the least one."""
        return min(LEVELS - 1, max(0, int(math.log2(max(self.factor / least, 1.0)))))


def dedup_groups(batch: Batch) -> tuple[DedupGroup, ...]:
    """All features of a batch in groups with the same distinct rows, those that are most often repeated first."""
    groups: dict[bytes, list[str]] = {}
    for name, bags in batch.ids.items():
        _, row = distinct_rows([bags])
        groups.setdefault(row.tobytes(), []).append(name)
    made = [counted(batch, names) for names in groups.values()]
    return tuple(sorted(made, key=lambda group: -group.factor))


def counted(batch: Batch, features: Sequence[str]) -> DedupGroup:
    """A group of features with its factor in a batch."""
    first, _ = distinct_rows([batch.ids[name] for name in features])
    before = sum(len(batch.ids[name].values) for name in features)
    return DedupGroup(
        features=tuple(features),
        factor=len(batch) / max(len(first), 1),
        ids_before=before,
        mean_ids=before / max(len(batch) * len(features), 1),
        ids_after=sum(_ids(batch.ids[name].lengths, first) for name in features),
    )


def chosen(groups: Sequence[DedupGroup], least: float = 1.0) -> tuple[DedupGroup, ...]:
    """The groups that may gain: that repeat, with so many samples for each distinct row, and more than an id a bag.

    The number of a row is as large as an id, so bags of one id have nothing to save but what crosses ranks.
    """
    return tuple(group for group in groups if group.factor >= least and group.factor > 1 and group.mean_ids > 1)


def _ids(lengths: "np.ndarray[tuple[int], np.dtype[np.int32]]", rows: Ints) -> int:
    return int(lengths[rows].sum(dtype=np.int64))
