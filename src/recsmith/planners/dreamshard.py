"""Planner `dreamshard`: places the costliest items first, each where a policy scores best (Zha et al., NeurIPS 2022).

Its networks, in NumPy, predict what a step costs beyond its slowest device, and which device an item is placed on:

    step      -> the largest sum of each term over devices -> a bounded correction of the slowest device's seconds
    device    -> what is seen of it (placing/policy_network.py) -> a score

learning/policies/dreamshard.py trains the same formulas in PyTorch; a test checks that both agree.

Legend: D devices, E episodes, k terms, p = 32.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recsmith._types import Floats
from recsmith.elementary import exp, log1p, tanh
from recsmith.planners.placing import policy_network as net
from recsmith.planners.placing.items import ItemBatch
from recsmith.planners.placing.policy_files import PolicyKind
from recsmith.planners.placing.policy_planner import MOST_SPLITS, PolicyPlanner

STEP_REACH = 0.5  # the step's seconds differ from the slowest device's by a factor of at most e ** this
SHAPES: dict[str, tuple[int, ...]] = net.COST_SHAPES | {
    "step0": (net.HIDDEN, net.TERMS + 5), "step0_bias": (net.HIDDEN,), "step1": (1, net.HIDDEN), "step1_bias": (1,),
} | net.OWN_SHAPES | {
    "score0": (net.WIDE, net.REPRESENTED + net.FIGURES), "score0_bias": (net.WIDE,), "score1": (1, net.WIDE),
    "log_greed": (1,),
}  # fmt: skip


@dataclass(frozen=True)
class DreamShardNetwork(net.PlacingNetwork):
    """The cost network and the policy network; tensors as in SHAPES."""

    def step(self, sums: Floats) -> Floats:
        """Seconds of the step (...), from summed terms of devices (..., D, k)."""
        costs = self.costs(sums)
        seen = np.concatenate([sums.max(axis=-2), costs.max(axis=-2) * net.MICRO], axis=-1)
        hidden = np.maximum(self.linear("step0", log1p(seen) / net.LOG_SPAN), 0.0)
        factor = exp(STEP_REACH * tanh(self.linear("step1", hidden)[..., 0]))
        return costs.sum(axis=-1).max(axis=-1) * factor

    def scorer(self, items: ItemBatch, view: net.PolicyView) -> Callable[[int, Floats], Floats]:
        """A function that scores devices; the same for every item, since what is seen of a device includes the item."""
        del items, view
        return lambda _, seen: self.score(seen)

    def score(self, seen: Floats) -> Floats:
        """Scores (...) of what the policy sees of devices (..., p + FIGURES); greed weighs the seconds of a device."""
        hidden = np.maximum(self.linear("score0", seen), 0.0)
        return self.greedy_score(hidden, seen)


@dataclass(frozen=True)
class DreamShard(PolicyPlanner):
    """A trained DreamShard policy: its networks see each device as it would be with the item in question."""

    kind: ClassVar[PolicyKind] = PolicyKind("dreamshard", SHAPES, DreamShardNetwork)
    numbers: ClassVar[Mapping[str, int]] = {**PolicyPlanner.numbers, "splits": MOST_SPLITS}

    name: str = "dreamshard"
    about: str = "A trained policy (Zha et al., 2022); ?splits=8, ?refine."
