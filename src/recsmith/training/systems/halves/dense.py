"""Optimizers for dense layers in bf16 that train in fp32: they keep what rounding removes from each weight.

    optimizers: {dense: {name: split, arguments: {optimizer: adam}}}     # the lower half of each weight: 4 bytes in all
    optimizers: {dense: {name: master, arguments: {optimizer: adam}}}    # a master copy in fp32: 6 bytes in all

Kalamkar et al. 2019 (arXiv 1905.12322) update master weights in fp32 and round them to bf16 for the next step; their
split SGD (2020, arXiv 2005.04680) keeps two halves instead. Gradients are bf16 in both.
"""

from typing import Any, cast

import torch
from torch import nn

from recsmith.errors import UsageError
from recsmith.training.optimizers.dense import dense_class
from recsmith.training.step_clock import Stopwatch
from recsmith.training.systems.halves import IN_HALVES
from recsmith.training.systems.halves.bfloat16 import ROUNDINGS, join, split

LOWER, MASTER = "lower", "master"  # keys in a parameter's state; also attributes of a parameter that was just rounded


class SplitOptimizer(torch.optim.Optimizer):
    """An optimizer of torch.optim on fp32 weights whose upper halves are the parameters, in bf16.

    optimizer: of torch.optim, or your own. upper: nearest or truncated: how a weight is rounded to bf16. lower: whether
    to keep the lower halves. Without them layers train in bf16 alone, which shows what the lower halves contribute;
    then upper may be stochastic too. arguments: of the optimizer.
    """

    def __init__(self, params: Any, lr: float, *, optimizer: str = "adam", upper: str = "nearest", lower: bool = True,
                 **arguments: Any) -> None:  # fmt: skip
        known = [name for name in ROUNDINGS if name != "stochastic" or not lower]
        if upper not in known:
            raise UsageError(f"optimizers.dense: upper is {upper}; give {' or '.join(known)}")
        if optimizer in IN_HALVES:
            raise UsageError(f"optimizers.dense: optimizer is {optimizer}; name the one that takes the steps, as adam")
        super().__init__(params, {"lr": lr})
        self._upper, self._lower = upper, lower
        groups: list[Any] = self.param_groups
        self._whole = {each: nn.Parameter(torch.zeros_like(each, dtype=torch.float32))
                       for group in groups for each in group["params"]}  # fmt: skip
        inner = [{**group, "params": [self._whole[each] for each in group["params"]]} for group in groups]
        self._steps = dense_class(optimizer)(inner, lr=lr, **arguments)
        for whole in self._whole.values():
            whole.data = whole.data.new_empty(0)  # holds no memory between steps
        self.took = Stopwatch()

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Join weights, take the optimizer's step in fp32, and round the weights again."""
        del closure
        with self.took:
            self._step()

    def _step(self) -> None:
        for group, inner in zip(cast(list[Any], self.param_groups), self._steps.param_groups, strict=True):
            inner["lr"] = group["lr"]
        moved = [each for each in self._whole if each.grad is not None]
        for parameter in moved:
            whole = self._whole[parameter]
            whole.data, whole.grad = self.joined(parameter), cast(Any, parameter.grad).float()
        self._steps.step()
        for parameter in moved:
            whole, state = self._whole[parameter], self.state[parameter]
            self._keep(parameter, whole.data)
            state.update(self._steps.state[whole])
            whole.data, whole.grad = whole.data.new_empty(0), None

    @staticmethod
    def prepare(parameters: list[nn.Parameter], arguments: dict[str, Any]) -> None:
        """Convert parameters to bf16 before they are sharded."""
        round_to_halves(parameters, arguments.get("upper", "nearest"))

    def joined(self, parameter: torch.Tensor) -> torch.Tensor:
        """A parameter's weights in fp32."""
        if parameter.dtype != torch.bfloat16:
            return parameter.detach().clone()
        lower = self.state[parameter].get(LOWER) if parameter in self.state else getattr(parameter, LOWER, None)
        if lower is None or not self._lower:
            return parameter.detach().float()
        lower = lower.to(parameter.device)  # the first lower halves are still on the device where the model was built
        return join(parameter.detach(), lower, to_nearest=self._upper == "nearest")

    def _keep(self, parameter: torch.Tensor, weights: torch.Tensor) -> None:
        """Round weights into the parameter, and store the remainder in its state."""
        if not self._lower:
            parameter.copy_(ROUNDINGS[self._upper](weights))
            return
        upper, lower = split(weights, to_nearest=self._upper == "nearest")
        parameter.copy_(upper)
        kept(self.state[parameter], LOWER, lower)


class MasterOptimizer(SplitOptimizer):
    """An optimizer of torch.optim on master weights in fp32; the parameters are copies of them in bf16.

    optimizer: of torch.optim, or your own. arguments: of that optimizer.
    """

    def __init__(self, params: Any, lr: float, *, optimizer: str = "adam", **arguments: Any) -> None:
        super().__init__(params, lr, optimizer=optimizer, **arguments)

    @staticmethod
    def prepare(parameters: list[nn.Parameter], arguments: dict[str, Any]) -> None:
        """Convert parameters to bf16 before they are sharded."""
        del arguments  # copies are always rounded to nearest
        round_to_halves(parameters, "nearest")

    def joined(self, parameter: torch.Tensor) -> torch.Tensor:
        """The master weights of a parameter, or its own weights in fp32 before the first step."""
        found = self.state[parameter].get(MASTER) if parameter in self.state else None
        return super().joined(parameter) if found is None else found

    def _keep(self, parameter: torch.Tensor, weights: torch.Tensor) -> None:
        parameter.copy_(ROUNDINGS["nearest"](weights))
        kept(self.state[parameter], MASTER, weights)


def kept(state: dict[str, Any], name: str, values: torch.Tensor) -> None:
    """Store values in a parameter's state; an existing tensor is overwritten, since checkpoints load into it."""
    if name in state:
        state[name].copy_(values)
    else:
        state[name] = values.clone()


def round_to_halves(parameters: list[nn.Parameter], upper: str) -> None:
    """Round fp32 parameters to bf16 in place, and attach the lower halves, from which an optimizer starts."""
    for parameter in parameters:
        rounded, lower = split(parameter.detach(), to_nearest=upper != "truncated")
        parameter.data = rounded
        setattr(parameter, LOWER, lower)
