"""Computes normalized entropy, log loss, calibration and AUC of predictions, by the formulas of torchrec.metrics.

n predictions, L labels; bins of predicted probability
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.distributed as dist
from torchrec.metrics.auprc import compute_auprc
from torchrec.metrics.calibration import compute_calibration
from torchrec.metrics.ne import compute_ne, get_ne_states

from recsmith.data import Batch
from recsmith.data.batch import joined_weights
from recsmith.scoring.ranking import Grouping, ranking_scores
from recsmith.scoring.scores import LabelScores, Scores, scores_of

ETA = 1e-12  # as in torchrec.metrics: probabilities are clipped to this distance from 0 and 1
BINS = 2**14  # bins of training's AUC; predictions in one bin count as equal; trade-off: more cost time per log line
SUMS = ("cross_entropy_sum", "weighted_num_samples", "pos_labels", "neg_labels", "predicted", "squared_error",
        "known", "rows")  # fmt: skip


Predictions = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # logits, labels and weights of a label (n,)


@dataclass(frozen=True)
class ScoredLabels:
    """The labels of predictions. said: names of labels whose value the model predicts itself, instead of a logit.

    pr_auc: whether tests also report average precision.
    """

    names: tuple[str, ...]
    said: tuple[str, ...] = ()
    pr_auc: bool = False

    @property
    def numbers(self) -> list[bool]:
        """For each label, whether the model predicts its value itself."""
        return [name in self.said for name in self.names]

    def scores(self, sums: torch.Tensor, found: Sequence[LabelScores]) -> Scores:
        """The scores over all labels. sums: SUMS of each label. found: the scores of each label."""
        rows = int(sums[0, SUMS.index("rows")])
        return scores_of(rows, dict(zip(self.names, found, strict=True)))


class Window:
    """Predictions of this rank since the last line of the log.

    labels: their names, and which ones the model predicts as values. grouping: which samples are ranked together. A
    label of NaN is missing, and its prediction is left out. All scores use the samples' weights.

    Predictions are copied into one tensor: keeping a tensor per step fragments the memory that steps free and reuse,
    and made steps on a CPU 5 % to 7 % longer.
    """

    def __init__(self, device: torch.device, labels: ScoredLabels, grouping: Grouping | None = None) -> None:
        self.labels, self.grouping = labels, grouping
        self._groups: list[torch.Tensor] = []
        self._kept = torch.empty(3, len(labels.names), 0, device=device)  # logits, labels, weights (3, L, room)
        self._count = 0  # number of predictions kept

    def add(self, logits: torch.Tensor, labels: torch.Tensor, samples: Sequence[Batch] = ()) -> None:
        """Keep the predictions of batches (B, L). samples: the batches, for weights of their first B samples; (): 1."""
        begin, end = self._count, self._count + len(logits)
        if end > self._kept.shape[2]:
            larger = torch.empty(3, len(self.labels.names), 2 * end, device=logits.device)
            larger[..., :begin] = self._kept[..., :begin]
            self._kept = larger
        self._kept[0, :, begin:end] = logits.T
        self._kept[1, :, begin:end] = labels.T
        weights = joined_weights(samples)
        self._kept[2, :, begin:end] = 1.0 if weights is None else torch.from_numpy(weights[: len(logits)])
        self._count = end

    def add_groups(self, samples: Batch, count: int) -> None:
        """Keep the groups of the first `count` samples of a batch, if samples are ranked."""
        if self.grouping is not None:
            self._groups.append(torch.from_numpy(self.grouping.of(samples.take(np.arange(count)))))

    def scores(self) -> Scores:
        """Scores of all ranks' predictions, with a binned AUC; call it on every rank. Empties the window."""
        kinds = self.labels.numbers
        of_each = [(_sums(*pair, own), _histogram(*pair)) for pair, own in zip(self._whole(), kinds, strict=True)]
        sums = torch.stack([torch.cat([each, histogram.flatten()]) for each, histogram in of_each])
        dist.all_reduce(sums)
        bins = [each[len(SUMS) :].view(2, BINS) for each in sums]
        found = [_scores(each.cpu(), _binned_auc(part), own)
                 for each, part, own in zip(sums[:, : len(SUMS)], bins, kinds, strict=True)]  # fmt: skip
        return self.labels.scores(sums, found)

    def exact_scores(self) -> Scores:
        """Scores of all ranks' predictions, with an exact AUC, for which every rank gathers all predictions."""
        pairs: list[Predictions] = [(_gathered(a), _gathered(b), _gathered(c)) for a, b, c in self._whole()]
        sums, found = _exact(pairs, self.labels)
        if self.grouping is not None:
            groups = _gathered(torch.cat([torch.zeros(0, dtype=torch.int64), *self._groups]).to(self._kept.device))
            found = [self._ranked(each, pair, groups) for each, pair in zip(found, pairs, strict=True)]
        return self.labels.scores(sums, found)

    def _ranked(self, found: LabelScores, pair: Predictions, groups: torch.Tensor) -> LabelScores:
        assert self.grouping is not None
        there = ~pair[1].isnan()
        scored, wanted, weights = (each[there].double().cpu().numpy() for each in pair)
        made = ranking_scores(scored, wanted, groups[there].cpu().numpy(), self.grouping.at, weights)
        return replace(found, ranking=made)

    def _whole(self) -> list[Predictions]:
        """The kept predictions of each label; empties the window."""
        logits, labels, weights = self._kept[..., : self._count]
        self._count = 0
        return list(zip(logits, labels, weights, strict=True))


def _known(logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> Predictions:
    """The predictions whose label is not missing."""
    there = ~labels.isnan()
    return logits[there], labels[there], weights[there]


def _sums(logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor, number: bool = False) -> torch.Tensor:
    """SUMS of predictions, in double precision. number: whether predictions are values of the label, not logits."""
    rows = logits.new_full((), len(labels), dtype=torch.double)
    said, labels, weights = (each.double() for each in _known(logits, labels, weights))
    nothing, known = torch.zeros_like(rows), rows * 0 + len(labels)
    if number:
        squared = (weights * (said - labels) ** 2).sum()
        return torch.stack([nothing, weights.sum(), *[nothing] * 3, squared, known, rows])
    predictions = said.sigmoid()
    states = get_ne_states(labels, predictions.clone(), weights, ETA)
    predicted = (weights * predictions).sum()
    return torch.stack([*(states[name] for name in SUMS[:4]), predicted, nothing, known, rows])


def _exact(pairs: Sequence[Predictions], labels: ScoredLabels) -> tuple[torch.Tensor, list[LabelScores]]:
    """(SUMS, scores with the exact AUC) of the predictions of each label."""
    sums = torch.stack([_sums(*pair, own) for pair, own in zip(pairs, labels.numbers, strict=True)]).cpu()
    found = [_scores(each, None if own else exact_auc(*_known(*pair)), own)
             for each, pair, own in zip(sums, pairs, labels.numbers, strict=True)]  # fmt: skip
    if labels.pr_auc:
        found = [each if own else replace(each, pr_auc=_pr_auc(*_known(*pair)))
                 for each, pair, own in zip(found, pairs, labels.numbers, strict=True)]  # fmt: skip
    return sums, found


def _pr_auc(logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> float | None:
    """Average precision by torchrec.metrics: the sum over thresholds of precision * increase of recall."""
    wanted, weights = (labels > 0.5).double(), weights.double()
    if not bool((wanted * weights).any()) or not bool(torch.isfinite(logits).all()):
        return None
    return float(compute_auprc(1, logits.double()[None], wanted[None], weights[None]))


def _scores(sums: torch.Tensor, auc: float | None, number: bool = False) -> LabelScores:
    entropy, count, positive, negative, predicted, squared, known, rows = sums.double()
    lacking = int(known) if known != rows else None
    if number:
        rmse = _finite((squared / count).sqrt()) if count else None
        return LabelScores(logloss=None, ne=None, calibration=None, auc=None, samples=lacking, rmse=rmse)
    both = bool(positive) and bool(negative)
    return LabelScores(
        logloss=_finite(entropy * math.log(2) / count) if count else None,
        ne=_finite(compute_ne(entropy, count, positive, negative, ETA)) if both else None,
        calibration=_finite(compute_calibration(predicted, positive)) if positive else None,
        auc=auc if bool(torch.isfinite(entropy)) else None,  # a prediction that is no number has no place in an order
        samples=lacking,
    )


def _finite(value: torch.Tensor) -> float | None:
    """The value of a score; None if it is not finite."""
    return float(value) if bool(torch.isfinite(value)) else None


def _histogram(logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Sums of the weights of negative and positive labels in bins of predicted probability (2, BINS)."""
    logits, labels, weights = _known(logits, labels, weights)
    bins = (logits.sigmoid() * BINS).long().clamp_(0, BINS - 1)
    counts = torch.bincount(bins + BINS * (labels > 0.5), weights.double(), minlength=2 * BINS)
    return counts.view(2, BINS)


def _binned_auc(histogram: torch.Tensor) -> float | None:
    """Probability that a positive's bin is above a negative's; equal bins count half. None if there are no pairs."""
    negative, positive = histogram
    below = negative.cumsum(0) - negative
    pairs = negative.sum() * positive.sum()
    return float((positive * (below + negative / 2)).sum() / pairs) if pairs else None


def exact_auc(logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor | None = None) -> float | None:
    """AUC without binning; only bitwise equal predictions count half. weights: of the samples; None: 1."""
    weights = torch.ones_like(labels) if weights is None else weights
    order = logits.argsort()
    _, group = torch.unique_consecutive(logits[order], return_inverse=True)
    weights = weights[order].double()
    positive = torch.bincount(group, weights=labels[order].double() * weights)
    every = torch.bincount(group, weights=weights)
    return _binned_auc(torch.stack([every - positive, positive]))


def exact_scores(
    logits: torch.Tensor, labels: torch.Tensor, names: Sequence[str], samples: Sequence[Batch] = ()
) -> Scores:
    """Scores of predictions that are held in one process, for labels that are probabilities.

    Args:
        logits: predictions (n, L).
        labels: true labels (n, L).
        names: names of the labels.
        samples: the batches of the predictions, for the samples' weights; (): weights are 1.
    """
    scored, found = ScoredLabels(tuple(names)), joined_weights(samples)
    weights = torch.ones(len(labels)) if found is None else torch.from_numpy(found)
    pairs = [(said, known, weights) for said, known in zip(logits.T, labels.T, strict=True)]
    return scored.scores(*_exact(pairs, scored))


def _gathered(values: torch.Tensor) -> torch.Tensor:
    """The values of all ranks, concatenated in order of ranks."""
    counts = torch.zeros(dist.get_world_size(), dtype=torch.int64, device=values.device)
    counts[dist.get_rank()] = len(values)
    dist.all_reduce(counts)
    padded = torch.zeros(int(counts.max()), dtype=values.dtype, device=values.device)
    padded[: len(values)] = values
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[:count] for part, count in zip(parts, counts.tolist(), strict=True)])
