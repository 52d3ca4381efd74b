"""The interface of a loss: a function that returns the loss of each sample.

    def focal(logits, labels, *, gamma: float = 2.0):       # model.tasks: [{label: liked, loss: {name: mine:focal}}]
        return (1 - chance_of(logits, labels)) ** gamma * entropy_of(logits, labels)

It is given the samples of a rank's batch that have the label. Its results are weighted and added up (job/losses.py), so
it may use other samples of the batch, but must not average over them.

n samples that have the label
"""

from typing import Any, Protocol

import torch


class SampleLoss(Protocol):
    """Losses of samples from the model's logits."""

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor, /, **settings: Any) -> torch.Tensor:
        """The loss of each sample (n,). logits, labels: (n,). settings: settings from the run's mapping."""
        ...
