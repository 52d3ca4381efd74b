"""DreamShard's networks in NumPy: what a step costs beyond its slowest device, and which device an item goes to.

    step      -> the largest sum of each term over devices -> a bounded correction of the slowest device's seconds
    device    -> what is seen of it (placing/rollouts.py) -> a score

What a device costs is for placing/cost_network.py to say. The training in learning/policies/dreamshard.py has the same
formulas in PyTorch; a test holds them together.

Legend: D devices, E episodes, k terms, p = 32.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from recsmith._types import Floats
from recsmith.planners.placing.cost_network import COST_SHAPES, HIDDEN, LOG_SPAN, MICRO, TERMS, WIDE
from recsmith.planners.placing.items import ItemBatch
from recsmith.planners.placing.rollouts import FIGURES, OWN_SHAPES, REPRESENTED, PlacingNetwork, PolicyView

STEP_REACH = 0.5  # the step lies within e ** this of its slowest device
SHAPES: dict[str, tuple[int, ...]] = COST_SHAPES | {
    "step0": (HIDDEN, TERMS + 5), "step0_bias": (HIDDEN,), "step1": (1, HIDDEN), "step1_bias": (1,),
} | OWN_SHAPES | {
    "score0": (WIDE, REPRESENTED + FIGURES), "score0_bias": (WIDE,), "score1": (1, WIDE), "log_greed": (1,),
}  # fmt: skip


@dataclass(frozen=True)
class DreamShardNetwork(PlacingNetwork):
    """Both networks; tensors as in SHAPES."""

    def step(self, sums: Floats) -> Floats:
        """Seconds of the step (...) of devices with summed terms (..., D, k)."""
        costs = self.costs(sums)
        seen = np.concatenate([sums.max(axis=-2), costs.max(axis=-2) * MICRO], axis=-1)
        hidden = np.maximum(self.linear("step0", np.log1p(seen) / LOG_SPAN), 0.0)
        factor = np.exp(STEP_REACH * np.tanh(self.linear("step1", hidden)[..., 0]))
        return costs.sum(axis=-1).max(axis=-1) * factor

    def scorer(self, items: ItemBatch, view: PolicyView) -> Callable[[int, Floats], Floats]:
        """Scores, alike for every item: what is seen says which it is."""
        del items, view
        return lambda _, seen: self.score(seen)

    def score(self, seen: Floats) -> Floats:
        """Scores (...) of what the policy sees of devices (..., p + FIGURES); greed weighs the seconds of a device."""
        hidden = np.maximum(self.linear("score0", seen), 0.0)
        return hidden @ self.tensors["score1"][0] - np.exp(self.tensors["log_greed"][0]) * seen[..., REPRESENTED]
