# pyright: basic
"""The networks of policies with gradients, and shared parts of the trainings of all policies (imports torch).

The formulas are those of planners/placing/policy_network.py, planners/dreamshard.py and planners/autoshard.py. The
networks that place, in NumPy, are made from these networks; a test checks that both agree.

Legend: N items, D devices, E episodes, x inputs, b figures of work, k terms, p representation, h state, T steps (= N).
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from recsmith._types import Floats, Ints
from recsmith.learning.policies.arrays import adam_arrays, restore_adam, restore_parameter
from recsmith.learning.training_loop import relative_loss
from recsmith.planners.autoshard import LAYERS, SHAPES, STATE, AutoShardNetwork
from recsmith.planners.placing import ItemBatch
from recsmith.planners.placing.policy_network import BEND, LOG_SPAN, MICRO, REACH, REPRESENTED, TERMS

FIRST_LAUNCH = 10.0  # microseconds
LEAST_SPREAD = 0.05  # standard deviation that an input has at least
LONGEST = 1.0  # norm to which a longer gradient is clipped


class Adams(NamedTuple):
    """The optimizers of the cost network and of the policy."""

    costs: torch.optim.Adam
    policy: torch.optim.Adam

    def named(self) -> Iterable[tuple[str, torch.optim.Adam]]:
        """Both optimizers, by their names in a checkpoint."""
        return ("costs_adam", self.costs), ("policy_adam", self.policy)


class PolicyNetworks(torch.nn.Module):
    """A cost network and a policy as one set of tensors; `centre` and `spread` are not trained.

    shapes: of all tensors. POLICY: names of the tensors that measured costs do not fit. SMALL: names of those that
    begin small, because they are corrections.
    """

    POLICY: ClassVar[tuple[str, ...]] = ()
    SMALL: ClassVar[tuple[str, ...]] = ("unit", "head1", "step1", "score1")

    def __init__(self, shapes: dict[str, tuple[int, ...]], items: Iterable[ItemBatch], seed: int, greed: float) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        for name, shape in shapes.items():
            bound = 1 / math.sqrt(shape[-1])
            first = (torch.rand(shape, generator=random) * 2 - 1) * bound if len(shape) == 2 else torch.zeros(shape)
            if name in self.SMALL:
                first = first * 0.1
            self.register_parameter(name, torch.nn.Parameter(first))
        inputs = np.concatenate([each.inputs for each in items])
        with torch.no_grad():
            self.get_parameter("base").copy_(torch.rand(shapes["base"], generator=random) * 2 - 3)
            self.get_parameter("log_launch").fill_(math.log(FIRST_LAUNCH))
            self.get_parameter("log_greed").fill_(math.log(greed))
            self.get_parameter("centre").copy_(torch.as_tensor(inputs.mean(axis=0)))
            self.get_parameter("spread").copy_(torch.as_tensor(np.maximum(inputs.std(axis=0), LEAST_SPREAD)))
        for name in ("centre", "spread"):
            self.get_parameter(name).requires_grad_(False)

    def adams(self, cost_rate: float, policy_rate: float) -> Adams:
        """The optimizer of tensors that measurements fit, and that of tensors that reinforcement changes."""
        learned = [(name, each) for name, each in self.named_parameters() if each.requires_grad]
        costs = [each for name, each in learned if name not in self.POLICY]
        policy = [each for name, each in learned if name in self.POLICY]
        return Adams(torch.optim.Adam(costs, lr=cost_rate), torch.optim.Adam(policy, lr=policy_rate))

    def tensors(self) -> dict[str, Floats]:
        """All tensors as arrays."""
        return {name: each.detach().double().numpy().copy() for name, each in self.named_parameters()}

    def linear(self, name: str, flow: Tensor) -> Tensor:
        """Apply a linear layer."""
        return torch.nn.functional.linear(flow, self.get_parameter(name), self.get_parameter(f"{name}_bias"))

    def two_layers(self, name: str, inputs: Tensor) -> Tensor:
        """Apply two layers to scaled inputs."""
        scaled = ((inputs - self.get_parameter("centre")) / self.get_parameter("spread")).clamp(-4.0, 4.0)
        return self.linear(f"{name}1", self.linear(f"{name}0", scaled).relu()).relu()

    def terms(self, inputs: Tensor, work: Tensor, link_s: Tensor) -> Tensor:  # (N, x), (N, b), (N,) -> (N, k)
        """A count, learned terms and link microseconds of items."""
        hidden = self.two_layers("item", inputs)
        bent = BEND * torch.tanh(self.linear("unit", hidden) / BEND).reshape(-1, TERMS, work.shape[1])
        learned = torch.einsum("ntb,nb->nt", torch.exp(self.get_parameter("base") + bent), work) * MICRO
        return torch.cat([torch.ones(len(inputs), 1), learned, link_s[:, None] * MICRO], dim=1)

    def sums(self, parts: Sequence[tuple[Floats, Floats, Floats]], device: Sequence[np.ndarray], count: int) -> Tensor:
        """Summed terms (count, k) of devices. parts: inputs, work and link seconds of items; device: of each item."""
        inputs, work, link_s = (
            torch.as_tensor(np.concatenate(each), dtype=torch.float32) for each in zip(*parts, strict=True)
        )
        terms = self.terms(inputs, work, link_s)
        place = torch.as_tensor(np.concatenate(device))
        return torch.zeros(count, terms.shape[1]).index_add_(0, place, terms)

    def costs(self, sums: Tensor) -> Tensor:  # (..., k) -> (..., 3)
        """Seconds forward, of communication and backward of devices."""
        hidden = self.linear("head0", torch.log1p(sums) / LOG_SPAN).relu()
        factor = torch.exp(REACH * torch.tanh(self.linear("head1", hidden) / REACH))
        slope = self.get_parameter("log_slope").exp()
        keep = torch.ones_like(slope)
        keep[[0, 2], -1] = 0.0
        keep[1, :-1] = 0.0
        linear = sums[..., 1:] @ (slope * keep).T
        return (sums[..., :1].clamp(max=1.0) * self.get_parameter("log_launch").exp() + linear * factor) / MICRO

    def calibrate(self, costs: Tensor, wanted: Tensor) -> None:  # (..., 3), both
        """Scale the untrained heads to the measured costs."""
        with torch.no_grad():
            ratio = (wanted / costs.clamp(min=1e-12)).reshape(-1, 3)
            self.get_parameter("log_slope").add_(ratio.median(dim=0).values.clamp(min=1e-6).log()[:, None])


def held_with_item(own: Tensor, target: Ints, devices: int) -> tuple[Tensor, Tensor]:
    """Each device's representation with the next item, in recorded episodes (T, E, D, p); which steps placed (T, E).

    own (T, p): of items in the order of their placement. target (E, T): their devices.
    """
    placed = torch.as_tensor(target.T >= 0)
    went = torch.nn.functional.one_hot(torch.as_tensor(target.T.clip(0)), devices) * placed[..., None]
    held = (went[..., None] * own[:, None, None, :]).cumsum(dim=0)
    before = torch.cat([torch.zeros_like(held[:1]), held[:-1]])
    return before + own[:, None, None, :], placed


def cost_loss(costs: Tensor, wanted: Tensor) -> Tensor:  # (..., 3), both -> ()
    """The loss of predicted costs of devices; each part is relative, but to a tenth of the device's cost at least."""
    scale = wanted.sum(dim=-1, keepdim=True).clamp(min=1e-9) / 3
    return relative_loss((costs - wanted) / torch.maximum(wanted, 0.3 * scale))


def median_error(costs: Tensor, wanted: Tensor) -> float:  # (..., 3), both
    """The median relative error of devices."""
    return float((costs.sum(-1) / wanted.sum(-1).clamp(min=1e-12) - 1).abs().median().detach())


def descend(optimizer: torch.optim.Optimizer, loss: Tensor, longest: float = LONGEST) -> None:
    """Update an optimizer's parameters once by the gradient of a loss."""
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], longest)
    optimizer.step()


def state_of(networks: PolicyNetworks, adams: Adams) -> dict[str, Any]:
    """Arrays of networks and optimizers, for a checkpoint."""
    kept: dict[str, Any] = {f"network.{name}": value for name, value in networks.tensors().items()}
    for which, optimizer in adams.named():
        for i, parameter in enumerate(optimizer.param_groups[0]["params"]):
            kept |= adam_arrays(optimizer, parameter, f"{which}.{i}")
    return kept


def restore_state(kept: dict[str, Any], networks: PolicyNetworks, adams: Adams) -> None:
    """Load networks and optimizers from the arrays of a checkpoint."""
    for name, parameter in networks.named_parameters():
        restore_parameter(parameter, kept, f"network.{name}")
    for which, optimizer in adams.named():
        for i, parameter in enumerate(optimizer.param_groups[0]["params"]):
            restore_adam(optimizer, parameter, kept, f"{which}.{i}")


VALUE_SHAPES: dict[str, tuple[int, ...]] = {
    "value0": (64, 3 * STATE), "value0_bias": (64,), "value1": (1, 64), "value1_bias": (1,),
}  # fmt: skip


class AutoShardNetworks(PolicyNetworks):
    """Cost network, policy, and the baseline that only training needs."""

    POLICY = tuple(name for name in [*SHAPES, *VALUE_SHAPES] if name.startswith(
        ("own", "read", "kept", "gate", "device", "score", "log_greed", "value")
    ))  # fmt: skip
    SMALL = (*PolicyNetworks.SMALL, "value1")

    def frozen(self) -> AutoShardNetwork:
        """The network that places, in NumPy."""
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
        """Scores (T, E, D) and baselines (T, E), from states (T, h) and inputs of devices (T, E, D, p + FIGURES)."""
        device = self.linear("device", seen).relu()
        state = states[:, None, None, :].expand_as(device)
        hidden = self.linear("score0", torch.cat([state, device, state * device], dim=-1)).relu()
        greed = self.get_parameter("log_greed").exp() * seen[..., REPRESENTED]
        over = torch.cat([state[:, :, 0], device.amax(dim=2), device.mean(dim=2)], dim=-1)
        value = self.linear("value1", self.linear("value0", over).relu())[..., 0]
        return hidden @ self.get_parameter("score1")[0] - greed, value


def v_trace(reward: Tensor, value: Tensor, log_ratio: Tensor) -> tuple[Tensor, Tensor]:  # all (T, E)
    """Targets of the baseline and advantages of the policy (Espeholt et al., 2018, section 4.1).

    Both clipping thresholds are 1, there is no discount, and the value after the last step is 0.
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
