"""What an optimizer of dense layers is: a class as those of torch.optim, made of parameters, `lr` and its arguments.

    class SignDescent(torch.optim.Optimizer):         # optimizers: {dense: {name: my_optimizers:SignDescent}}
        def __init__(self, params, lr, *, momentum=0.9): ...

What a checkpoint and a resumed job ask of it beside that:

- What it keeps of a parameter lies in `self.state[parameter]`, as tensors by name, the same names for each parameter.
- Its first step makes all state. TorchRec's `init_state` takes such a step with gradients of zero before a checkpoint
  is loaded, and before anything is trained one backward pass of zeros has settled the order of sums: neither counts.
- It changes parameters by their gradients and its state alone, so that ranks with equal gradients stay equal.

The optimizers of tables are not free: FBGEMM fuses them into its backward kernels (recsmith.workloads.OPTIMIZERS).
"""

from typing import Any, Protocol

import torch


class DenseOptimizerClass(Protocol):
    """Makes the optimizer of the dense layers' parameters."""

    def __call__(self, params: Any, *, lr: float, **arguments: Any) -> torch.optim.Optimizer:
        """params: parameters, or groups of them. lr: the learning rate before warm-up and decay. arguments: its own."""
        ...
