"""A share of gradients that falls as the loss levels off: all cross at first, and a quarter as many each time.

The ladder of shares is that of Lin et al., "Deep Gradient Compression" (ICLR 2018, arXiv 1712.01887), which takes a
rung an epoch; here a rung ends with the first window of steps in which the loss of all ranks fell by little.
"""

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

Ladder = tuple[int, float, float]


class WarmUp:
    """The share of a step, the same on every rank.

    target: where it ends. ladder: steps of a window, what its loss falls by at least, by what the share is divided.
    """

    def __init__(self, target: float, ladder: Ladder) -> None:
        self.target, self.share = target, 1.0
        self.window, self.level, self.rung = ladder
        self.before, self.steps = math.inf, 0  # mean loss of the window before, steps of this one
        self.sum: Tensor | float = 0.0  # of this rank's losses in it

    def listen(self, model: nn.Module) -> None:
        """Hear of the losses of a model's training steps."""

        def heard(module: nn.Module, _: Any, out: Any) -> None:
            if module.training and self.share > self.target:
                self.sum, self.steps = self.sum + out[0].detach().double(), self.steps + 1

        model.register_forward_hook(heard)

    def changed(self) -> bool:
        """Whether the share falls now; asked by every rank in every step, and told to all where a window ends."""
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
        """What a checkpoint keeps."""
        return torch.tensor([self.share, self.before, self.steps, float(self.sum)], dtype=torch.float64)

    def load(self, ranks: list[Tensor]) -> None:
        """Go on from what ranks had; losses are those of all where their number changed."""
        self.share, self.before, steps, self.sum = torch.stack(ranks).mean(0).tolist()
        self.steps = int(steps)
