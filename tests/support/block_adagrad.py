"""An optimizer that keeps its state as Meta's Distributed Shampoo does: nested by block, and without a `state_dict`."""

from typing import Any

import torch


class BlockAdagrad(torch.optim.Optimizer):
    """Adagrad, in blocks of so many rows."""

    def __init__(self, params: Any, lr: float = 1e-2, rows: int = 4) -> None:
        super().__init__(params, {"lr": lr, "rows": rows})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """A step."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step(parameter, group["lr"], group["rows"])

    def _step(self, parameter: torch.Tensor, rate: float, rows: int) -> None:
        state = self.state[parameter]
        state.setdefault("step", torch.zeros(())).add_(1)
        for number, (part, slope) in enumerate(
            zip(parameter.split(rows), parameter.grad.split(rows), strict=True)  # type: ignore[union-attr]
        ):
            block = state.setdefault(f"block_{number}", {"shampoo": {"factors": {"0": torch.zeros_like(part)}}})
            squares = block["shampoo"]["factors"]["0"].add_(slope * slope)
            part -= rate * slope / (squares.sqrt() + 1e-8)

    def state_dict(self) -> dict[str, Any]:
        """There is none."""
        raise NotImplementedError("no standard state_dict")

    def load_state_dict(self, state_dict: Any) -> None:
        """There is none."""
        raise NotImplementedError("no standard load_state_dict")
