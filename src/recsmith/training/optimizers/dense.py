"""The optimizer of dense layers: one of torch.optim, a registered one, or yours. Needs only torch."""

from typing import Any, cast

import torch

from recsmith._components import find, known
from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.training.optimizers import KIND
from recsmith.training.optimizers.protocol import DenseOptimizerClass
from recsmith.training.optimizers.settings import DenseOptimizer

LEFT_OUT = {
    "Optimizer": "it is what all of them are made from",
    "LBFGS": "its step wants a function that computes the loss again; docs/optimizers.md has such steps",
    "SparseAdam": "it wants sparse gradients, and those of dense layers are dense; use adam",
    "Muon": "it takes matrices alone, and layers have biases; docs/optimizers.md has one of matrices that takes both",
}  # classes of torch.optim that cannot be used, and why


def dense_class(name: str) -> DenseOptimizerClass:
    """The class of a dense optimizer: a registered one, one of torch.optim in upper or lower case, or 'module:Class'.

    Raises:
        UsageError: there is no such class; the nearest name is suggested. Or it is one that cannot train dense layers.
    """
    every = {each.lower(): each for each in torch.optim.__all__ if each[0].isupper()}
    if ":" in name or name in known(KIND):
        return cast(DenseOptimizerClass, find(KIND, name))
    odd = every.get(name.lower())
    if odd in LEFT_OUT:
        raise UsageError(f"torch.optim.{odd} cannot train dense layers here: {LEFT_OUT[odd]}")
    if odd is None:
        fit = [name for name, each in every.items() if each not in LEFT_OUT]
        raise UsageError(
            f"torch.optim has no '{name}'{did_you_mean(name, sorted((*fit, *known(KIND))))}; "
            "or name a class of yours, 'module:Class'"
        )
    return cast(DenseOptimizerClass, getattr(torch.optim, odd))


def dense_optimizer(parameters: list[Any], optimizer: DenseOptimizer) -> torch.optim.Optimizer:
    """The optimizer of these parameters; UsageError if there is no such class, or it refuses the arguments."""
    name = optimizer.name
    try:
        return dense_class(name)(parameters, lr=optimizer.learning_rate, **(optimizer.arguments or {}))
    except UsageError:
        raise
    except Exception as error:  # whatever error a class of torch's, or of yours, raises for wrong arguments
        raise UsageError(f"optimizers.dense: {name} {_refused(optimizer, error)}") from None


def prepare_weights(parameters: list[Any], optimizer: DenseOptimizer) -> None:
    """Let an optimizer with `prepare(parameters, arguments)` change how weights are stored, before sharding."""
    prepare = getattr(dense_class(optimizer.name), "prepare", None)
    if prepare is not None:
        prepare(parameters, optimizer.arguments or {})


def joined_weights(optimizer: Any) -> dict[str, torch.Tensor]:
    """The fp32 weights, by name, of dense layers whose optimizer stores them in another form (`joined`)."""
    if (inner := inner_optimizer(optimizer, "joined")) is None:
        return {}
    return {name: inner.joined(each) for name, each in dict(optimizer.optimizers)["dense"].params.items()}


def inner_optimizer(optimizer: Any, has: str) -> Any:
    """The optimizer of a job's dense layers inside warm-up and clipping, if it has the attribute `has`; else None."""
    inner: Any = dict(optimizer.optimizers).get("dense") if optimizer is not None else None
    while inner is not None and not hasattr(inner, has):
        inner = getattr(inner, "_optimizer", None)
    return inner


def check_dense_optimizer(optimizer: DenseOptimizer) -> None:
    """Make the optimizer and take a step with zero gradients, as jobs do before they train.

    Raises:
        UsageError: it refuses its arguments, or its step needs what dense layers do not have: a closure, sparse
            gradients, layers of one shape.
    """
    layers = [torch.nn.Parameter(torch.zeros(2, 2)), torch.nn.Parameter(torch.zeros(2))]
    made = dense_optimizer(layers, optimizer)
    for each in layers:
        each.grad = torch.zeros_like(each)
    try:
        made.step()
    except Exception as error:  # as above
        raise UsageError(f"optimizers.dense: {optimizer.name} {_refused(optimizer, error, 'take a step')}") from None


def _refused(optimizer: DenseOptimizer, error: Exception, what: str = "be made") -> str:
    given = ", ".join(f"{name}: {value}" for name, value in (optimizer.arguments or {}).items())
    reason = str(error).partition("\n")[0] or type(error).__name__
    return f"cannot {what} with {f'arguments {{{given}}}' if given else 'no arguments'} ({reason}); see its arguments"
