"""Optimizers of a sharded model whose learning rates follow a schedule."""

import math
from typing import Any, cast

from torchrec.optim.keyed import KeyedOptimizer, OptimizerWrapper

from recsmith.training.optimizers.schedules import Rates


class ScheduledOptimizer(OptimizerWrapper):
    """An optimizer whose learning rate follows the schedule; each group keeps its initial ratio to that rate."""

    def __init__(self, optimizer: KeyedOptimizer, rates: Rates) -> None:
        super().__init__(optimizer)
        self.rates, groups = rates, cast(Any, self.param_groups)
        shares = [float(group["lr"]) / rates.given for group in groups]
        self.shares = [1.0 if math.isclose(each, 1.0, rel_tol=1e-6) else each for each in shares]  # FBGEMM: fp32
        self.go_to(0)

    def go_to(self, step: int) -> None:
        """Continue as if `step` steps were done."""
        self.count = step
        for group, share in zip(cast(Any, self.param_groups), self.shares, strict=True):
            group["lr"] = self.rates.at(step) * share

    def step(self, closure: Any = None) -> None:
        """Take a step, then set the next rate; fused table optimizers have already updated in the backward pass."""
        super().step(closure)
        self.go_to(self.count + 1)
