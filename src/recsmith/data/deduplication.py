"""Deduplicated batches: each distinct bag of a feature once, and which of them every sample has (RecD).

The samples of a session repeat most of their user's features. Zhao et al., "RecD" (MLSys 2023, arXiv 2211.05239), keep
the distinct rows of a group of features, and for each sample the number of its row: inverse keyed jagged tensors. Equal
rows are found by a hash and then compared value by value, so that different rows with equal hashes stay separate.

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
FACTORS = 4096  # positions in a bag with a hash factor of their own; later positions reuse the factors from the first
REPEATED = 0.25  # share of bags equal to the one before, above which repeats are sought among neighbours first
SALTS = 8  # hash functions tried until no two different rows share a hash
SHIFT = np.uint64(32)
LEVELS = 3  # octaves of deduplication factors that are looked up separately; each level costs one more collective


def deduplicated(batch: Batch, groups: Sequence[Sequence[str]], *, nearby: bool = False) -> Batch:
    """The batch with each distinct row of a group of features once; `Batch.inverse` says which row a sample has.

    Rows that no sample uses, and equal rows from different parts of a joined batch, are removed. Cost: a pass over the
    ids.

    groups: features that change together; two rows of a group differ in at least one of its features. nearby: if many
    rows equal that of the sample before, remove only these repeats, which is half of the work.
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
    """The given rows of the bags; the same object if these are all rows in order."""
    count = len(bags.lengths)
    return bags if len(rows) == count and bool((rows == np.arange(count)).all()) else bags.take(rows)


def with_runs_once(batch: Batch, features: Sequence[str]) -> Batch:
    """The batch with each run of equal bags once, for the given features whose bags often repeat the one before."""
    ids, inverse = dict(batch.ids), dict(batch.inverse)
    for name in features:
        if name not in inverse and _often_repeats(ids[name]):
            changed = _differs(ids[name])
            ids[name], inverse[name] = ids[name].take(np.flatnonzero(changed)), np.cumsum(changed) - 1
    return replace(batch, ids=ids, inverse=inverse)


def expanded(batch: Batch, but: Sequence[str] = ()) -> Batch:
    """The batch with one bag per sample again, except for the features in `but`, which stay deduplicated."""
    kept = {name: row for name, row in batch.inverse.items() if name in but}
    if len(kept) == len(batch.inverse):
        return batch
    ids = {n: bags.take(batch.inverse[n]) if n in batch.inverse and n not in kept else bags
           for n, bags in batch.ids.items()}  # fmt: skip
    return replace(batch, ids=ids, inverse=kept)


def _expanded_unless(batch: Batch, groups: Sequence[Sequence[str]]) -> Batch:
    """The batch with one bag per sample, except for groups whose features already share one inverse."""
    alike = [group for group in groups if len({id(batch.inverse.get(name)) for name in group}) == 1]
    return expanded(batch, but=[name for group in alike for name in group])


def distinct_rows(bags: Sequence[JaggedIds], *, nearby: bool = False) -> tuple[Ints, Ints]:
    """(first, inverse): the first sample with each distinct row (U,), in this order; the row of each sample (B,).

    nearby: if many rows equal that of the sample before, only such repeats are found; other rows may occur twice.
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
    """Result of `distinct_rows` by hashing all rows, without use of their order."""
    for salt in range(SALTS):
        hashes = sum((_hashes(each, salt * len(bags) + i) for i, each in enumerate(bags)), np.zeros(1, np.uint64))
        first, row = numbered(hashes)
        again = np.flatnonzero(first[row] != np.arange(len(row)))  # rows with the hash of an earlier row
        if not len(again) or all(_equal(each.take(again), each.take(first[row[again]])).all() for each in bags):
            return first, row
    return _compared(bags)


def _often_repeats(bags: JaggedIds) -> bool:
    """Whether many bags seem to equal that of the sample before, judged quickly by their first ids alone."""
    ends = np.cumsum(bags.lengths, dtype=np.int64)
    some = bags.lengths > 0
    first = bags.values[(ends - bags.lengths)[some]]
    return len(first) > 1 and bool((first[1:] == first[:-1]).mean() > REPEATED)


def _differs(bags: JaggedIds) -> Bools:
    """Whether each bag differs from that of the sample before (B,); true for the first bag."""
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
    """A hash of each bag (B,), equal for equal bags: the sum of ids times random odd factors by position."""
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
    """Whether all bags have equal lengths, ids and weights, as one truth value or one per weight (.,)."""
    if not np.array_equal(one.lengths, other.lengths) or not np.array_equal(one.values, other.values):
        return np.zeros(1, np.bool_)
    if one.weights is None or other.weights is None:
        return np.ones(1, np.bool_)
    return one.weights.view(np.uint32) == other.weights.view(np.uint32)


def _compared(bags: Sequence[JaggedIds]) -> tuple[Ints, Ints]:
    """Result of `distinct_rows` by comparing row after row, for data crafted so that hashes collide."""
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
    """Features that change together: their names, and the number of samples per distinct row (RecD's DedupeFactor).

    ids_before, ids_after: number of ids in all samples, and in the distinct rows. mean_ids: mean number of ids in a
    bag.
    """

    features: tuple[str, ...]
    factor: float
    ids_before: int
    ids_after: int
    mean_ids: float

    def level(self, least: float) -> int:
        """Octave of the factor above `least`, from 0 to LEVELS - 1."""
        return min(LEVELS - 1, max(0, int(math.log2(max(self.factor / least, 1.0)))))


def dedup_groups(batch: Batch) -> tuple[DedupGroup, ...]:
    """All features of a batch in groups with the same distinct rows, in order of falling factor."""
    groups: dict[bytes, list[str]] = {}
    for name, bags in batch.ids.items():
        _, row = distinct_rows([bags])
        groups.setdefault(row.tobytes(), []).append(name)
    made = [counted(batch, names) for names in groups.values()]
    return tuple(sorted(made, key=lambda group: -group.factor))


def counted(batch: Batch, features: Sequence[str]) -> DedupGroup:
    """The group of these features, with its deduplication factor counted in a batch."""
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
    """The groups that deduplication may speed up: factor above 1 and at least `least`, and more than one id per bag.

    A row number is as large as an id, so with bags of one id only traffic between ranks could be saved.
    """
    return tuple(group for group in groups if group.factor >= least and group.factor > 1 and group.mean_ids > 1)


def _ids(lengths: "np.ndarray[tuple[int], np.dtype[np.int32]]", rows: Ints) -> int:
    return int(lengths[rows].sum(dtype=np.int64))
