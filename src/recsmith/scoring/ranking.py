"""Scores of rankings within groups of samples, such as a user's: grouped AUC, hit rate, recall and NDCG at k.

    grouped AUC   mean of groups' AUC, weighted by their samples (Zhou et al. 2018, arXiv 1706.06978, section 4.2)
    hit rate at k share of groups with a positive among the first k
    recall at k   share of a group's positives among its first k, as the mean over groups
    NDCG at k     sum of 1 / log2(place + 2) of positives among the first k / that of the best order (Jarvelin and
                  Kekalainen 2002), as the mean over groups; places count from 0

Groups without a positive or without a negative are left out. Samples with equal scores all get their mean place. If
samples have weights, a pair in grouped AUC counts with the product of both weights, and a group with the sum of its
weights; recall is the share of the positives' weights, and a positive's gain in NDCG is its weight. A sample takes one
place whatever its weight, and a sample of weight 0 is no hit.

n samples, G groups
"""

from collections.abc import Sequence

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.data import Batch, Dataset
from recsmith.data.deduplication import expanded
from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.scoring.scores import AtScores, RankingScores


class Grouping:
    """Which samples of a dataset are ranked together, and for which k: `metrics.group` and `metrics.at` of a run.

    feature: samples with the same id of this feature form a group; None: a target and its `negatives` do.

    Raises:
        UsageError: the data has no such feature, or no feature is named and the data has no negatives.
    """

    def __init__(self, feature: str | None, at: Sequence[int], dataset: Dataset) -> None:
        self.feature, self.at = feature, at
        self.samples_per_target = dataset.samples_per_target
        names = [each.name for each in dataset.schema.features]
        if self.feature is None and self.samples_per_target == 1:
            raise UsageError(
                f"metrics.at is {', '.join(map(str, self.at))}, and data.test does not say which samples are ranked "
                "together; name a feature of which they have the same id (metrics.group), or give targets `negatives`"
            )
        if self.feature is not None and self.feature not in names:
            hint = did_you_mean(self.feature, names)
            raise UsageError(f"metrics.group: data.test has no feature '{self.feature}'{hint}")

    def of(self, samples: Batch) -> Ints:
        """The group of each sample (n,); UsageError if a sample does not have exactly one id of the feature."""
        if self.feature is None:
            return samples.sample_ids // self.samples_per_target
        bags = expanded(samples).ids[self.feature]
        odd = np.flatnonzero(bags.lengths != 1)
        if len(odd):
            raise UsageError(
                f"metrics.group is '{self.feature}', of which a sample has {int(bags.lengths[odd[0]])} ids; name a "
                "feature with one id a sample"
            )
        return bags.values.astype(np.int64)


def grouping(feature: str | None, at: Sequence[int], dataset: Dataset) -> Grouping | None:
    """Which samples of a dataset are ranked together; None if neither a feature nor any k is given."""
    return Grouping(feature, at, dataset) if feature is not None or at else None


def ranking_scores(
    logits: Floats, labels: Floats, groups: Ints, at: Sequence[int], weights: Floats | None = None
) -> RankingScores:
    """Ranking scores of a label's predictions within groups. Cost: three sorts.

    Args:
        logits: predictions (n,).
        labels: true labels (n,); above 0.5 is positive.
        groups: the group of each sample (n,).
        at: the values of k.
        weights: weights of the samples (n,); None: 1.
    """
    if not len(logits) or not np.isfinite(logits).all():
        return RankingScores(groups=0, auc=None, at={})
    order = np.lexsort((-logits, groups))
    group, positive = np.unique(groups[order], return_inverse=True)[1], labels[order] > 0.5
    weight = np.ones(len(order)) if weights is None else weights[order].astype(np.float64)
    wanted, rest = weight * positive, weight * ~positive
    positives: Floats = np.bincount(group, weights=wanted).astype(np.float64)
    negatives: Floats = np.bincount(group, weights=rest).astype(np.float64)
    counted = (positives > 0) & (negatives > 0)
    if not counted.any():
        return RankingScores(groups=0, auc=None, at={})
    alike = np.cumsum(np.append(True, (np.diff(group) != 0) | (np.diff(logits[order]) != 0))) - 1
    place = _places(group, alike)
    pairs = np.bincount(group, weights=wanted * _below(group, alike, rest, negatives))
    auc = pairs / np.where(counted, positives * negatives, 1.0)
    return RankingScores(
        groups=int(counted.sum()),
        auc=float(np.average(auc[counted], weights=(positives + negatives)[counted])),
        at={str(k): _at(k, group, wanted, place, positives, counted) for k in at},
    )


def _places(group: Ints, alike: Ints) -> Floats:
    """The place of each sample in its group, from 0; samples with the same `alike`, of equal scores, get their mean."""
    within = _counted_on(group).astype(np.float64)
    return (np.bincount(alike, weights=within) / np.bincount(alike))[alike]


def _counted_on(group: Ints) -> Ints:
    """The samples of each group numbered from 0; samples must be sorted by group."""
    sizes = np.bincount(group)
    return np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _below(group: Ints, alike: Ints, rest: Floats, negatives: Floats) -> Floats:
    """The weight of the negatives in its group that each sample is ranked above; those of equal score count half."""
    equal = np.bincount(alike, weights=rest)
    until = (np.cumsum(equal) - equal / 2)[alike]  # includes all earlier groups
    return np.cumsum(negatives)[group] - until


def _at(
    k: int, group: Ints, wanted: Floats, place: Floats, positives: Floats, counted: np.ndarray
) -> AtScores:  # fmt: skip
    """Scores of the first k. wanted: weights of positives, 0 for negatives (n,). positives: their sums (G,)."""
    first = np.where(place < k, wanted, 0.0)
    found = np.bincount(group, weights=first)
    gain = np.bincount(group, weights=first / np.log2(place + 2))
    heaviest = wanted[np.lexsort((-wanted, group))]
    rank = _counted_on(group)
    best = np.bincount(group, weights=np.where(rank < k, heaviest, 0.0) / np.log2(rank + 2))
    return AtScores(
        hit_rate=float((found[counted] > 0).mean()),
        recall=float((found[counted] / positives[counted]).mean()),
        ndcg=float((gain[counted] / best[counted]).mean()),
    )
