# pyright: basic
"""The networks of AutoShard for training: the formulas of planners/autoshard/network.py in PyTorch, and V-trace.

What places, in NumPy, is frozen out of these networks; a test holds the two together. Imports torch.

Legend: N items, D devices, E episodes, p representation, h state, T steps (= N).
"""

import torch
from torch import Tensor

from recsmith.learning.policies.cost_networks import PolicyNetworks
from recsmith.planners.autoshard.network import LAYERS, SHAPES, STATE, AutoShardNetwork
from recsmith.planners.placing.rollouts import REPRESENTED

VALUE_SHAPES: dict[str, tuple[int, ...]] = {
    "value0": (64, 3 * STATE), "value0_bias": (64,), "value1": (1, 64), "value1_bias": (1,),
}  # fmt: skip


class Networks(PolicyNetworks):
    """Cost network, policy, and the baseline that only training needs."""

    POLICY = tuple(name for name in [*SHAPES, *VALUE_SHAPES] if name.startswith(
        ("own", "read", "kept", "gate", "device", "score", "log_greed", "value")
    ))  # fmt: skip
    SMALL = (*PolicyNetworks.SMALL, "value1")

    def frozen(self) -> AutoShardNetwork:
        """What places, in NumPy."""
        return AutoShardNetwork({name: value for name, value in self.tensors().items() if name in SHAPES})

    def states(self, read: Tensor) -> Tensor:  # (N, READ) -> (N, h)
        """The LSTM's states."""
        for layer in range(LAYERS):
            flow = torch.nn.functional.linear(
                read, self.get_parameter(f"read{layer}"), self.get_parameter(f"gate{layer}_bias")
            )
            known, state, kept = self.get_parameter(f"kept{layer}").T, torch.zeros(STATE), torch.zeros(STATE)
            states: list[Tensor] = []
            for gates in flow.unbind():
                let, forget, new, out = (gates + state @ known).chunk(4)
                kept = forget.sigmoid() * kept + let.sigmoid() * new.tanh()
                state = out.sigmoid() * kept.tanh()
                states.append(state)
            read = torch.stack(states)
        return read

    def scores_and_values(self, states: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (T, E, D) and baselines (T, E), of states (T, h) and what is seen (T, E, D, p + FIGURES)."""
        device = self.linear("device", seen).relu()
        state = states[:, None, None, :].expand_as(device)
        hidden = self.linear("score0", torch.cat([state, device, state * device], dim=-1)).relu()
        greed = self.get_parameter("log_greed").exp() * seen[..., REPRESENTED]
        over = torch.cat([state[:, :, 0], device.amax(dim=2), device.mean(dim=2)], dim=-1)
        value = self.linear("value1", self.linear("value0", over).relu())[..., 0]
        return hidden @ self.get_parameter("score1")[0] - greed, value


def v_trace(reward: Tensor, value: Tensor, log_ratio: Tensor) -> tuple[Tensor, Tensor]:  # all (T, E)
    """Targets of the baseline and advantages of the policy (Espeholt et al., 2018, section 4.1).

    Both cuts are 1, nothing is discounted, and behind the last step nothing follows.
    """
    ratio = log_ratio.exp().clamp(max=1.0)
    after = torch.cat([value[1:], torch.zeros_like(value[:1])])
    surprise = ratio * (reward + after - value)
    target, ahead = torch.empty_like(value), torch.zeros_like(value[0])
    for t in range(len(value) - 1, -1, -1):
        ahead = surprise[t] + ratio[t] * ahead
        target[t] = value[t] + ahead
    following = torch.cat([target[1:], torch.zeros_like(target[:1])])
    return target, ratio * (reward + following - value)
