"""Dense layers in bf16 that train in fp32: what rounding leaves out of a weight is kept beside it by the optimizer.

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

LOWER, MASTER = "lower", "master"  # in the state of a parameter, and as attributes of one that has just been rounded


class SplitOptimizer(torch.optim.Optimizer):
    """An optimizer of torch.optim on fp32 weights whose upper halves are the parameters, in bf16.

    optimizer: of torch.optim, or yours. upper: nearest or truncated: which bf16 number stands for a weight. lower: keep
    the lower halves; without them layers train in bf16 alone, which shows what they are good for; upper may be
    stochastic then. arguments: of the optimizer.
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
            whole.data = whole.data.new_empty(0)  # between steps
        self.took = Stopwatch()

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Join weights, take the optimizer's step in fp32, and round again."""
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
        """Make parameters bf16 before they are sharded."""
        round_to_halves(parameters, arguments.get("upper", "nearest"))

    def joined(self, parameter: torch.Tensor) -> torch.Tensor:
        """A parameter's weights in fp32."""
        if parameter.dtype != torch.bfloat16:
            return parameter.detach().clone()
        lower = self.state[parameter].get(LOWER) if parameter in self.state else getattr(parameter, LOWER, None)
        if lower is None or not self._lower:
            return parameter.detach().float()
        lower = lower.to(parameter.device)  # those of a start lie where the model was built
        return join(parameter.detach(), lower, to_nearest=self._upper == "nearest")

    def _keep(self, parameter: torch.Tensor, weights: torch.Tensor) -> None:
        """Round weights into the parameter, and what is left into its state."""
        if not self._lower:
            parameter.copy_(ROUNDINGS[self._upper](weights))
            return
        upper, lower = split(weights, to_nearest=self._upper == "nearest")
        parameter.copy_(upper)
        kept(self.state[parameter], LOWER, lower)


class MasterOptimizer(SplitOptimizer):
    """An optimizer of torch.optim on master weights in fp32, of which the parameters are copies in bf16.

    optimizer: of torch.optim, or yours. arguments: of it.
    """

    def __init__(self, params: Any, lr: float, *, optimizer: str = "adam", **arguments: Any) -> None:
        super().__init__(params, lr, optimizer=optimizer, **arguments)

    @staticmethod
    def prepare(parameters: list[nn.Parameter], arguments: dict[str, Any]) -> None:
        """Make parameters bf16 before they are sharded."""
        del arguments  # its copies are rounded to the nearest
        round_to_halves(parameters, "nearest")

    def joined(self, parameter: torch.Tensor) -> torch.Tensor:
        """The master weights of a parameter."""
        found = self.state[parameter].get(MASTER) if parameter in self.state else None
        return super().joined(parameter) if found is None else found

    def _keep(self, parameter: torch.Tensor, weights: torch.Tensor) -> None:
        parameter.copy_(ROUNDINGS["nearest"](weights))
        kept(self.state[parameter], MASTER, weights)


def kept(state: dict[str, Any], name: str, values: torch.Tensor) -> None:
    """Keep values in the state of a parameter: in the tensor that is there, which checkpoints load into."""
    if name in state:
        state[name].copy_(values)
    else:
        state[name] = values.clone()


def round_to_halves(parameters: list[nn.Parameter], upper: str) -> None:
    """Make fp32 parameters bf16 in place, and remember the lower halves, which an optimizer starts from."""
    for parameter in parameters:
        rounded, lower = split(parameter.detach(), to_nearest=upper != "truncated")
        parameter.data = rounded
        setattr(parameter, LOWER, lower)
