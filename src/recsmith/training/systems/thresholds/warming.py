"""A warm-up for thresholded gradients: all are sent at first, and a quarter as many each time that the loss levels off.

The steps of the share are those of Lin et al., "Deep Gradient Compression" (ICLR 2018, arXiv 1712.01887), which lowers
it every epoch. Here it is lowered after the first window of steps in which the loss of all ranks fell by little.
"""

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

Ladder = tuple[int, float, float]


class WarmUp:
    """The share of gradients to send in a step, the same on every rank.

    target: the final share. ladder: steps of a window, the share by which its loss must fall, and the divisor of the
    share.
    """

    def __init__(self, target: float, ladder: Ladder) -> None:
        self.target, self.share = target, 1.0
        self.window, self.level, self.rung = ladder
        self.before, self.steps = math.inf, 0  # mean loss of the window before, steps of this window
        self.sum: Tensor | float = 0.0  # of this rank's losses in this window

    def listen(self, model: nn.Module) -> None:
        """Add up the losses of a model's training steps."""

        def heard(module: nn.Module, _: Any, out: Any) -> None:
            if module.training and self.share > self.target:
                self.sum, self.steps = self.sum + out[0].detach().double(), self.steps + 1

        model.register_forward_hook(heard)

    def changed(self) -> bool:
        """Whether the share is lowered now. Every rank calls this in every step; ranks agree after each window."""
        if self.steps < self.window:
            return False
        mean = torch.as_tensor(self.sum, dtype=torch.float64).reshape(1) / (self.steps * dist.get_world_size())
        dist.all_reduce(mean)
        loss, self.sum, self.steps = float(mean), 0.0, 0
        level = loss > self.before * (1 - self.level)
        self.before = loss
        if level:
            self.share = max(self.target, self.share / self.rung)
        return level

    def state(self) -> Tensor:
        """The state that a checkpoint keeps."""
        return torch.tensor([self.share, self.before, self.steps, float(self.sum)], dtype=torch.float64)

    def load(self, ranks: list[Tensor]) -> None:
        """Continue from the states of ranks: the rank's own, or their mean if the number of ranks changed."""
        self.share, self.before, steps, self.sum = torch.stack(ranks).mean(0).tolist()
        self.steps = int(steps)
