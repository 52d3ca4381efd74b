"""How long the dense layers of a rank take, in which it waits for no other."""

import torch
from torch import nn
from torchrec.distributed.types import ShardedModule

from recsmith.training.step_clock import STEPS


class DenseTimer:
    """Seconds of the dense layers' forward passes on this rank: its own work, in which it waits for nobody.

    On a GPU these are times of launching, which say nothing of the device, so nothing is timed there.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.seconds, self._begun = 0.0, 0.0
        if device.type == "cuda":
            return
        waiting = [
            each for each in model.modules() if isinstance(each, ShardedModule) or getattr(each, "on_servers", False)
        ]
        left_out = {id(inner) for each in waiting for inner in each.modules()}
        for module in model.modules():
            if id(module) not in left_out and not any(True for _ in module.children()):
                module.register_forward_pre_hook(self._begin)
                module.register_forward_hook(self._end)

    def _begin(self, *_: object) -> None:
        self._begun = STEPS.now()

    def _end(self, *_: object) -> None:
        self.seconds += STEPS.now() - self._begun
