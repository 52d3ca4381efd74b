"""Which weights of linear layers a sparse copy keeps: one threshold for all layers, on three measures added up.

Ye et al. 2020, "Adaptive Dense-to-Sparse Paradigm for Pruning Online Recommendation System with Non-Stationary Data"
(arXiv 2010.08655) learn the share of each layer, and join several measures, for each alone fails somewhere. Here: a
weight's size; its size times its gradient; and a mask that is learned, with a price on what it keeps that rises until
as much is gone as should be. Size and gradient are in units of their layer's mean.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

LEAST = 0.02  # of a layer's weights that are kept in any case: a layer without any would pass nothing on
MASK_RATE = 0.05  # of the steps of Adam that move a mask: 20 of them take it from 1 to 0
DEARER = 1.3  # times the price of a kept weight, after each step that leaves too many
FIRST = 0.1  # share of weights whose gradient the first price outweighs
GONE = 0.5  # below which a mask has let go of a weight
Weights = Mapping[str, torch.Tensor]
Losses = Callable[[Mapping[str, torch.Tensor], Any], torch.Tensor]


def masks_of(
    weights: Weights, others: Weights, losses: Losses, parts: Sequence[Any], *, share: float, steps: int,
    per_layer: bool = False,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """True where a weight is kept, by layer.

    Args:
        weights: of linear layers, by name.
        others: all other parameters, by name.
        losses: of the samples of a part, under parameters by name.
        parts: of the data.
        share: of weights that go.
        steps: of the learned mask, at most; 0 leaves it out.
        per_layer: the same share of each layer.
    """
    moved = _moved(weights, others, losses, parts)
    learned = _learned(weights, others, losses, parts, moved, share, steps) if steps else {}
    scores = {
        name: _in_means(each.abs()) + _in_means(moved[name]) + learned.get(name, torch.zeros_like(each))
        for name, each in weights.items()
    }
    if per_layer:
        return {name: each > _least_kept(each.flatten(), share) for name, each in scores.items()}
    for each in scores.values():
        most = max(1, round(LEAST * each.numel()))
        each.view(-1)[each.flatten().topk(most).indices] = torch.inf
    threshold = _least_kept(torch.cat([each.flatten() for each in scores.values()]), share)
    return {name: each > threshold for name, each in scores.items()}


def _least_kept(scores: torch.Tensor, share: float) -> torch.Tensor:
    """The largest score of those that go."""
    return scores.kthvalue(max(1, min(len(scores) - 1, round(share * len(scores))))).values


def _in_means(scores: torch.Tensor) -> torch.Tensor:
    return scores / scores.mean().clamp_min(torch.finfo(scores.dtype).tiny)


def _moved(weights: Weights, others: Weights, losses: Losses, parts: Sequence[Any]) -> dict[str, torch.Tensor]:
    """How much the loss would change without a weight, to the first order: the mean of |weight times gradient|."""
    total = {name: torch.zeros_like(each) for name, each in weights.items()}
    for part in parts:
        given = {name: each.detach().requires_grad_() for name, each in weights.items()}
        slopes = torch.autograd.grad(losses({**others, **given}, part).mean(), list(given.values()))
        for name, slope in zip(given, slopes, strict=True):
            total[name] += (given[name].detach() * slope).abs() / len(parts)
    return total


def _learned(
    weights: Weights, others: Weights, losses: Losses, parts: Sequence[Any], moved: Weights, share: float, steps: int
) -> dict[str, torch.Tensor]:
    """A mask (0..1) of each layer, learned under a price on what it keeps, which rises until the share is gone."""
    masks = {name: torch.ones_like(each, requires_grad=True) for name, each in weights.items()}
    adam = torch.optim.Adam(list(masks.values()), lr=MASK_RATE)
    every = torch.cat([each.flatten() for each in moved.values()])
    price = float(every.kthvalue(max(1, round(FIRST * len(every)))).values)
    for step in range(steps):
        adam.zero_grad()
        masked = {name: each.detach() * masks[name].clamp(0, 1) for name, each in weights.items()}
        kept = torch.stack([each.clamp(0, 1).sum() for each in masks.values()]).sum()
        (losses({**others, **masked}, parts[step % len(parts)]).mean() + price * kept).backward()
        adam.step()
        gone = sum(int((each < GONE).sum()) for each in masks.values()) / len(every)
        if gone >= share:
            break
        price = max(price * DEARER, torch.finfo(torch.float32).tiny)
    return {name: each.detach().clamp(0, 1) for name, each in masks.items()}
