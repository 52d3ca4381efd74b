"""The loss of a batch: binary cross entropy of all labels, a softmax over candidates, or the sum over tasks.

B samples, L labels, K candidates, n samples that have a label
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from recsmith._components import checked, find, parsed
from recsmith.data import DataSchema
from recsmith.errors import UsageError
from recsmith.training.batches import Place, TrainingBatch
from recsmith.training.losses import KIND
from recsmith.training.losses.protocol import SampleLoss
from recsmith.training.losses.settings import RunTask, tasks_of

Outcome = tuple[torch.Tensor, torch.Tensor, torch.Tensor, Place]  # loss, logits (B, L), labels (B, L), place


class Loss(nn.Module):
    """Binary cross entropy, averaged over a batch and its labels.

    A corrupt sample keeps its place in the batch with a loss of zero, so that nothing depends on which rank has read
    it. If samples have weights (`Batch.factors`), their losses are weighted before they are averaged.
    """

    def forward(self, logits: Any, batch: TrainingBatch) -> tuple[torch.Tensor, Outcome]:
        """(loss, outcome). logits: one for each label of a sample (B, L), in any shape; otherwise UsageError."""
        whole, weights = len(batch.place.samples), batch.place.samples.factors
        logits, labels = by_label(logits, batch)[:whole], batch.labels[:whole]
        if weights is not None:
            losses = nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
            loss = (losses * torch.from_numpy(weights).to(losses)[:, None]).sum() / batch.labels.numel()
        elif whole == len(batch.labels):
            loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
        else:
            losses = nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
            loss = losses / batch.labels.numel()
        return loss, (loss.detach(), logits.detach(), labels, batch.place)


ONE_CANDIDATE = (
    "model.loss is softmax, and samples have one candidate; give data.train `candidates: 32`, or more ids of the "
    "target's feature, its own first"
)


class SoftmaxLoss(Loss):
    """Cross entropy of a sample's first candidate against all its candidates, averaged over a batch.

    Corrupt samples are padded as in `Loss`. The loss of a sample is multiplied by its label, so that a sample with
    label 0 only serves as a candidate for others. The reported prediction of a sample is the log odds of its first
    candidate, so that the log loss equals this loss if all labels are 1; for label 0, log loss also counts the
    candidate's probability, which is not trained. A sample with one candidate, such as one to be ranked or served, has
    its own logit as prediction.
    """

    def forward(self, logits: Any, batch: TrainingBatch) -> tuple[torch.Tensor, Outcome]:
        """(loss, outcome). logits: of K candidates of each sample (B, K).

        Raises:
            UsageError: the model trains, and samples have one candidate; they have several labels; or the number of
                logits
                is no multiple of the number of samples.
        """
        count, whole, labels = len(batch.labels), len(batch.place.samples), batch.labels
        if labels.shape[1] != 1:
            raise UsageError(
                f"model.loss is softmax, and the data has {labels.shape[1]} labels; it has one, of the first candidate"
            )
        if logits.numel() == count and self.training:
            raise UsageError(ONE_CANDIDATE)
        if logits.numel() <= count or logits.numel() % count:
            return super().forward(logits, batch)
        chance = nn.functional.log_softmax(logits.float().reshape(count, -1)[:whole], dim=1)[:, :1]
        weights = batch.place.samples.factors
        losses = -chance * labels[:whole]
        losses = losses if weights is None else losses * torch.from_numpy(weights).to(chance)[:, None]
        clamped = chance.detach().double().clamp(max=-1e-12)
        odds = (clamped - torch.log(-torch.expm1(clamped))).float()
        loss = losses.sum() / labels.numel()
        return loss, (loss.detach(), odds, labels[:whole], batch.place)


def by_label(logits: Any, batch: TrainingBatch) -> torch.Tensor:
    """The logits of a batch in fp32 (B, L), from any shape with as many, or from a mapping by label name.

    Raises:
        UsageError: there are more or fewer, or their names are not those of the labels.
    """
    names = batch.place.samples.label_names
    if isinstance(logits, Mapping):
        logits = _named(logits, names)
    if logits.numel() != batch.labels.numel():
        raise UsageError(
            f"the model returns logits of shape {tuple(logits.shape)} for {len(batch.labels)} samples, and the data "
            f"has {len(names)} label{'s' * (len(names) > 1)} ({', '.join(names[:8])}); return one logit for each label "
            "of a sample, or name as many labels"
        )
    return logits.float().reshape(batch.labels.shape)


def _named(logits: Mapping[str, torch.Tensor], names: tuple[str, ...]) -> torch.Tensor:
    """Logits by label name as columns (B, L); UsageError if the names are not those of the labels."""
    odd = next((name for name in (*names, *logits) if name not in logits or name not in names), None)
    if odd is not None:
        lacks = "returns no logits of" if odd in names else "returns logits of"
        known = "which the data has" if odd in names else "which is no label of the data"
        raise UsageError(
            f"the model {lacks} '{odd}', {known}; it returns {', '.join(logits)}, and labels are {', '.join(names)}"
        )
    return torch.stack([logits[name].reshape(-1) for name in names], dim=1)


class TaskLosses(Loss):
    """The weighted sum of the losses of all tasks, each averaged over the batch.

    A missing label, and a corrupt sample, keep their place in the batch with a loss of zero, so that nothing depends on
    which rank has read them. Weights of samples (`Batch.factors`) multiply the losses of all tasks.
    """

    def __init__(self, tasks: Sequence[RunTask], schema: DataSchema) -> None:
        super().__init__()
        self.tasks = tasks_of(tasks, schema)
        self.missing = schema.missing_labels
        self.losses = [_loss_of(each) for each in self.tasks]

    def forward(self, logits: Any, batch: TrainingBatch) -> tuple[torch.Tensor, Outcome]:
        """(loss, outcome). logits: one for each label (B, L) in any shape, or by label name; otherwise UsageError."""
        whole, weights = len(batch.place.samples), batch.place.samples.factors
        logits, labels = by_label(logits, batch)[:whole], batch.labels[:whole]
        by_sample = None if weights is None else torch.from_numpy(weights).to(logits)
        total = logits.new_zeros(())
        for at, (task, loss) in enumerate(zip(self.tasks, self.losses, strict=True)):
            said, known, weight = logits[:, at], labels[:, at], by_sample
            if task.label in self.missing:
                there = ~known.isnan()
                said, known, weight = said[there], known[there], weight if weight is None else weight[there]
            losses = _of_samples(loss(said, known), known, task)
            losses = losses if weight is None else losses * weight
            total = total + task.weight * losses.sum() / len(batch.labels)
        return total, (total.detach(), logits.detach(), labels, batch.place)


def _loss_of(task: RunTask) -> SampleLoss:
    """The function of a task's loss, with its settings."""
    name, settings = parsed(task.loss, "model.tasks")
    found = find(KIND, name)
    return partial(found, **checked(found, settings, f"model.tasks: loss of '{task.label}'", given=2))


def _of_samples(losses: Any, labels: torch.Tensor, task: RunTask) -> torch.Tensor:
    """The result of a loss function; UsageError if it is not one loss for each sample."""
    if not isinstance(losses, torch.Tensor) or losses.shape != labels.shape:
        found = f"shape {tuple(losses.shape)}" if isinstance(losses, torch.Tensor) else type(losses).__name__
        raise UsageError(
            f"the loss of task '{task.label}' ({task.loss_name}) returned {found} for {len(labels)} samples; return "
            "the loss of each sample, (n,), not their mean"
        )
    return losses
