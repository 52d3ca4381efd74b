"""Parts of a model that the ranks of one host have, and those of other hosts do not, such as modules of towers."""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn


def towers_in(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """The towers of a model (systems/towers/tables.py), and their place in it."""
    for path, module in model.named_modules():
        if hasattr(module, "of_this_host"):
            yield path, module


def host_parameters(model: nn.Module) -> set[str]:
    """The names of parameters of a model that the ranks of this host alone have."""
    return {f"{path}.{name}" if path else name for path, tables in towers_in(model) for name in tables.of_this_host()}


class HostParts:
    """What this rank's host has that others do not, once a model is placed; here nothing.

    local: names of parameters that this host alone has.
    """

    local: tuple[str, ...] = ()

    def sharders(self, usual: Sequence[Any]) -> list[Any]:
        """The sharders of the model. usual: of one whose tables lie on all hosts."""
        return list(usual)

    def average(self, model: nn.Module) -> dict[nn.Parameter, list[Any]]:
        """Sum gradients of local parameters over the host, as they come; by parameter, the groups of all others.

        model: the sharded one, without what is wrapped around it.
        """
        return {}
