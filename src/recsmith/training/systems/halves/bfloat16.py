"""BFLOAT16 numbers as the upper halves of fp32 ones: rounding to them, and keeping what rounding leaves out.

Rounding to nearest even and truncation are those of Kalamkar et al. 2019 (arXiv 1905.12322), whose numbers are emulated
in the same way; two halves that join to the fp32 number are those of their split SGD (2020, arXiv 2005.04680).

Halves lie in 16-bit integers. The lower one is the lower 16 bits of the number in either form; the upper one is what
truncation leaves, or one more where the lower half is at least half a step, so that it is the nearest number (halves of
a step away from zero), and the lower half counts from it, with a sign. Both join exactly, whatever the number is; a NaN
becomes the usual one, whose upper half is NaN too.
"""

from collections.abc import Callable

import torch

_STEP = 1 << 16  # of the lower bits, which is one step of the upper half
NAN = 0x7FC00000  # whose upper half is NaN; others have 0 or infinity there


def nearest(values: torch.Tensor) -> torch.Tensor:
    """Round fp32 to bf16, to nearest, halves of a step to even: the bits that PyTorch gives, NaN included."""
    bits = values.view(torch.int32)
    return _upper_of(bits + (_STEP // 2 - 1) + ((bits >> 16) & 1), values)


def truncated(values: torch.Tensor) -> torch.Tensor:
    """Round fp32 to bf16, toward zero: the lower bits are left out."""
    return _upper_of(values.view(torch.int32), values)


def stochastic(values: torch.Tensor) -> torch.Tensor:
    """Round fp32 to one of the two nearest bf16, each the more often the nearer: right in the mean.

    Drawn from PyTorch's generator of the values' device. Where all are bf16 already, nothing is drawn: weights that
    were joined to fp32 in between, as checkpoints and exports do, leave the generator where it is.
    """
    bits = values.view(torch.int32)
    if not bool((bits & (_STEP - 1)).any()):
        return truncated(values)
    return _upper_of(bits + torch.randint(_STEP, bits.shape, dtype=torch.int32, device=bits.device), values)


ROUNDINGS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "nearest": nearest, "truncated": truncated, "stochastic": stochastic,
}  # fmt: skip


def _upper_of(bits: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The upper halves of 32 bits as bf16; where values are NaN, PyTorch's NaN on this machine."""
    made = (bits >> 16).to(torch.int16)  # of 16 bits, the lowest stay
    nan = torch.full((1,), torch.nan).to(torch.bfloat16).view(torch.int16).to(made.device)
    return torch.where(values.isnan(), nan, made).view(torch.bfloat16)


def split(values: torch.Tensor, *, to_nearest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The upper half of fp32 numbers as bf16, and the lower one as int16, of the same shape."""
    bits = values.view(torch.int32).masked_fill(values.isnan(), NAN)
    upper = (bits + _STEP // 2 if to_nearest else bits) >> 16
    return upper.to(torch.int16).view(torch.bfloat16), bits.to(torch.int16)  # of 16 bits, the lowest stay


def join(upper: torch.Tensor, lower: torch.Tensor, *, to_nearest: bool) -> torch.Tensor:
    """The fp32 numbers of two halves that `split` has made, to the bit but for kinds of NaN."""
    bits = upper.view(torch.int16).to(torch.int32) << 16
    return (bits + lower if to_nearest else bits | (lower.to(torch.int32) & (_STEP - 1))).view(torch.float32)
