"""The optimizer of dense layers: of torch.optim, registered, or of yours. Needs torch alone."""

from typing import Any, cast

import torch

from recsmith._components import find, known
from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.training.optimizers import KIND
from recsmith.training.optimizers.protocol import DenseOptimizerClass
from recsmith.training.optimizers.settings import DenseOptimizer
from recsmith.training.optimizers.shampoo_cost import AUTO, SHAMPOO


def dense_class(name: str) -> DenseOptimizerClass:
    """The optimizer of dense layers of a name: registered, of torch.optim in any case, or 'module:Class'.

    Raises:
        UsageError: none is called so; the nearest name is said.
    """
    torchs = {each.lower(): getattr(torch.optim, each) for each in torch.optim.__all__ if each[0].isupper()}
    if ":" in name or name in known(KIND):
        return cast(DenseOptimizerClass, find(KIND, name))
    if name.lower() not in torchs:
        raise UsageError(
            f"torch.optim has no '{name}'{did_you_mean(name, sorted((*torchs, *known(KIND))))}; "
            "or name a class of yours, 'module:Class'"
        )
    return torchs[name.lower()]


def dense_optimizer(parameters: list[Any], optimizer: DenseOptimizer) -> torch.optim.Optimizer:
    """The optimizer of these parameters; UsageError where nothing is called so, or it does not take the arguments."""
    name = SHAMPOO if optimizer.name == AUTO else optimizer.name  # which is decided before layers are trained
    try:
        return dense_class(name)(parameters, lr=optimizer.learning_rate, **(optimizer.arguments or {}))
    except (TypeError, ValueError) as error:
        raise UsageError(f"optimizers.dense: {error}; see the arguments of {optimizer.name}") from None
