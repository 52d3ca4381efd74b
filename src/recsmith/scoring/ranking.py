"""Samples ranked beside those of their group, such as a user's: grouped AUC, hit rate, recall and NDCG at k.

    grouped AUC   the mean of groups' AUC, weighted by their samples (Zhou et al. 2018, arXiv 1706.06978, section 4.2)
    hit rate at k share of groups with a positive among the first k
    recall at k   share of a group's positives among its first k, the mean of groups
    NDCG at k     sum of 1 / log2(place + 2) of positives among the first k, over that of the best order (Jarvelin and
                  Kekalainen 2002), the mean of groups

Groups without a positive or without a negative have no order, and are left out. Equal scores share their mean place.

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
    """Which samples of a dataset are ranked together, and at which places k: `metrics.group`, `metrics.at` of a run.

    feature: of which they have the same id; None: a target and its `negatives` are ranked together.

    Raises:
        UsageError: the data has no such feature, or no groups of its own where none is named.
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
        """The group of each sample (n,); UsageError where one has no id of the feature, or several."""
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
    """Which samples of a dataset are ranked together; None where nobody asks for a ranking."""
    return Grouping(feature, at, dataset) if feature is not None or at else None


def ranking_scores(logits: Floats, labels: Floats, groups: Ints, at: Sequence[int]) -> RankingScores:
    """Scores of predictions of a label (n,), each beside those of its group (n,). Cost: two sorts."""
    if not len(logits) or not np.isfinite(logits).all():
        return RankingScores(groups=0, auc=None, at={})
    order = np.lexsort((-logits, groups))
    group, positive = np.unique(groups[order], return_inverse=True)[1], labels[order] > 0.5
    sizes, positives = np.bincount(group), np.bincount(group, weights=positive).astype(np.float64)
    place = _places(group, logits[order], sizes)
    counted = (positives > 0) & (positives < sizes)
    if not counted.any():
        return RankingScores(groups=0, auc=None, at={})
    below = np.bincount(group, weights=np.where(positive, sizes[group] - 1 - place, 0.0))
    pairs = np.maximum(positives * (sizes - positives), 1)
    auc = (below - positives * (positives - 1) / 2) / pairs
    return RankingScores(
        groups=int(counted.sum()),
        auc=float(np.average(auc[counted], weights=sizes[counted])),
        at={str(k): _at(k, group, positive, place, positives, counted) for k in at},
    )


def _places(group: Ints, logits: Floats, sizes: Ints) -> Floats:
    """The place of each sample in its group, from 0 on; equal scores have the mean of theirs."""
    within = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    alike = np.cumsum(np.append(True, (np.diff(group) != 0) | (np.diff(logits) != 0))) - 1
    return (np.bincount(alike, weights=within) / np.bincount(alike))[alike]


def _at(
    k: int, group: Ints, positive: np.ndarray, place: Floats, positives: Floats, counted: np.ndarray
) -> AtScores:  # fmt: skip
    first = positive & (place < k)
    hits = np.bincount(group, weights=first)
    gain = np.bincount(group, weights=np.where(first, 1 / np.log2(place + 2), 0.0))
    best = np.append(0, np.cumsum(1 / np.log2(np.arange(k) + 2)))[np.minimum(positives, k).astype(np.int64)]
    return AtScores(
        hit_rate=float((hits[counted] > 0).mean()),
        recall=float((hits[counted] / positives[counted]).mean()),
        ndcg=float((gain[counted] / best[counted]).mean()),
    )
