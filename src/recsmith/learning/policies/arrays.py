# pyright: basic
"""Arrays of a checkpoint, taken by name and shape, and those of an optimizer (imports torch)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

ADAM = ("step", "exp_avg", "exp_avg_sq")  # what Adam keeps of a parameter that it has updated


def array_of(kept: dict[str, Any], name: str, shape: Sequence[int | None]) -> Any:
    """An array of a checkpoint. shape: as it has to be; None is any length.

    Raises:
        ValueError: there is no such array, or it has another shape; `RunFolder.restore` names the file.
    """
    if name not in kept:
        raise ValueError(f"it has no array '{name}'")
    found = kept[name].shape
    if len(found) != len(shape) or any(want not in (None, has) for has, want in zip(found, shape, strict=True)):
        wanted = ", ".join("any" if each is None else str(each) for each in shape)
        raise ValueError(f"its array '{name}' is of shape ({', '.join(map(str, found))}), not ({wanted})")
    return kept[name]


def restore_parameter(parameter: Tensor, kept: dict[str, Any], name: str) -> None:
    """Load a parameter from an array of its shape."""
    with torch.no_grad():
        parameter.copy_(torch.as_tensor(array_of(kept, name, parameter.shape)))


def adam_arrays(optimizer: torch.optim.Adam, parameter: Tensor, name: str) -> dict[str, Any]:
    """What an optimizer keeps of a parameter, as arrays; nothing before its first update."""
    return {f"{name}.{part}": value.numpy().copy() for part, value in optimizer.state[parameter].items()}


def restore_adam(optimizer: torch.optim.Adam, parameter: Tensor, kept: dict[str, Any], name: str) -> None:
    """Load what `adam_arrays` gave: all of it or, of a parameter that was not updated yet, nothing."""
    optimizer.state.pop(parameter, None)
    if any(f"{name}.{part}" in kept for part in ADAM):
        optimizer.state[parameter] = {
            part: torch.tensor(
                array_of(kept, f"{name}.{part}", () if part == "step" else parameter.shape), dtype=torch.float32
            )
            for part in ADAM
        }
