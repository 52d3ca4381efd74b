"""The interface of an optimizer of dense layers: like a class of torch.optim, made from parameters, `lr` and arguments.

    class SignDescent(torch.optim.Optimizer):         # optimizers: {dense: {name: my_optimizers:SignDescent}}
        def __init__(self, params, lr, *, momentum=0.9): ...

Checkpoints and resumed jobs also require:

- What it keeps of a parameter is in `self.state[parameter]`, as tensors by name, with the same names for each
parameter.
- Its first step creates all state. TorchRec's `init_state` takes such a step with gradients of zero before a checkpoint
  is loaded, and before training a backward pass of zeros fixes the order of sums: neither counts as a step.
- It changes parameters only by their gradients and its state, so that ranks with equal gradients stay equal.

The optimizers of tables cannot be chosen freely: FBGEMM fuses them into its backward kernels
(recsmith.workloads.OPTIMIZERS).
"""

from typing import Any, Protocol

import torch


class DenseOptimizerClass(Protocol):
    """Makes the optimizer of the dense layers' parameters."""

    def __call__(self, params: Any, *, lr: float, **arguments: Any) -> torch.optim.Optimizer:
        """The optimizer of parameters, or groups of them. lr: rate before warm-up and decay. arguments: its own."""
        ...
