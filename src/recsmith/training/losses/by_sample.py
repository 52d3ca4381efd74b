"""The built-in losses that a task can name, each returning one loss per sample.

n samples that have the label
"""

import torch
from torch.nn import functional


def binary(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Binary cross entropy (n,)."""
    return functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")


def mse(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Squared errors (n,)."""
    return (logits - labels) ** 2


def pairwise(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean, over samples with a lower label, of -log of the chance that a sample is ranked above them (n,).

    The chance of a pair is the sigmoid of the difference of its logits (RankNet, Burges et al. 2005, equation 3). Pairs
    are within a rank's batch. The loss is zero for samples with no lower label in the batch.
    """
    above = (labels[:, None] > labels[None, :]).to(logits)  # (n, n): whether the second is below the first
    losses = functional.softplus(logits[None, :] - logits[:, None])
    return (above * losses).sum(1) / above.sum(1).clamp(min=1)
