"""What a loss is: a function that says how wrong the model is about each sample.

    def focal(logits, labels, *, gamma: float = 2.0):       # model.tasks: [{label: liked, loss: {name: mine:focal}}]
        return (1 - chance_of(logits, labels)) ** gamma * entropy_of(logits, labels)

It is given the samples of a rank's batch that have the label. What it returns of them is weighted and added up
(job/losses.py), so it may look at other samples of the batch, and never takes their mean.

n samples that have the label
"""

from typing import Any, Protocol

import torch


class SampleLoss(Protocol):
    """Losses of samples by what a model says of them."""

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor, /, **settings: Any) -> torch.Tensor:
        """The loss of each sample (n,). logits, labels: (n,). settings: as a run has them beside its name."""
        ...
