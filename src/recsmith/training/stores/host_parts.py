"""Parts of a model that the ranks of one host have, and those of other hosts do not: modules of towers."""

from collections.abc import Iterator
from typing import Any

from torch import nn


def towers_in(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """The towers of a model (tables/towers.py), and their place in it."""
    for path, module in model.named_modules():
        if hasattr(module, "of_this_host"):
            yield path, module


def host_parameters(model: nn.Module) -> set[str]:
    """The names of parameters of a model that the ranks of this host alone have."""
    return {f"{path}.{name}" if path else name for path, tables in towers_in(model) for name in tables.of_this_host()}
