# pyright: basic
"""The network of all-to-alls in PyTorch, the same as costs/neural_comm.py in NumPy.

Legend: N exchanges, W ranks, x inputs, k figures of work, h hidden.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from recsmith.costs.neural_comm import BEND, INPUTS, REACH, WORK
from recsmith.learning.comm.data import Exchanges

HIDDEN, WIDTH = 32, 64  # units of the network of a rank, and of the network of all ranks; not tuned further
START_S = 1e-6  # seconds of alpha, at least, before training
LAST_LAYER = 0.3  # factor of the last layer's first weights: the network begins near its base
LEAST_SPREAD = 1e-3  # added to deviations of inputs, which may all be equal
ALPHA_QUANTILE = 0.02  # of the seconds beyond waiting; alpha begins at half of it, below nearly all


class CommNetwork(nn.Module):
    """Turns inputs and work of ranks into seconds; `fit_scale` starts it near the data."""

    centre: Tensor
    spread: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(len(INPUTS)))
        self.register_buffer("spread", torch.ones(len(INPUTS)))
        self.rank = nn.ModuleList([nn.Linear(len(INPUTS), HIDDEN), nn.Linear(HIDDEN, HIDDEN)])
        self.joint = nn.ModuleList([nn.Linear(3 * HIDDEN, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, len(WORK))])
        self.base = nn.Parameter(torch.zeros(len(WORK)))
        self.alpha = nn.Parameter(torch.zeros(1))  # logarithm
        with torch.no_grad():
            self.joint[-1].get_parameter("weight").mul_(LAST_LAYER)

    def fit_scale(self, blocks: Sequence[Exchanges]) -> None:
        """Start near the data: normalised inputs, unit costs that share the median time, alpha below all."""
        inputs = np.concatenate([block.load.inputs().reshape(-1, len(INPUTS)) for block in blocks])
        work = np.concatenate([block.load.work().reshape(-1, len(WORK)) for block in blocks])
        beyond = np.concatenate([(block.seconds - block.load.wait_s).ravel() for block in blocks])
        usual = max(float(np.median(beyond)), START_S)
        with torch.no_grad():
            self.centre.copy_(torch.as_tensor(inputs.mean(axis=0)))
            self.spread.copy_(torch.as_tensor(inputs.std(axis=0) + LEAST_SPREAD))
            self.base.copy_(torch.as_tensor(np.log(usual / len(WORK) / _usual(work))))
            self.alpha.fill_(math.log(max(float(np.quantile(beyond, ALPHA_QUANTILE)) / 2, START_S)))

    def forward(self, inputs: Tensor, work: Tensor, wait: Tensor) -> Tensor:
        """Seconds (N, W) of inputs (N, W, x), figures of work (N, W, k) and waits (N, W)."""
        bent = BEND * torch.tanh(self.factors(((inputs - self.centre) / self.spread).clamp(-REACH, REACH)) / BEND)
        return self.alpha.exp() + wait + ((self.base + bent).exp() * work).sum(dim=2)

    def factors(self, hidden: Tensor) -> Tensor:
        """Logarithms of factors (N, W, k), before they are bounded, of normalised inputs (N, W, x)."""
        for layer in self.rank:
            hidden = layer(hidden).relu()
        pooled = (hidden.mean(dim=1, keepdim=True), hidden.amax(dim=1, keepdim=True))
        flow = torch.cat([hidden, *(each.expand_as(hidden) for each in pooled)], dim=2)
        for layer in self.joint[:-1]:
            flow = layer(flow).relu()
        return self.joint[-1](flow)

    def tensors(self) -> dict[str, np.ndarray]:
        """The weights as files have them."""
        tensors = {"centre": self.centre, "spread": self.spread, "base": self.base, "alpha": self.alpha.exp()}
        for name, layers in (("rank", self.rank), ("joint", self.joint)):
            for i, layer in enumerate(layers):
                tensors |= {f"{name}_weight{i}": layer.weight, f"{name}_bias{i}": layer.bias}
        return {name: value.detach().numpy().astype(np.float32) for name, value in tensors.items()}


def _usual(work: np.ndarray) -> np.ndarray:
    """Medians of figures of work (k,); where bytes across hosts are mostly 0, the median of those inside hosts."""
    medians = np.median(work, axis=0)
    call, inside, across = np.split(medians, [1, (1 + len(WORK)) // 2])
    return np.maximum(np.concatenate([call, inside, np.where(across > 0, across, inside)]), 1.0)
