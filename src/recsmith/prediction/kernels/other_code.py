# pyright: basic
"""What runs between two timed kernels, so that code and data are as cold as they are in a step (imports torch).

A kernel that runs in a loop of its own finds its code in the processor's caches. In a step dozens of other operators
run before it comes again, and a short one then takes up to twice as long.
"""

import time
from collections.abc import Callable
from functools import cache

import torch
from torch import nn

from recsmith.prediction.kernels.cases import BETWEEN

FLOAT = 4  # bytes
EMPTY = 100  # timed calls that do nothing, to see what calling and timing cost


def other_code() -> Callable[[], None]:
    """A call that runs some small operators, forward and backward."""
    net = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 16), nn.Sigmoid(), nn.Softmax(-1))
    inputs = torch.rand(4, 16)

    def call() -> None:
        with torch.enable_grad():
            found = net(inputs)
            found = torch.cat([found, found.transpose(0, 1).reshape(4, 16)], 1)[:, [1, 3, 5]]
            (found * found).sum().backward()

    return call


@cache
def _data() -> torch.Tensor:
    return torch.zeros(BETWEEN[1] // FLOAT)


def pass_data(size: int) -> None:
    """Move so many bytes, BETWEEN[1] at most, through the caches: half are read, and half written."""
    half = size // (2 * FLOAT)
    _data()[:half].copy_(_data()[half : 2 * half])


def calling_s(between: Callable[[], None]) -> float:
    """Seconds of the thread that it takes to call PyTorch and to be timed, which are no part of a kernel."""
    tensor, spent = torch.rand(4), list[float]()
    for _ in range(EMPTY):
        between()
        begun = time.thread_time()
        tensor.is_contiguous()
        spent.append(time.thread_time() - begun)
    return sorted(spent)[EMPTY // 2]
