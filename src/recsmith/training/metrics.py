"""What is told of predictions: normalized entropy, log loss, calibration and AUC, by torchrec.metrics' formulas.

n predictions; bins of predicted probability
"""

import math
from dataclasses import replace

import torch
import torch.distributed as dist
from torchrec.metrics.calibration import compute_calibration
from torchrec.metrics.ne import compute_ne, get_ne_states

from recsmith.data import Dataset
from recsmith.training.batches import evaluation_batches
from recsmith.training.scores import Scores
from recsmith.training.sharded import ShardedJob
from recsmith.training.tables.features import Features

ETA = 1e-12  # of torchrec.metrics: probabilities stay this far from 0 and 1
BINS = 2**14  # of training's AUC: what falls into one counts as equal; trade-off: finer ones cost time at each line
SUMS = ("cross_entropy_sum", "weighted_num_samples", "pos_labels", "neg_labels", "predicted")


class Window:
    """Predictions of this rank since the last line was told.

    They are copied to one place: a tensor of each step that is kept lies among the blocks that steps free and take
    again, and made steps on a CPU 5 % to 7 % longer.
    """

    def __init__(self, device: torch.device) -> None:
        self._kept = torch.empty(2, 0, device=device)  # logits and labels (2, room)
        self._count = 0  # how many of them are there

    def add(self, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Keep the first label's predictions of a batch (B, L)."""
        begin, end = self._count, self._count + len(logits)
        if end > self._kept.shape[1]:
            larger = torch.empty(2, 2 * end, device=logits.device)
            larger[:, :begin] = self._kept[:, :begin]
            self._kept = larger
        self._kept[0, begin:end] = logits[:, 0]
        self._kept[1, begin:end] = labels[:, 0]
        self._count = end

    def scores(self) -> Scores:
        """Scores of all ranks' predictions, AUC by bins; called on every rank, and the window is empty afterwards."""
        logits, labels = self._whole()
        sums = torch.cat([_sums(logits, labels), _histogram(logits, labels).flatten()])
        dist.all_reduce(sums)
        return _scores(sums[: len(SUMS)].cpu(), _binned_auc(sums[len(SUMS) :].view(2, BINS)))

    def exact_scores(self) -> Scores:
        """The same with the exact AUC, for which every rank gets all predictions."""
        logits, labels = (_gathered(part) for part in self._whole())
        return _scores(_sums(logits, labels).cpu(), exact_auc(logits, labels))

    def _whole(self) -> tuple[torch.Tensor, torch.Tensor]:
        logits, labels = self._kept[:, : self._count]
        self._count = 0
        return logits, labels


def _sums(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """SUMS of some predictions, in double precision."""
    predictions, labels = logits.double().sigmoid(), labels.double()
    states = get_ne_states(labels, predictions.clone(), torch.ones_like(labels), ETA)
    return torch.stack([*(states[name] for name in SUMS[:4]), predictions.sum()])


def _scores(sums: torch.Tensor, auc: float) -> Scores:
    entropy, count, positive, negative, predicted = sums.double()
    if not count:
        return Scores(samples=0, logloss=0.0, ne=0.0, calibration=0.0, auc=0.5)
    return Scores(
        samples=int(count),
        logloss=float(entropy * math.log(2) / count),
        ne=_finite(compute_ne(entropy, count, positive, negative, ETA)) if positive and negative else 0.0,
        calibration=_finite(compute_calibration(predicted, positive)),
        auc=auc,
    )


def _finite(value: torch.Tensor) -> float:
    """A score, or 0 where all labels are equal and it has no meaning."""
    return float(value) if bool(torch.isfinite(value)) else 0.0


def _histogram(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """(2, BINS): negative and positive labels by predicted probability."""
    bins = (logits.sigmoid() * BINS).long().clamp_(0, BINS - 1)
    counts = torch.bincount(bins + BINS * (labels > 0.5), minlength=2 * BINS)
    return counts.view(2, BINS).double()


def _binned_auc(histogram: torch.Tensor) -> float:
    """The chance that a positive's prediction is above a negative's; equal ones count half."""
    negative, positive = histogram
    below = negative.cumsum(0) - negative
    pairs = negative.sum() * positive.sum()
    return float((positive * (below + negative / 2)).sum() / pairs) if pairs else 0.5


def exact_auc(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """The same without bins: predictions that are equal bit for bit count half."""
    order = logits.argsort()
    _, group = torch.unique_consecutive(logits[order], return_inverse=True)
    positive = torch.bincount(group, weights=labels[order].double())
    every = torch.bincount(group).double()
    return _binned_auc(torch.stack([every - positive, positive]))


def exact_scores(logits: torch.Tensor, labels: torch.Tensor) -> Scores:
    """Scores of predictions that lie in one process (n,)."""
    return _scores(_sums(logits, labels), exact_auc(logits, labels))


def _gathered(values: torch.Tensor) -> torch.Tensor:
    """The values of all ranks, in order of ranks."""
    counts = torch.zeros(dist.get_world_size(), dtype=torch.int64, device=values.device)
    counts[dist.get_rank()] = len(values)
    dist.all_reduce(counts)
    padded = torch.zeros(int(counts.max()), device=values.device)
    padded[: len(values)] = values
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[:count] for part, count in zip(parts, counts.tolist(), strict=True)])


def score(job: ShardedJob, dataset: Dataset, features: Features, batch_size: int) -> Scores:
    """Scores on all samples of a dataset, with the exact AUC; called on every rank."""
    return score_each(job, dataset, features, batch_size, models=1)[0]


def score_each(
    job: ShardedJob, dataset: Dataset, features: Features, batch_size: int, *, models: int
) -> list[Scores]:  # fmt: skip
    """The same of several models that are called as one, whose logits are (models, B, L)."""
    windows = [Window(job.device) for _ in range(models)]
    job.model.eval()
    with torch.no_grad():
        for batch, count in evaluation_batches(
            dataset, features, rank=dist.get_rank(), ranks=dist.get_world_size(), batch_size=batch_size
        ):
            job.rows.prefetch(batch)
            _, (_, logits, labels, _) = job.model(batch.to(job.device))
            for window, each in zip(windows, logits.view(models, *labels.shape), strict=True):
                window.add(each[:count], labels[:count])
    job.model.train()
    found = [window.exact_scores() for window in windows]
    return [replace(each, corrupt=(dataset.num_samples or each.samples) - each.samples) for each in found]
