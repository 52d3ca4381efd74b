"""Levels from buckets of a feature's ids: whether ids are read in other shares, and whether they predict the label.

Ids that are joined to wrong rows are read as often as before, but they no longer differ in their labels. So the labels
of a look are compared with the mean label that each bucket had before.

F features, K buckets, D dense columns
"""

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.errors import CorruptFile
from recsmith.streaming.detectors.plain_state import PlainState, by_places
from recsmith.streaming.hot_sets import packed, unpacked
from recsmith.streaming.job_sums import BUCKETS

KEPT = 0.97  # factor by which the weight of past looks decays at each look
LOOKS, LABEL_LOOKS = 8, 16  # looks that are needed before shares, and labels, of buckets are judged
PRIOR = 20.0  # samples with the mean label that are added to each bucket
LEAST = 1e-3  # least standard deviation of labels, below which agreement with them is undefined


class IdShares(PlainState):
    """The usual numbers of ids, and their labels, in the buckets of each feature."""

    STATE = ("_kept", "_seen")

    def __init__(self, features: int) -> None:
        self._sums = np.zeros((features, 2, BUCKETS))  # sums of ids and of labels, with decaying weights
        self._looks = np.zeros(features, np.int64)  # number of looks, up to LABEL_LOOKS

    def look(self, buckets: Floats, judged: Floats) -> tuple[Floats, Floats]:
        """(shift of shares (F,), agreement of labels with ids in deviations (F,)); NaN if not known yet.

        buckets: sums of a look (F, 2, K). judged: number of samples with a label, sum of labels, sum of squares (3,).
        """
        count, known = buckets[:, 0], self._sums[:, 0]
        ids = count.sum(1)
        there = (ids > 0) & (self._looks >= LOOKS) & (known.sum(1) > 0)
        other = np.where(there, _moved(count, ids, known), np.nan)
        with_label = np.where(there & (self._looks >= LABEL_LOOKS), self._agreement(buckets, judged), np.nan)
        self._sums = KEPT * self._sums + buckets
        self._looks = np.minimum(self._looks + 1, LABEL_LOOKS)
        return other, with_label

    def with_features(self, places: Ints) -> "IdShares":
        """The shares of reordered features. places: the former row of each feature, -1 for new ones."""
        made, fresh = IdShares(len(places)), IdShares(1)
        made._sums = by_places(self._sums, places, fresh._sums)
        made._looks = by_places(self._looks, places, fresh._looks)
        return made

    def _agreement(self, buckets: Floats, judged: Floats) -> Floats:
        """How far labels agree with the past labels of their buckets, in deviations of what chance gives (F,)."""
        count, labels = buckets[:, 0], buckets[:, 1]
        known, had = self._sums[:, 0], self._sums[:, 1]
        variance = _label(judged)[1]
        if not variance > LEAST * LEAST or not known.size:
            return np.full(len(buckets), np.nan)
        usual = had.sum(1, keepdims=True) / np.maximum(known.sum(1, keepdims=True), 1)
        more = (had + PRIOR * usual) / (known + PRIOR) - usual
        ids = np.maximum(count.sum(1, keepdims=True), 1)
        more = more - (more * count).sum(1, keepdims=True) / ids
        own = labels.sum(1, keepdims=True) / ids
        found, spread = (more * (labels - own * count)).sum(1), np.sqrt((more * more * count).sum(1) * variance)
        return np.where(spread > 0, found / np.maximum(spread, 1e-300), np.nan)

    @property
    def _seen(self) -> list[int]:
        return self._looks.tolist()

    @_seen.setter
    def _seen(self, looks: list[int]) -> None:
        if len(looks) != len(self._looks):
            raise CorruptFile("state of a watched job counts looks of other features; it is damaged")
        self._looks = np.array(looks, np.int64)

    @property
    def _kept(self) -> str:
        return packed(self._sums.ravel().view(np.int64))

    @_kept.setter
    def _kept(self, text: str) -> None:
        found = unpacked(text).view(np.float64)
        if found.size != self._sums.size or not np.isfinite(found).all():
            raise CorruptFile("state of a watched job holds buckets of other features, or no numbers; it is damaged")
        self._sums = found.reshape(self._sums.shape).copy()


def _moved(count: Floats, ids: Floats, known: Floats) -> Floats:
    """The sum over buckets of (share - usual)^2 / usual, minus its expected value by chance (F,)."""
    usual = (known + 1) / (known.sum(1, keepdims=True) + BUCKETS)
    expected = usual * ids[:, None]
    squares = ((count - expected) ** 2 / np.maximum(expected, 1e-300)).sum(1)
    return (squares - (BUCKETS - 1)) / np.maximum(ids, 1)


def _label(judged: Floats) -> tuple[float, float]:
    """(mean, variance) of the labels of a look."""
    count = max(float(judged[0]), 1.0)
    mean = float(judged[1]) / count
    return mean, float(judged[2]) / count - mean * mean


def agreement(dense: Floats, judged: Floats) -> Floats:
    """Agreement of labels with dense columns in deviations (D,): correlation * square root of the number of samples."""
    count, (mean, variance) = max(float(judged[0]), 1.0), _label(judged)
    total, squares, _, with_label = dense.T
    spread = squares / count - (total / count) ** 2
    both = with_label / count - mean * total / count
    scale = variance * spread
    fine = np.isfinite(scale) & (spread > 1e-12 * (1 + (total / count) ** 2)) & (variance > LEAST * LEAST)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(fine, np.sqrt(count) * both / np.sqrt(np.where(fine, scale, 1.0)), np.nan)
