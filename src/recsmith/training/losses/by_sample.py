"""The losses that a task names, each of single samples.

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
    """For each sample, -log of the chance that it is above one with a lower label, the mean of these (n,).

    The chance of a pair is the sigmoid of the difference of its logits (RankNet, Burges et al. 2005, equation 3). Pairs
    are those of a rank's batch. Zero for samples that none is below.
    """
    above = (labels[:, None] > labels[None, :]).to(logits)  # (n, n): whether the second is below the first
    losses = functional.softplus(logits[None, :] - logits[:, None])
    return (above * losses).sum(1) / above.sum(1).clamp(min=1)
