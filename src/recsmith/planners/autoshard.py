"""Planner `autoshard`: places the costliest items first, each where an LSTM policy scores best (Zha et al., KDD 2022).

Its policy in NumPy reads the items in the order of their placement:

    items     -> representations, shares and what is left -> an LSTM of two layers -> a state for each item
    device    -> what is seen of it (placing/policy_network.py) -> 32 numbers; these, the state, and their product
              -> a score

The state depends on the items alone, so it is computed once for all episodes; earlier placements are reflected in what
the devices hold. The seconds of the step are those of the slowest device. learning/policies/networks.py trains the
same formulas in PyTorch; a test checks that both agree.

Legend: N items, D devices, E episodes, p = 32, h hidden numbers of a layer of the LSTM.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recsmith._types import Floats
from recsmith.elementary import matmul, tanh
from recsmith.planners.placing import policy_network as net
from recsmith.planners.placing.items import ItemBatch
from recsmith.planners.placing.policy_files import PolicyKind
from recsmith.planners.placing.policy_planner import PolicyPlanner

STATE, LAYERS = 32, 2  # h: hidden numbers of an LSTM layer; layers of the LSTM
READ = net.REPRESENTED + 2  # inputs of the LSTM for an item: its representation, its share, and the share that is left
SHAPES: dict[str, tuple[int, ...]] = net.COST_SHAPES | net.OWN_SHAPES | {
    "read0": (4 * STATE, READ), "kept0": (4 * STATE, STATE), "gate0_bias": (4 * STATE,),
    "read1": (4 * STATE, STATE), "kept1": (4 * STATE, STATE), "gate1_bias": (4 * STATE,),
    "device": (STATE, net.REPRESENTED + net.FIGURES), "device_bias": (STATE,),
    "score0": (net.WIDE, 3 * STATE), "score0_bias": (net.WIDE,), "score1": (1, net.WIDE), "log_greed": (1,),
}  # fmt: skip


@dataclass(frozen=True)
class AutoShardNetwork(net.PlacingNetwork):
    """The cost network and the policy network; tensors as in SHAPES."""

    def step(self, sums: Floats) -> Floats:
        """Seconds of the step (...): those of the slowest device, from summed terms of devices (..., D, k)."""
        return self.costs(sums).sum(axis=-1).max(axis=-1)

    def scorer(self, items: ItemBatch, view: net.PolicyView) -> Callable[[int, Floats], Floats]:
        """A function that scores devices for item i."""
        del items
        states = self.states(np.column_stack([view.represented, view.share, view.left]))
        return lambda i, seen: self.score(states[i], seen)

    def states(self, read: Floats) -> Floats:
        """The LSTM's states (N, h) after each of the items (N, READ)."""
        for layer in range(LAYERS):
            known, kept = self.tensors[f"kept{layer}"], np.zeros(STATE)
            flow = matmul(read, self.tensors[f"read{layer}"].T) + self.tensors[f"gate{layer}_bias"]  # (N, 4 h)
            read, state = np.empty((len(flow), STATE)), np.zeros(STATE)
            for i, gates in enumerate(flow):
                let, forget, new, out = np.split(gates + matmul(known, state), 4)
                kept = _sigmoid(forget) * kept + _sigmoid(let) * tanh(new)
                state = read[i] = _sigmoid(out) * tanh(kept)
        return read

    def score(self, state: Floats, seen: Floats) -> Floats:
        """Scores (...) of devices, from what is seen of them (..., p + FIGURES) and a state (h,); greed weighs cost."""
        device = np.maximum(self.linear("device", seen), 0.0)
        met = np.concatenate([np.broadcast_to(state, device.shape), device, state * device], axis=-1)
        hidden = np.maximum(self.linear("score0", met), 0.0)
        return self.greedy_score(hidden, seen)


def _sigmoid(flow: Floats) -> Floats:
    return 0.5 * (1 + tanh(flow / 2))


@dataclass(frozen=True)
class AutoShard(PolicyPlanner):
    """A trained AutoShard policy: an LSTM over the items, combined with what devices hold."""

    kind: ClassVar[PolicyKind] = PolicyKind("autoshard", SHAPES, AutoShardNetwork)

    name: str = "autoshard"
    about: str = "A trained LSTM policy (Zha et al., 2022a); ?samples=16, ?refine."
