"""BFLOAT16 numbers as the upper halves of fp32 numbers: rounding to them, and keeping the remainder.

Rounding to nearest even and truncation are those of Kalamkar et al. 2019 (arXiv 1905.12322), who emulate bf16 in the
same way. Two halves that join to the fp32 number are those of their split SGD (2020, arXiv 2005.04680).

Halves are stored as 16-bit integers. The lower half is always the lower 16 bits of the number. With truncation, the
upper half is the upper 16 bits. With rounding to nearest, it is one more if the lower half is at least half a step
(ties away from zero), and the lower half is then a signed offset from it. Both join exactly for every number except
NaN, which becomes the usual NaN, whose upper half is NaN too.
"""

from collections.abc import Callable

import torch

_STEP = 1 << 16  # one step of the upper half, in units of the lowest bit
NAN = 0x7FC00000  # the NaN whose upper half is NaN too; other NaNs may round to 0 or infinity


def nearest(values: torch.Tensor) -> torch.Tensor:
    """Round fp32 to bf16, to nearest, ties to even: bit for bit as PyTorch does, NaN included."""
    bits = values.view(torch.int32)
    return _upper_of(bits + (_STEP // 2 - 1) + ((bits >> 16) & 1), values)


def truncated(values: torch.Tensor) -> torch.Tensor:
    """Round fp32 to bf16, toward zero: the lower bits are left out."""
    return _upper_of(values.view(torch.int32), values)


def stochastic(values: torch.Tensor) -> torch.Tensor:
    """Round fp32 to one of the two nearest bf16 numbers at random, with the fp32 number as expectation.

    Draws from PyTorch's generator of the values' device. If all values are bf16 already, nothing is drawn. So weights
    that were joined to fp32 in between, as for checkpoints and exports, do not advance the generator.
    """
    bits = values.view(torch.int32)
    if not bool((bits & (_STEP - 1)).any()):
        return truncated(values)
    return _upper_of(bits + torch.randint(_STEP, bits.shape, dtype=torch.int32, device=bits.device), values)


ROUNDINGS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "nearest": nearest, "truncated": truncated, "stochastic": stochastic,
}  # fmt: skip


def _upper_of(bits: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The upper halves of 32 bits as bf16; for NaN values, PyTorch's NaN on this machine."""
    made = (bits >> 16).to(torch.int16)  # keeps the lowest 16 bits
    nan = torch.full((1,), torch.nan).to(torch.bfloat16).view(torch.int16).to(made.device)
    return torch.where(values.isnan(), nan, made).view(torch.bfloat16)


def split(values: torch.Tensor, *, to_nearest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The upper half of fp32 numbers as bf16, and the lower half as int16, both of the same shape."""
    bits = values.view(torch.int32).masked_fill(values.isnan(), NAN)
    upper = (bits + _STEP // 2 if to_nearest else bits) >> 16
    return upper.to(torch.int16).view(torch.bfloat16), bits.to(torch.int16)  # keeps the lowest 16 bits


def join(upper: torch.Tensor, lower: torch.Tensor, *, to_nearest: bool) -> torch.Tensor:
    """The fp32 numbers from two halves made by `split`: bit for bit, except for kinds of NaN."""
    bits = upper.view(torch.int16).to(torch.int32) << 16
    return (bits + lower if to_nearest else bits | (lower.to(torch.int32) & (_STEP - 1))).view(torch.float32)
